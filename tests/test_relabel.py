"""Relabelled goals follow the distribution they should."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from curioplan.data import Relabelling, TrajectoryStore, sample_batch, sample_goal_rows
from curioplan.errors import ConfigError

SAMPLES = 1_000_000
LENGTHS = [1, 1, 2, 3, 5, 8, 13, 30, 60]


def store_of(lengths, value=None):
    """A store whose observations are their own row numbers, or all one value."""
    store, row = TrajectoryStore(1, 1, 1), 0
    for length in lengths:
        states = np.arange(row, row + length + 1, dtype=np.float32)[:, None]
        states = states if value is None else np.full_like(states, value)
        store.add_episode(states, np.ones((length, 1)), states)
        row += length + 1
    return store


def rows_of(batch):
    return batch.observations[:, 0].long()


def assert_frequency(count, probability, samples):
    error = np.sqrt(samples * probability * (1 - probability)) + 1e-9
    assert abs(count - samples * probability) < 5 * error


def offset_probability(store, relabelling, k):
    """P(the goal lies k rows ahead), by counting over all transitions."""
    p_goal, p = relabelling.p_goal, relabelling.p_geometric
    rows = store.transition_rows.numpy()
    remaining = (store.last_rows[store.episode_of[store.transition_rows]] - store.transition_rows).numpy()
    future = np.where(k < remaining, p * (1 - p) ** (k - 1), np.where(k == remaining, (1 - p) ** (k - 1), 0))
    anywhere = (rows + k < store.states) / store.states
    return (p_goal * future + (1 - p_goal) * anywhere).mean()


@pytest.mark.parametrize(
    "relabelling", [Relabelling(), Relabelling(0.3, 0.05), Relabelling(1.0, 0.5)], ids=str
)
def test_goals_lie_ahead_as_often_as_computed(relabelling):
    store = store_of(LENGTHS)
    batch = sample_batch(store, SAMPLES, relabelling, torch.Generator().manual_seed(1))
    ahead = batch.goal_rows - rows_of(batch)
    for k in range(1, 25):
        assert_frequency(int((ahead == k).sum()), offset_probability(store, relabelling, k), SAMPLES)
    assert_frequency(int(batch.rewards.sum()), offset_probability(store, relabelling, 1), SAMPLES)


def test_random_goals_are_as_frequent_as_they_should_be():
    store, relabelling = store_of(LENGTHS), Relabelling()
    batch = sample_batch(store, SAMPLES, relabelling, torch.Generator().manual_seed(2))
    elsewhere = store.episode_of[batch.goal_rows] != store.episode_of[rows_of(batch)]
    own = (store.episode_lengths + 1)[store.episode_of[store.transition_rows]].double() / store.states
    expected = (1 - relabelling.p_goal) * (1 - own.mean().item())
    assert_frequency(int(elsewhere.sum()), expected, SAMPLES)


def test_random_goals_are_uniform_over_all_states():
    store = store_of(LENGTHS)
    batch = sample_batch(store, SAMPLES, Relabelling(p_goal=0.0), torch.Generator().manual_seed(3))
    for count in torch.bincount(batch.goal_rows, minlength=store.states).tolist():
        assert_frequency(count, 1 / store.states, SAMPLES)


@pytest.mark.parametrize("share", [1.0, 0.3])
def test_near_goals_are_the_nearest_of_sixteen(share):
    store, samples = store_of([999]), 100_000
    rows = torch.full((samples,), 500)
    goals = sample_goal_rows(store, rows, Relabelling(0.0, 0.2, share), torch.Generator().manual_seed(9))
    for distance in (0, 10, 30, 100, 300):
        within = (2 * distance + 1) / store.states
        expected = share * (1 - (1 - within) ** 16) + (1 - share) * within
        assert_frequency(int(((goals - 500).abs() <= distance).sum()), expected, samples)


def test_goals_from_the_future_never_leave_the_episode():
    store = store_of(LENGTHS)
    batch = sample_batch(store, SAMPLES, Relabelling(1.0, 0.05), torch.Generator().manual_seed(4))
    rows = rows_of(batch)
    assert (batch.goal_rows > rows).all()
    assert torch.equal(store.episode_of[batch.goal_rows], store.episode_of[rows])
    assert (batch.goal_rows == store.last_rows[store.episode_of[rows]]).any()


def test_with_a_test_of_success_all_that_passes_is_rewarded():
    store, generator = store_of(LENGTHS), torch.Generator().manual_seed(10)
    batch = sample_batch(
        store, 5000, Relabelling(), generator, success=lambda one, other: (one - other).abs()[..., 0] < 2
    )
    apart = (batch.goal_rows - rows_of(batch) - 1).abs()  # observations and goals are row numbers
    assert torch.equal(batch.rewards, (apart < 2).float())
    assert torch.equal(batch.terminals, batch.rewards)
    assert (batch.steps[apart == 0] == 1).all()


def test_next_actions_are_those_of_the_trajectory_and_zero_at_its_end():
    store = TrajectoryStore(1, 1, 1)
    for length in (1, 4):
        states = np.zeros((length + 1, 1))
        store.add_episode(states, np.arange(1, length + 1)[:, None], states)
    batch = sample_batch(store, 1000, Relabelling(), torch.Generator().manual_seed(11))
    pairs = set(zip(batch.actions[:, 0].tolist(), batch.next_actions[:, 0].tolist(), strict=True))
    assert pairs == {(1.0, 0.0), (1.0, 2.0), (2.0, 3.0), (3.0, 4.0), (4.0, 0.0)}


def counting(*episodes):
    """Trajectories whose states, goals and actions count up from some number for some steps."""
    store = TrajectoryStore(1, 1, 1)
    for first, length in episodes:
        states = first + np.arange(length + 1.0)[:, None]
        store.add_episode(states, states[:-1], states)
    return store


def test_targets_look_uniformly_many_steps_ahead_but_not_beyond_the_end_or_the_goal():
    store, far, samples = counting((0, 3), (100, 40)), 5, 20_000
    batch = sample_batch(store, samples, Relabelling(), torch.Generator().manual_seed(12), lookahead=far)
    at, there, goals = batch.observations[:, 0], batch.next_observations[:, 0], batch.goals[:, 0]
    assert torch.equal(there - at, batch.span)
    last = torch.where(at < 100, 3.0, 140.0)
    assert torch.equal(batch.next_actions[there != last][:, 0], there[there != last])
    assert (batch.next_actions[there == last] == 0).all()
    ahead = (goals > at) & (goals <= last)
    assert (there <= last).all()
    assert (there <= goals)[ahead].all()
    free = batch.span[(last - at >= far) & ~(ahead & (goals - at < far))]
    for k in range(1, far + 1):
        assert_frequency(int((free == k).sum()), 1 / far, len(free))
    assert torch.equal(batch.rewards, (there == goals).float())
    assert torch.equal(batch.terminals, batch.rewards)
    assert torch.equal(batch.steps, torch.where(ahead, goals - at, -1))


def test_targets_look_no_further_than_to_what_first_passes_the_test_of_success():
    """Trajectories pass by 7 and come back to it: whoever jumps over the first time would see the second."""
    store, generator = TrajectoryStore(1, 1, 1), torch.Generator().manual_seed(13)
    places = np.concatenate([np.arange(12.0), np.arange(11.0, 3.0, -1)])[:, None]
    store.add_episode(np.arange(20.0)[:, None], np.zeros((19, 1)), places)  # states are row numbers
    arguments = store, 5000, Relabelling(0.5, 0.05), generator
    batch = sample_batch(*arguments, success=lambda one, two: (one - two).abs()[..., 0] < 1.5, lookahead=20)
    now, then, rows = batch.observations, batch.next_observations[:, 0], torch.arange(20.0)
    passes = (store.achieved_goals[:, 0] - batch.goals).abs() < 1.5  # (batch, rows)
    first = torch.where(passes & (rows > now), rows, 99.0).amin(1)
    assert (then <= first).all()
    assert torch.equal(batch.rewards, (then == first).float())
    assert torch.equal(batch.steps, torch.where(first < 99, first - now[:, 0], -1.0))
    assert (batch.steps == -1).any(), "what is passed for good"
    for found in (0, 1):
        assert (batch.rewards[batch.span > 1] == found).any()


def test_whole_states_are_reached_by_themselves_alone():
    store, generator = counting((0, 40)), torch.Generator().manual_seed(14)
    everything = lambda one, two: (one - two).abs()[..., 0] < 100  # noqa: E731
    batch = sample_batch(store, 4000, Relabelling(), generator, None, everything, 4, p_whole=0.3)
    assert_frequency(int(batch.whole.sum()), 0.3, 4000)
    assert (batch.rewards[~batch.whole] == 1).all()
    assert (batch.span[~batch.whole] == 1).all()
    same = batch.next_observations == batch.goals
    assert torch.equal(batch.rewards[batch.whole], same[batch.whole][:, 0].float())


def test_without_a_lookahead_batches_do_not_look():
    batch = sample_batch(store_of([5]), 10, Relabelling(), torch.Generator().manual_seed(12))
    assert torch.equal(batch.next_observations, batch.observations + 1)
    assert not {"span", "whole"} & set(batch.tensors())


def test_steps_ahead_are_geometric_in_a_long_episode():
    store, p = store_of([5000]), 0.2
    rows = torch.zeros(SAMPLES, dtype=torch.int64)
    ahead = sample_goal_rows(store, rows, Relabelling(1.0, p), torch.Generator().manual_seed(5))
    assert ahead.double().mean().item() == pytest.approx(1 / p, abs=5 * np.sqrt((1 - p) / p**2 / SAMPLES))
    for k in (1, 2, 3, 10, 30, 50):
        assert_frequency(int((ahead == k).sum()), p * (1 - p) ** (k - 1), SAMPLES)
        assert_frequency(int((ahead > k).sum()), (1 - p) ** k, SAMPLES)


@pytest.mark.parametrize("p", [1.0, 1e-12])
def test_extreme_parameters_mean_the_next_or_the_last_state(p):
    store = store_of([6, 9])
    batch = sample_batch(store, 1000, Relabelling(1.0, p), torch.Generator().manual_seed(6))
    rows = rows_of(batch)
    expected = rows + 1 if p == 1 else store.last_rows[store.episode_of[rows]]
    assert torch.equal(batch.goal_rows, expected)


def test_rewards_go_by_index_not_by_distance():
    """Where all states are alike, only the goal that is the very next state is rewarded."""
    one, other = (
        sample_batch(store_of(LENGTHS, value), 1000, Relabelling(), torch.Generator().manual_seed(7))
        for value in (None, 0.0)
    )
    assert torch.equal(one.rewards, other.rewards)
    assert torch.equal(one.rewards, (one.goal_rows == rows_of(one) + 1).float())
    assert torch.equal(one.rewards, one.terminals)
    assert 0 < one.rewards.mean() < 1


def test_a_batch_is_made_of_transitions_and_stored_goals():
    rng = np.random.default_rng(0)
    store = TrajectoryStore(3, 2, 2)
    for length in LENGTHS:
        arrays = [rng.normal(size=(n, d)) for n, d in ((length + 1, 3), (length, 2), (length + 1, 2))]
        store.add_episode(*arrays)
    batch = sample_batch(store, 4096, Relabelling(), torch.Generator().manual_seed(8))
    place = {tuple(row): number for number, row in enumerate(store.observations.tolist())}
    rows = torch.tensor([place[tuple(row)] for row in batch.observations.tolist()])
    assert torch.equal(batch.actions, store.actions[rows])
    assert torch.equal(batch.next_observations, store.observations[rows + 1])
    assert torch.equal(batch.goals, store.achieved_goals[batch.goal_rows])
    assert {value.dtype for name, value in batch.tensors().items() if name != "goal_rows"} == {torch.float32}


def test_batches_depend_on_the_generator_alone():
    store = store_of(LENGTHS)
    generator = torch.Generator().manual_seed(9)
    sample_batch(store, 64, Relabelling(), generator)
    state = generator.get_state()
    first = [sample_batch(store, 64, Relabelling(), generator) for _ in range(3)]
    resumed = torch.Generator()
    resumed.set_state(state)
    for batch in first:
        again = sample_batch(store, 64, Relabelling(), resumed)
        assert all(torch.equal(value, getattr(again, name)) for name, value in batch.tensors().items())


@pytest.mark.parametrize("wrong", [(-0.1, 0.2), (1.1, 0.2), (0.5, 0.0), (0.5, 1.5), (float("nan"), 0.2)])
def test_impossible_probabilities_are_refused(wrong):
    with pytest.raises(ConfigError, match="probability"):
        Relabelling(*wrong)
