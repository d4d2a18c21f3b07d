"""Small datasets that the tests of the data package share."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from curioplan.data import TrajectoryStore, convert, save_minari
from curioplan.envs.task import Task, Within
from curioplan.errors import DataError

TASK = Task(
    name="field",
    env="none:none",
    observation_dim=4,
    goal_dim=2,
    action_low=(-1.0, -1.0, -2.0),
    action_high=(1.0, 1.0, 2.0),
    episode_length=50,
    success=Within(0.5),
    goal_indices=(0, 1),
)
LENGTHS = [5, 1, 12, 3, 1]
KINDS = ["data", "data.npz", "data.hdf5", "data.h5"]  # a Minari folder, OGBench, D4RL


def make(lengths=LENGTHS, seed=0):
    rng = np.random.default_rng(seed)
    store = TrajectoryStore(4, 2, 3)
    for length in lengths:
        observations = rng.normal(size=(length + 1, 4)).astype(np.float32)
        store.add_episode(observations, rng.uniform(-1, 1, (length, 3)), observations[:, :2])
    return store


def assert_same(one, other):
    for name, rows in one.rows(0, one.states).items():
        assert torch.equal(rows, other.rows(0, other.states)[name]), name


def write(store, path):
    """Any format, by way of a Minari folder."""
    with tempfile.TemporaryDirectory() as folder:
        save_minari(store, Path(folder) / "source", task=TASK)
        convert(Path(folder) / "source", path)


@contextmanager
def refused(*words):
    """Expects a DataError of one sentence with all these words."""
    with pytest.raises(DataError) as caught:
        yield
    message = str(caught.value)
    assert message.endswith(".")
    assert "\n" not in message
    for word in words:
        assert str(word) in message, message


def ogbench_arrays(store):
    terminals = np.zeros(store.states, np.float32)
    terminals[store.last_rows] = 1
    actions = store.actions.numpy().copy()
    actions[store.last_rows] = np.nan  # the action of a final state is never read
    return {"observations": store.observations.numpy(), "actions": actions, "terminals": terminals}


def d4rl_arrays(store):
    rows = store.transition_rows
    return {
        "observations": store.observations[rows].numpy(),
        "actions": store.actions[rows].numpy(),
        "next_observations": store.observations[rows + 1].numpy(),
        "rewards": np.full(len(rows), np.nan),
        "terminals": np.zeros(len(rows), bool),
        "timeouts": np.isin(rows + 1, store.last_rows),
    }


def write_hdf5(path, arrays):
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array
