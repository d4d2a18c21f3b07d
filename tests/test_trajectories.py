"""The trajectory store keeps every state, and knows where episodes begin and end."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from curioplan.data import TrajectoryStore, mix
from curioplan.errors import ConfigError, DataError

DIMS = {"observation_dim": 3, "goal_dim": 2, "action_dim": 1}
lengths_of_episodes = st.lists(st.integers(0, 5), max_size=8)


class SteppedThroughTorch(TrajectoryStore):
    """A store on the CPU that writes as it would on another device, without NumPy."""

    def _allocate(self, capacity):
        super()._allocate(capacity)
        self._views = None


def episode(length, seed=0):
    rng = np.random.default_rng([seed, length])
    return (
        rng.normal(size=(length + 1, 3)).astype(np.float32),
        rng.normal(size=(length, 1)).astype(np.float32),
        rng.normal(size=(length + 1, 2)).astype(np.float32),
    )


def act(store, length, seed=0):
    observations, actions, goals = episode(length, seed)
    store.begin(observations[0], goals[0])
    for action, observation, goal in zip(actions, observations[1:], goals[1:], strict=True):
        store.step(action, observation, goal)


def stepped(lengths, kind=TrajectoryStore, capacity=1):
    store = kind(**DIMS, capacity=capacity)
    for seed, length in enumerate(lengths):
        act(store, length, seed)
    return store


def assert_same(one, other):
    assert (one.states, one.transitions, one.episodes) == (other.states, other.transitions, other.episodes)
    names = ["observations", "achieved_goals", "actions", "episode_of", "transition_rows", "first_rows"]
    for name in [*names, "last_rows", "episode_lengths"]:
        assert torch.equal(getattr(one, name), getattr(other, name)), name
    for name, rows in one.rows().items():
        assert torch.equal(rows, other.rows()[name]), name


@given(lengths_of_episodes, st.integers(1, 20))
@settings(deadline=None)
def test_stepping_equals_adding_whole_episodes(lengths, capacity):
    whole = TrajectoryStore(**DIMS, capacity=capacity)
    for seed, length in enumerate(lengths):
        whole.add_episode(*episode(length, seed)[:2], episode(length, seed)[2])
    assert_same(stepped(lengths), whole)
    assert_same(stepped(lengths, SteppedThroughTorch), whole)


@given(lengths_of_episodes)
@settings(deadline=None)
def test_the_store_holds_what_was_put_in(lengths):
    store = stepped(lengths)
    kept = [(seed, length) for seed, length in enumerate(lengths) if length]
    assert store.episodes == len(kept)
    assert store.transitions == sum(length for _, length in kept)
    assert store.states == store.transitions + store.episodes
    assert store.episode_lengths.tolist() == [length for _, length in kept]
    for stored, (seed, length) in zip(store, kept, strict=True):
        observations, actions, goals = episode(length, seed)
        np.testing.assert_array_equal(stored.observations, observations)
        np.testing.assert_array_equal(stored.actions, actions)
        np.testing.assert_array_equal(stored.achieved_goals, goals)
    final = set(store.last_rows.tolist())
    assert store.transition_rows.tolist() == [row for row in range(store.states) if row not in final]
    assert not store.actions[store.last_rows].any()


@given(lengths_of_episodes, st.data())
@settings(deadline=None)
def test_a_log_of_new_rows_restores_the_store(lengths, data):
    store, restored, logged = TrajectoryStore(**DIMS, capacity=2), TrajectoryStore(**DIMS, capacity=2), 0
    for seed, length in enumerate(lengths):
        observations, actions, goals = episode(length, seed)
        for step in range(length + 1):
            if step == 0:
                store.begin(observations[0], goals[0])
            else:
                store.step(actions[step - 1], observations[step], goals[step])
            if data.draw(st.integers(0, 3)) == 0:
                restored.append_rows(store.rows(logged))
                logged = store.states
                assert_same(store, restored)
    restored.append_rows(store.rows(logged))
    assert_same(store, restored)
    if lengths:  # and the restored store goes on within the open episode
        for each in (store, restored):
            each.step([1.0], [1.0, 2.0, 3.0], [4.0, 5.0])
        assert_same(store, restored)


@given(lengths_of_episodes, st.data())
@settings(deadline=None)
def test_rows_can_be_cut_anywhere(lengths, data):
    store = stepped(lengths)
    cut = data.draw(st.integers(0, store.states))
    pieces = TrajectoryStore(**DIMS)
    pieces.append_rows(store.rows(0, cut))
    pieces.append_rows(store.rows(cut))
    assert_same(store, pieces)


def test_a_begun_episode_without_a_step_does_not_count():
    store = stepped([2, 0])
    assert (store.episodes, store.states) == (1, 3)
    act(store, 3)
    assert (store.episodes, store.states) == (2, 7)
    assert store.episode_of.tolist() == [0, 0, 0, 1, 1, 1, 1]


def test_extending_appends_whole_episodes():
    store, both = stepped([2, 0]), stepped([2, 0, 4, 1])
    store.extend(stepped([2, 0, 4, 1, 0]))
    assert store.episode_lengths.tolist() == [2, 2, 4, 1]
    expected = torch.cat([stepped([2]).observations, both.observations])
    assert torch.equal(store.observations, expected)


def test_moving_keeps_everything():
    store = stepped([2, 3, 0])
    assert store.to("cpu") is store
    if torch.cuda.is_available():
        assert_same(store.to("cuda").to("cpu"), store)


def test_episodes_are_read_only():
    store = stepped([2])
    first = next(iter(store))
    with pytest.raises(ValueError, match="read-only"):
        first.observations[0, 0] = 1
    store.step([0.0], [0.0] * 3, [0.0] * 2)  # which leaves the store itself writable


def test_misuse_is_reported():
    store = TrajectoryStore(**DIMS)
    generator = torch.Generator()
    with pytest.raises(DataError, match="begin"):
        store.step([0.0], [0.0] * 3, [0.0] * 2)
    with pytest.raises(DataError, match="begin"):
        SteppedThroughTorch(**DIMS).step([0.0], [0.0] * 3, [0.0] * 2)
    with pytest.raises(DataError, match="no transitions"):
        store.sample(4, generator)
    with pytest.raises(DataError, match=r"observation has shape \(\)"):
        store.begin(0.0, [0.0] * 2)
    with pytest.raises(DataError, match=r"achieved goal has shape \(3,\) instead of \(2,\)"):
        store.begin([0.0] * 3, [0.0] * 3)
    observations, actions, goals = episode(4)
    with pytest.raises(DataError, match="5 observations"):
        store.add_episode(observations[:-1], actions, goals)
    with pytest.raises(DataError, match="steps, 1"):
        store.add_episode(observations, actions[:, 0], goals)
    with pytest.raises(DataError, match="Rows of actions"):
        store.append_rows(
            TrajectoryStore(3, 2, 2).rows()
            | {"first": torch.ones(1, dtype=torch.bool)}
            | {"observations": torch.zeros(1, 3), "achieved_goals": torch.zeros(1, 2)}
        )
    with pytest.raises(DataError, match="lack actions, first"):
        store.append_rows({"observations": torch.zeros(1, 3), "achieved_goals": torch.zeros(1, 2)})
    assert store.states == 0


def test_sampled_transitions_are_uniform_and_never_leave_an_episode():
    store = stepped([1, 5, 3])
    generator = torch.Generator().manual_seed(0)
    rows = store.sample_rows(90_000, generator)
    counts = torch.bincount(rows, minlength=store.states)
    assert not counts[store.last_rows].any()
    expected = 10_000
    assert (counts[store.transition_rows] - expected).abs().max() < 5 * expected**0.5
    batch = store.transitions_at(rows)
    assert torch.equal(batch.observations, store.observations[rows])
    assert torch.equal(batch.actions, store.actions[rows])
    assert torch.equal(batch.next_observations, store.observations[rows + 1])


def test_the_same_seed_samples_the_same_transitions():
    store = stepped([4, 5])
    one, other = (store.sample(32, torch.Generator().manual_seed(3)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def constant(value, episodes, length):
    store = TrajectoryStore(1, 1, 1)
    for number in range(episodes):
        states = np.full((length + 1, 1), value + number / 1000)
        store.add_episode(states, np.full((length, 1), value), states)
    return store


def test_a_mixture_has_whole_episodes_in_the_wanted_shares():
    sources = [constant(1, 60, 10), constant(2, 40, 15)]
    mixture = mix(sources, [0.25, 0.75], 400, torch.Generator().manual_seed(0))
    source = mixture.actions[mixture.transition_rows].squeeze(1)
    assert (source == 1).sum() == 100
    assert (source == 2).sum() == 300
    for part in mixture:
        assert len(np.unique(part.observations)) == 1
        assert len(part.actions) == (10 if part.actions[0] == 1 else 15)
    assert len({part.observations[0].item() for part in mixture}) == mixture.episodes  # no episode twice


def test_a_mixture_depends_on_the_generator_alone():
    sources = [constant(1, 60, 10), constant(2, 40, 15)]
    a, b, c = (mix(sources, [0.5, 0.5], 200, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert_same(a, b)
    assert not torch.equal(a.observations, c.observations)


def test_a_share_of_nothing_is_left_out():
    mixture = mix([constant(1, 6, 10), constant(2, 4, 15)], [0, 1], 60, torch.Generator())
    assert (mixture.observations >= 2).all()


def test_impossible_mixtures_are_refused():
    one, other = constant(1, 6, 10), TrajectoryStore(2, 1, 1)
    with pytest.raises(DataError, match="60 of the 100"):
        mix([one], [1.0], 100, torch.Generator())
    with pytest.raises(ConfigError, match="sum to one"):
        mix([one, one], [0.5, 0.6], 10, torch.Generator())
    with pytest.raises(ConfigError, match="1 sources"):
        mix([one], [0.5, 0.5], 10, torch.Generator())
    with pytest.raises(DataError, match="dimensions"):
        mix([one, other], [0.5, 0.5], 10, torch.Generator())
