"""Trajectories from outside are checked before anything relies on them."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest
import torch

from curioplan.data import RawTrajectories, validate
from trajectory_samples import TASK, assert_same, make, refused


def raw(**changes):
    store = make()
    fields = {
        "source": "the file",
        "observations": store.observations.numpy().copy(),
        "actions": store.actions.numpy().copy(),
        "lengths": store.episode_lengths.numpy() + 1,
    }
    return RawTrajectories(**(fields | changes))


def test_integers_and_doubles_become_floats():
    observations = np.arange(4 * make().states).reshape(-1, 4)
    for dtype in (np.int64, np.uint8, np.float64, np.float16):
        store = validate(raw(observations=observations.astype(dtype)), TASK)
        assert torch.equal(store.observations, torch.tensor(observations.astype(dtype).astype(np.float32)))


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
@pytest.mark.parametrize("field", ["observations", "actions", "achieved_goals"])
def test_what_is_not_finite_is_found(field, value):
    arrays = {"achieved_goals": make().achieved_goals.numpy()}
    arrays[field] = np.array(arrays.get(field, getattr(raw(), field)), np.float64)
    arrays[field][10, 1] = value  # the third row of the third episode, which begins at row 8
    with refused("the file", field.replace("_", " "), "episode 2, row 2"):
        validate(raw(**arrays), TASK)


def test_the_action_of_a_final_state_does_not_matter():
    actions = raw().actions
    actions[make().last_rows] = np.nan
    assert_same(validate(raw(actions=actions), TASK), make())


def test_misfits_are_named_with_both_numbers():
    with refused("observations have 4 dimensions", "field have 6"):
        validate(raw(), replace(TASK, observation_dim=6))
    with refused("actions have 3 dimensions", "field have 1"):
        validate(raw(), replace(TASK, action_low=(-1.0,), action_high=(1.0,)))
    with refused("achieved goals have 2 dimensions", "field have 5"):
        validate(raw(achieved_goals=make().achieved_goals.numpy()), replace(TASK, goal_dim=5))
    with refused("no part of its observations"):
        validate(raw(), replace(TASK, goal_indices=None))


def test_actions_beyond_the_bounds_are_refused_but_for_rounding():
    actions = raw().actions
    actions[9, 0] = 1.0005
    validate(raw(actions=actions), TASK)
    actions[9, 0] = -1.5
    with refused("action -1.5 in episode 2, row 1, dimension 0", "-1 to 1"):
        validate(raw(actions=actions), TASK)
    assert validate(raw(actions=actions, achieved_goals=actions)).transitions == 22


def test_inconsistent_trajectories_are_refused():
    lengths = raw().lengths
    for changes in (
        {"lengths": lengths + 1},
        {"lengths": np.append(lengths, 0)},
        {"actions": raw().actions[:-1]},
        {"achieved_goals": raw().observations[:-1, :2]},
        {"observations": raw().observations[:, 0]},
        {"observations": raw().observations.astype(str)},
        {"observations": raw().observations.astype(object)},
        {"actions": raw().actions.astype(complex)},
    ):
        with refused("the file"):
            validate(raw(**changes), TASK)


def test_single_states_are_dropped_and_counted(caplog):
    observations = np.concatenate([raw().observations[:2], raw().observations, raw().observations[:1]])
    actions = np.concatenate([raw().actions[:2], raw().actions, raw().actions[:1]])
    lengths = np.array([1, 1, *raw().lengths, 1])
    with caplog.at_level(logging.WARNING):
        store = validate(raw(observations=observations, actions=actions, lengths=lengths), TASK)
    assert_same(store, make())
    assert not store._begun
    assert "3 episodes of a single state were dropped" in caplog.text
    with refused("no transitions"):
        validate(raw(lengths=np.ones(len(raw().actions), np.int64)), TASK)
