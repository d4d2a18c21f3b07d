"""T-local optima on grids with exact dynamics and values, where every one of them is known."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from curioplan.analysis.optima import (
    RandomReach,
    best_values,
    find_optima,
    non_monotonicity,
    optima_along,
    stacked,
)
from curioplan.errors import ConfigError, DataError
from curioplan.planning import ModelRollout, Rollout
from gridworld import REST, Grid, plans
from planted import OPEN, ROOMS, error_rates
from tabular import Chain

CORNERS = "\n".join(["s" + "." * 15, *["." * 16] * 14, "." * 15 + "g"])
CORRIDOR = "s.........g"
DIRECTION = (1 - REST**2) / 4  # the probability of each direction under a uniformly random action


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def reach_of(grid, horizon, sequences=50, **options):
    return RandomReach(grid, grid.low, grid.high, horizon, sequences, **options)


def found_depths(grid, table, goal, reach, states=None, best=None, seed=0):
    """Depths (states,), or (M, states) of M tables; of all cells, and against the true best, if not given."""
    value = grid.value(table if table.ndim == 3 else table[None])
    states, target = grid.states if states is None else states, grid.states[goal]
    best = best_values(value, grid.states, target[None]) if best is None else best
    depth = find_optima(value, states, target, best, reach, generator(seed)).depth
    return depth if table.ndim == 3 else depth[0]


def random_tables(draw, grid, levels=6, count=1):
    """Values without any sense, many of them equal."""
    values = torch.rand(count, len(grid), len(grid), generator=generator(draw(st.integers(0, 1000))))
    return (values * levels).floor() / levels


# What is found


@pytest.mark.parametrize(("depth", "sequences"), [(1, 50), (3, 50), (20, 800)])
def test_planted_optima_are_found_with_their_depth_and_no_others(depth, sequences):
    grid = Grid(CORNERS)
    start, goal = grid.at("s"), grid.at("g")
    table = grid.planted(grid.optimal, goal, start, depth)
    found = found_depths(grid, table, goal, reach_of(grid, 30, sequences), states=grid.states[: 2 * 16])
    assert found[start] == depth
    assert (found > 0).sum() == 1


@settings(deadline=None, max_examples=50)
@given(plan=plans(), data=st.data())
def test_optimal_values_have_no_optima(plan, data):
    grid, goal = Grid(plan), data.draw(st.integers(0, 5))
    goal %= len(grid)
    assert not grid.depths(grid.optimal, goal).any()
    assert not found_depths(grid, grid.optimal, goal, reach_of(grid, 2, 150)).any()


def test_optimal_values_of_a_map_with_rooms_have_no_optima_for_any_of_many_goals():
    grid = Grid(ROOMS)
    for goal in range(0, len(grid), 20):
        assert not found_depths(grid, grid.optimal, goal, reach_of(grid, 1, 100)).any()


def test_depths_beyond_the_horizon_are_said_to_be_at_least_that():
    grid = Grid(CORRIDOR)
    start, goal = grid.at("s"), grid.at("g")
    for depth, horizon, expected in ((3, 8, 3), (3, 4, 3), (3, 3, 3), (7, 3, 3)):
        tables = grid.value(grid.planted(grid.optimal, goal, start, depth)[None])
        found = find_optima(
            tables,
            grid.states[[start]],
            grid.states[goal],
            np.ones((1, 1)),
            reach_of(grid, horizon, 3000),
            generator(),
        )
        assert found.depth.item() == expected
        assert found.censored.item() == (depth >= horizon)


def test_the_best_state_is_no_optimum_though_nothing_around_it_is_better():
    grid = Grid(CORRIDOR)
    table = torch.full((len(grid), len(grid)), 0.1)
    table[4] = 0.8
    reach = reach_of(grid, 5)
    assert not found_depths(grid, table, 0, reach).any()
    found = found_depths(grid, table, 0, reach, best=np.full((1, 1), 0.9))
    assert np.flatnonzero(found).tolist() == [4]


def test_a_plateau_is_no_optimum():
    grid = Grid(CORRIDOR)
    table = torch.full((len(grid), len(grid)), 0.1)
    table[4:6] = 0.5
    table[9] = 1
    assert not found_depths(grid, table, 0, reach_of(grid, 8, 200)).any()


def test_a_state_that_cannot_be_left_is_an_optimum_unless_it_is_worthless():
    grid = Grid(".#.")
    table = torch.tensor([[0.3, 0.3], [0.9, 0.9]])
    assert found_depths(grid, table, 0, reach_of(grid, 6)).tolist() == [6, 0]
    assert found_depths(grid, grid.optimal, 1, reach_of(grid, 6)).tolist() == [0, 0]


def test_every_particle_is_a_sample():
    class Slippery(Grid):
        """Three particles, of which the last goes where the action says and the others stay."""

        def rollout(self, states, actions, generators, *, disagreement):
            moved = super().rollout(states, actions, generators, disagreement=disagreement)
            still = moved.states[..., :1, :].expand_as(moved.states)
            return Rollout(torch.cat([still, still, moved.states], 2), None, moved.spread)

    depths = []
    for grid in (Grid(CORRIDOR), Slippery(CORRIDOR)):
        table = grid.planted(grid.optimal, grid.at("g"), grid.at("s"), 3)
        depths.append(found_depths(grid, table, grid.at("g"), reach_of(grid, 8)))
    np.testing.assert_array_equal(*depths)


def test_optima_are_found_with_a_learned_model_of_noisy_states():
    chain = Chain(states=8)
    worth = torch.tensor([0.3, 0.4, 0.8, 0.5, 0.6, 0.9, 0.95, 1.0])
    values = stacked([lambda states, goals: worth[states.argmax(1)]])
    dynamics = ModelRollout(chain.model(), particles=2)
    reach = RandomReach(dynamics, torch.tensor([-1.0]), torch.tensor([1.0]), horizon=6)
    states = torch.eye(8)
    found = find_optima(values, states, states[7], np.ones((1, 1)), reach, generator())
    assert found.depth.tolist() == [[0, 0, 2, 0, 0, 0, 0, 0]]


# How it is found


@settings(deadline=None, max_examples=50)
@given(plan=plans(5), data=st.data())
def test_what_is_found_is_the_definition_read_over_the_samples(plan, data):
    grid = Grid(plan)
    tables, horizon = random_tables(data.draw, grid, count=3), data.draw(st.integers(1, 5))
    goals = torch.randint(len(grid), (len(grid),), generator=generator(1))  # of every state its own
    reach, best = reach_of(grid, horizon, data.draw(st.integers(1, 6))), 0.4
    seeds = torch.randint(2**63 - 1, (len(grid),), generator=generator()).tolist()
    reached = grid.number(reach.sample(grid.states, [generator(seed) for seed in seeds]))
    expected = np.zeros((3, len(grid)))
    for m, cell in np.ndindex(expected.shape):
        values = tables[m, :, goals[cell]]
        others = [[values[c].item() for c in step[cell] if c != cell] for step in reached[1:]]
        better = [any(value > values[cell] for value in step) for step in others]
        known = [best, *(value for step in others for value in step)]
        if max(known) > values[cell] > max([0, *others[0]]):
            expected[m, cell] = better.index(True) if True in better else horizon
    found = find_optima(
        grid.value(tables), grid.states, grid.states[goals], np.full((3, 1), best), reach, generator()
    )
    np.testing.assert_array_equal(found.depth, expected)


def test_several_value_functions_are_judged_as_if_alone():
    grid = Grid(CORNERS)
    start, goal = grid.at("s"), grid.at("g")
    tables = torch.stack([grid.planted(grid.optimal, goal, start, depth) for depth in (1, 3, 8)])
    reach = reach_of(grid, 6)
    together = found_depths(grid, tables, goal, reach)
    np.testing.assert_array_equal(together, [found_depths(grid, table, goal, reach) for table in tables])
    value = stacked([grid.value(table) for table in tables])
    again = find_optima(value, grid.states, grid.states[goal], np.ones((3, 1)), reach, generator())
    np.testing.assert_array_equal(again.depth, together)


def test_neither_the_number_of_states_at_once_nor_those_behind_change_what_is_found(monkeypatch):
    grid = Grid(CORNERS)
    table = grid.planted(grid.optimal, grid.at("g"), grid.at("s"), 3)
    whole = found_depths(grid, table, grid.at("g"), reach_of(grid, 6, 3))
    assert len(set(whole)) > 3  # with so few samples anything is found
    part = found_depths(grid, table, grid.at("g"), reach_of(grid, 6, 3), states=grid.states[:40])
    np.testing.assert_array_equal(part, whole[:40])
    monkeypatch.setattr("curioplan.analysis.optima.ROWS", 20)
    monkeypatch.setattr("curioplan.analysis.optima.BATCH", 7)
    np.testing.assert_array_equal(found_depths(grid, table, grid.at("g"), reach_of(grid, 6, 3)), whole)


def test_the_same_seed_finds_the_same():
    grid = Grid(CORNERS)
    first, again, other = (
        found_depths(grid, grid.optimal, grid.at("g"), reach_of(grid, 6, 2), seed=seed) for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


@pytest.mark.parametrize("exponent", [0.0, 3.0])
@pytest.mark.parametrize("horizon", [1, 20])
def test_random_actions_are_uniform_between_their_bounds_at_every_step(exponent, horizon):
    class Recorder(Grid):
        def rollout(self, states, actions, generators, *, disagreement):
            self.actions = actions
            return super().rollout(states, actions, generators, disagreement=disagreement)

    grid, low, high = Recorder(CORRIDOR), torch.tensor([-1.0, 0.2]), torch.tensor([1.0, 0.6])
    RandomReach(grid, low, high, horizon, 4000, exponent).sample(grid.states[:1], [generator()])
    shares = (grid.actions[0] - low) / (high - low)  # (sequences, horizon, act)
    quartiles = shares.quantile(torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0]), 0)
    expected = torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0]).view(-1, 1, 1).expand_as(quartiles)
    torch.testing.assert_close(quartiles, expected, atol=0.04, rtol=0)


def test_smooth_sequences_find_their_way_out_where_independent_actions_do_not():
    grid = Grid(CORNERS)
    start, goal = grid.at("s"), grid.at("g")
    table = grid.planted(grid.optimal, goal, start, 10)
    again = grid.states[start].expand(20, 2)
    smooth, independent = (
        found_depths(grid, table, goal, reach_of(grid, 20, exponent=exponent), states=again)
        for exponent in (3.0, 0.0)
    )
    assert (smooth == 10).mean() > 0.8
    assert (independent > 10).mean() > 0.8


# Errors, by the number of samples


@settings(deadline=None, max_examples=50)
@given(plan=plans(), data=st.data())
def test_with_exact_dynamics_and_the_best_state_no_optimum_is_missed_or_taken_for_less_deep(plan, data):
    grid, horizon = Grid(plan), data.draw(st.integers(1, 6))
    (table,) = random_tables(data.draw, grid)
    found = found_depths(grid, table, 0, reach_of(grid, horizon, data.draw(st.integers(1, 10))))
    true = grid.depths(table, 0).numpy()
    assert (found >= np.minimum(true, horizon)).all()


@pytest.mark.parametrize("sequences", [1, 3, 8, 20])
def test_states_are_taken_for_optima_as_often_as_all_samples_miss_the_better_neighbours(sequences):
    grid = Grid(CORNERS)
    goal, trials = grid.at("g"), 1500
    for cell, better in (((15, 3), 1), ((7, 3), 2)):
        states = torch.tensor(cell).float().expand(trials, 2)
        share = (found_depths(grid, grid.optimal, goal, reach_of(grid, 1, sequences), states) > 0).mean()
        expected = (1 - better * DIRECTION) ** sequences
        assert share == pytest.approx(expected, abs=4 * np.sqrt(expected * (1 - expected) / trials) + 1e-9)


@pytest.mark.parametrize("size", [1, 4, 16, 64])
def test_optima_are_missed_as_often_as_no_random_state_is_better(size):
    grid = Grid(CORNERS)
    start, goal, trials = grid.at("s"), grid.at("g"), 1000
    table = grid.planted(grid.optimal, goal, start, 20)
    value = grid.value(table[None])
    pools = torch.randint(len(grid), (trials, size), generator=generator(1))
    best = np.concatenate(
        [best_values(value, grid.states[pool], grid.states[[goal]]) for pool in pools], axis=1
    )
    states = grid.states[start].expand(trials, 2)
    found = found_depths(grid, table, goal, reach_of(grid, 10, 20), states, best)
    assert set(found) <= {0, 10}
    expected = (1 - (table[:, goal] > table[start, goal]).float().mean().item()) ** size
    assert (found == 0).mean() == pytest.approx(
        expected, abs=4 * np.sqrt(expected * (1 - expected) / trials) + 1e-9
    )


def test_false_optima_and_excessive_depths_become_rarer_with_more_sequences():
    grid = Grid(OPEN)
    for depth, budgets in ((1, (1, 8, 64)), (20, (5, 50, 500))):
        rates = [
            error_rates(grid, depth, sequences=budget, horizon=30, count=20, others=10) for budget in budgets
        ]
        for less, more in pairwise(rates):
            assert more.too_deep < less.too_deep or less.too_deep == 0
            assert more.false < less.false or less.false == 0
        assert rates[-1].false == 0
        assert rates[-1].too_deep < 0.2
        assert all(rate.missed == rate.too_shallow == 0 for rate in rates)


def test_deep_optima_are_missed_more_rarely_with_more_random_states():
    grid = Grid(ROOMS)
    missed = [
        error_rates(grid, 20, sequences=5, horizon=15, pool=pool, others=0).missed for pool in (1, 10, 100)
    ]
    assert all(more < less for less, more in pairwise(missed))
    assert missed[0] > 0.5
    assert missed[-1] < 0.1


# Along trajectories


def test_the_occurrence_along_a_trajectory_is_the_share_of_its_states():
    grid = Grid(CORNERS)
    start, goal = grid.at("s"), grid.at("g")
    tables = torch.stack([grid.optimal, grid.planted(grid.optimal, goal, start, 3)])
    way = grid.path(start, goal)
    paths = [grid.states[way], grid.states[way[[0, 0, 0, 1]]], grid.states[way[1:]]]
    goals = grid.states[[goal] * 3]
    found = optima_along(grid.value(tables), paths, goals, grid.states, reach_of(grid, 6), generator())
    assert [each.depth.shape for each in found] == [(2, 31), (2, 4), (2, 30)]
    shares = np.stack([each.share() for each in found], 1)
    np.testing.assert_allclose(shares, [[0, 0, 0], [1 / 31, 3 / 4, 0]])
    np.testing.assert_allclose(found[1].share(3), [0, 3 / 4])
    np.testing.assert_allclose(found[1].share(4), [0, 0])


def test_the_best_state_is_that_for_the_goal_of_each_trajectory():
    grid = Grid(CORRIDOR)
    values = grid.value(torch.stack([grid.optimal, grid.optimal / 2]))
    best = best_values(values, grid.states[:4], grid.states[[0, 10]])
    np.testing.assert_allclose(best, [[1, grid.gamma**6], [1 / 2, grid.gamma**6 / 2]], rtol=1e-6)


def test_depths_that_sampling_cannot_know_are_not_counted():
    grid = Grid(CORRIDOR)
    (found,) = optima_along(
        grid.value(grid.optimal[None]),
        [grid.states],
        grid.states[:1],
        grid.states,
        reach_of(grid, 6),
        generator(),
    )
    assert found.share(6).tolist() == [0]
    for depth in (0, 7):
        with pytest.raises(ConfigError, match=f"from 1 to the horizon 6, not {depth}"):
            found.share(depth)


@pytest.mark.parametrize("horizon", [2, 5, 30])
def test_optimal_values_climb_along_shortest_ways_and_fall_on_the_way_back(horizon):
    grid = Grid(CORNERS)
    way = grid.states[grid.path(grid.at("s"), grid.at("g"))]
    shares = non_monotonicity(grid.value(grid.optimal[None]), [way, way.flip(0)], way[[-1, -1]], horizon)
    np.testing.assert_array_equal(shares, [[0, 1]])


@settings(deadline=None, max_examples=50)
@given(data=st.data(), horizon=st.integers(1, 6))
def test_non_monotonicity_counts_the_steps_after_which_nothing_is_gained(data, horizon):
    grid = Grid(CORRIDOR)
    tables = random_tables(data.draw, grid, count=2)
    walks = data.draw(st.lists(st.lists(st.integers(0, 10), min_size=1, max_size=20), min_size=1, max_size=3))
    paths, goals = [grid.states[walk] for walk in walks], grid.states[: len(walks)]
    shares = non_monotonicity(grid.value(tables), paths, goals, horizon)
    for (m, p), share in np.ndenumerate(shares):
        values = [tables[m, cell, p].item() for cell in walks[p]]
        falls = [now >= later for now, later in zip(values, values[horizon:], strict=False)]
        assert share == pytest.approx(np.mean(falls)) if falls else np.isnan(share)


# What is refused


def test_one_value_function_alone_is_told_how_to_be_passed():
    grid = Grid(CORRIDOR)
    with pytest.raises(DataError, match=r"stacked\(\[value\]\)"):
        best_values(grid.value(), grid.states, grid.states[:1])


@pytest.mark.parametrize("bad", [-0.1, np.nan, np.inf])
def test_values_that_cannot_be_compared_are_refused(bad):
    grid = Grid(CORRIDOR)
    table = grid.optimal.clone()
    table[3] = bad
    with pytest.raises(DataError, match="negative or no numbers"):
        found_depths(grid, table, 0, reach_of(grid, 3), best=np.ones((1, 1)))


def test_nothing_is_not_looked_at():
    grid = Grid(CORRIDOR)
    values = grid.value(grid.optimal[None])
    with pytest.raises(DataError, match="no states"):
        found_depths(grid, grid.optimal, 0, reach_of(grid, 3), states=grid.states[:0])
    with pytest.raises(DataError, match="best of no states"):
        best_values(values, grid.states[:0], grid.states)
    with pytest.raises(DataError, match="no trajectories"):
        non_monotonicity(values, [], grid.states[:0], 5)
    with pytest.raises(ConfigError, match="one step ahead"):
        non_monotonicity(values, [grid.states], grid.states[:1], 0)
    for horizon, sequences in ((0, 5), (5, 0)):
        with pytest.raises(ConfigError, match="at least one sequence of one step"):
            reach_of(grid, horizon, sequences)
