"""What is measured of value functions, on a line of states where true values are known."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from curioplan.analysis.geodesic import MazeTimes
from curioplan.analysis.values import NEAR, along_path, calibration, evaluate, implied_steps, rank_correlation
from curioplan.data import TrajectoryStore
from curioplan.envs import make_task
from curioplan.errors import DataError

GAMMA = 0.99


def walks(*lengths):
    """Walks of these lengths, one unit per step, each from a whole number of its own."""
    store = TrajectoryStore(2, 1, 1)
    for number, length in enumerate(lengths):
        places = 10.0 * number + np.arange(length + 1)
        store.add_episode(np.stack([places, places**2], 1), np.zeros((length, 1)), places[:, None])
    return store


def steps_between(states, goals):
    return np.abs(states[:, 0] - goals[:, 0]).astype(np.float64)


def exact(states, goals):
    return GAMMA ** ((states[:, 0] - goals[:, 0]).abs() - 1).clamp(min=0)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def ranks(value, store=None, times=steps_between, pairs=400):
    return rank_correlation(value, store or walks(150, 80, 3), times, pairs, generator())


def test_exact_values_rank_as_true_times_do():
    found = ranks(lambda states, goals: GAMMA ** (states[:, 0] - goals[:, 0]).abs())
    for key in ("rank", "rank_near", "rank_far"):
        assert found[key] == pytest.approx(1)


def test_reversed_values_rank_the_other_way():
    found = ranks(lambda states, goals: 1 - GAMMA ** (states[:, 0] - goals[:, 0]).abs())
    for key in ("rank", "rank_near", "rank_far"):
        assert found[key] == pytest.approx(-1)


def test_constant_values_order_nothing():
    found = ranks(lambda states, goals: torch.full((len(states),), 0.3))
    assert [found[key] for key in ("rank", "rank_near", "rank_far")] == [0, 0, 0]


def test_random_values_hardly_correlate():
    noise = generator(1)
    assert abs(ranks(lambda states, goals: torch.rand(len(states), generator=noise))["rank"]) < 0.15


def test_near_and_far_pairs_are_told_apart_by_their_true_times():
    def only_near(states, goals):
        return exact(states, goals).clamp(min=GAMMA ** (NEAR - 1))

    found = ranks(only_near)
    assert found["rank_near"] > 0.999
    assert found["rank_far"] == 0
    assert 0 < found["rank"] < 1
    assert found["pairs_near"] + found["pairs_far"] == found["pairs"] == 400
    assert min(found["pairs_near"], found["pairs_far"]) > 50


def test_where_all_goals_are_near_there_is_no_far_correlation():
    found = ranks(exact, walks(20))
    assert (found["rank_far"], found["pairs_far"]) == (0, 0)
    assert found["rank_near"] == found["rank"]


def test_goals_out_of_reach_count_as_the_farthest():
    def cut(states, goals):
        away = steps_between(states, goals)
        return np.where(away > 100, np.inf, away)

    assert ranks(lambda states, goals: exact(states, goals) * 0.999 ** states[:, 0], times=cut)["rank"] > 0.9


def test_ranks_with_ties_equal_those_of_scipy():
    def coarse(states, goals):
        return (states[:, 0] * 7 + goals[:, 0] * 3) % 5

    seen = []

    def times(states, goals):
        seen.append((coarse(states, goals), steps_between(states, goals)))
        return seen[-1][1]

    found = ranks(coarse, times=times)
    assert found["rank"] == pytest.approx(spearmanr(-seen[0][0], seen[0][1])[0])


def test_true_times_of_a_maze_rank_perfectly_with_themselves():
    task = make_task("maze_umaze")
    times = MazeTimes(task)
    store = TrajectoryStore(4, 2, 2)
    rng = np.random.default_rng(0)
    cells = np.argwhere(task.floor_plan.free)[rng.integers(7, size=61)]
    states = np.hstack([cells - 0.2 + rng.uniform(-0.4, 0.4, (61, 2)), rng.normal(0, 2, (61, 2))])
    store.add_episode(states, np.zeros((60, 2)), states[:, :2])
    found = ranks(
        lambda states, goals: torch.from_numpy(GAMMA ** times.steps(states.numpy(), goals.numpy())),
        store,
        times.steps,
    )
    assert found["rank"] == pytest.approx(1)


def test_exact_values_of_straight_walks_meet_the_bound_at_every_lag():
    found = calibration(exact, walks(150, 120), GAMMA, pairs=300, generator=generator())
    for lag in (1, 5, 20, 50, 100):
        assert found[f"value_{lag}"] == pytest.approx(GAMMA ** (lag - 1), rel=1e-5)
        assert found[f"bound_{lag}"] == pytest.approx(GAMMA ** (lag - 1))
        assert found[f"steps_{lag}"] == pytest.approx(lag - 1, abs=1e-3)
    assert found["value_random"] < found["value_20"]
    assert all(type(value) is float for value in found.values())


def test_values_below_the_bound_show_as_more_steps():
    found = calibration(
        lambda s, g: exact(s, g) * GAMMA**7, walks(150), GAMMA, pairs=50, generator=generator()
    )
    assert found["value_20"] < found["bound_20"]
    assert found["steps_20"] == pytest.approx(19 + 7, abs=1e-3)


def test_pairs_at_a_lag_are_uniform_over_all_that_exist_and_never_leave_their_episode():
    store, seen = walks(1, 4, 2, 7), []

    def record(states, goals):
        seen.append(torch.cat([states[:, :1], goals], 1))
        return torch.ones(len(states))

    calibration(record, store, GAMMA, lags=(2,), pairs=4000, generator=generator())
    pairs, counts = np.unique(seen[0].numpy(), axis=0, return_counts=True)
    expected = [
        (place, place + 2) for number, length in ((1, 4), (2, 2), (3, 7)) for place in _starts(number, length)
    ]
    assert [tuple(pair) for pair in pairs] == expected
    assert counts.min() > 0.8 * 4000 / len(expected)


def _starts(number, length):
    return range(10 * number, 10 * number + length - 1)


def test_lags_longer_than_every_episode_are_left_out():
    found = calibration(exact, walks(3, 20), GAMMA, pairs=10, generator=generator())
    assert {key for key in found if key.startswith("value")} == {
        "value_1",
        "value_5",
        "value_20",
        "value_random",
    }


def test_a_value_of_zero_stands_for_many_steps_but_not_infinitely_many():
    found = calibration(lambda s, g: s[:, 0] * 0, walks(5), GAMMA, (1,), pairs=5, generator=generator())
    assert 5000 < found["steps_1"] < math.inf
    assert implied_steps(np.array([1.0, GAMMA, GAMMA**30]), GAMMA) == pytest.approx([0, 1, 30])


def test_along_a_straight_walk_exact_values_are_the_expected_ones():
    store = walks(40)
    values, expected = along_path(exact, store.observations, store.achieved_goals[-1], GAMMA)
    np.testing.assert_allclose(values, expected, rtol=1e-5)
    assert expected[0] == pytest.approx(GAMMA**39)
    assert expected[-2] == expected[-1] == 1


def test_values_are_asked_for_in_batches_without_gradients_and_keep_their_order():
    sizes = []
    weight = torch.ones(1, requires_grad=True)

    def counted(states, goals):
        sizes.append(len(states))
        return states[:, 0] * weight + goals[:, 0]

    states, goals = torch.arange(20_000.0)[:, None], torch.rand(20_000, 1, generator=generator())
    found = evaluate(counted, states, goals)
    np.testing.assert_array_equal(found, (states + goals)[:, 0].numpy())
    assert sum(sizes) == 20_000
    assert 1 < len(sizes) < 10


def test_a_value_function_of_the_wrong_shape_is_named():
    with pytest.raises(DataError, match=r"shape \(4, 1\) for 4 states"):
        evaluate(lambda states, goals: states[:, :1], torch.zeros(4, 2), torch.zeros(4, 1))


def test_an_empty_store_is_refused():
    with pytest.raises(DataError, match="no states"):
        calibration(exact, TrajectoryStore(2, 1, 1), GAMMA, pairs=5, generator=generator())


def test_the_same_seed_measures_the_same():
    store = walks(150, 80)
    first, again, other = (
        calibration(exact, store, GAMMA, pairs=30, generator=generator(seed)) for seed in (3, 3, 4)
    )
    assert first == again != other
