"""Minari datasets: the format in which the package keeps its own data."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import minari
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from minari.dataset.minari_dataset import parse_dataset_id
from minari.dataset.minari_storage import METADATA_FILE_NAME, MinariStorage
from numpy.typing import NDArray

from curioplan.data.files import reading, replacing
from curioplan.data.hdf5 import Hdf5Reader, hdf5_writer
from curioplan.data.trajectories import TrajectoryStore
from curioplan.data.validation import RawTrajectories
from curioplan.envs.task import Task
from curioplan.errors import DataError

_MAIN_FILE = "main_data.hdf5"
_CHUNK_ROWS = 4096  # an episode in one piece, unless it is very long


def save_minari(
    store: TrajectoryStore,
    path: str | Path,
    *,
    task: Task | None = None,
    env_spec: EnvSpec | None = None,
    dataset_id: str | None = None,
    description: str = "",
    algorithm: str = "",
    overwrite: bool = False,
) -> None:
    """Writes a store as a Minari dataset: all of it, or nothing.

    The folder opens with ``minari.MinariDataset(path)``. Written to ``<dataset_id>/data`` below the root of
    local Minari datasets, it also opens by its id. Observations are dictionaries of ``observation`` and
    ``achieved_goal``; rewards are zero, as relabelling provides them; every episode ends truncated.

    Args:
        store: What to write.
        path: The folder to make.
        task: Gives the bounds of actions, and a name; without it actions are unbounded.
        env_spec: The Gymnasium spec that Minari recovers the environment from.
        dataset_id: Minari's name for the dataset, ``namespace/name-v0``; by default after the task or folder.
        description: What the data is, for readers of the metadata.
        algorithm: What collected the data, for readers of the metadata.
        overwrite: Whether to replace a Minari dataset that is there already.
    """
    path = Path(path)
    if not store.transitions:
        raise DataError(f"There are no transitions to write to {path}.")
    if task is not None and task.action_dim != store.action_dim:
        raise DataError(
            f"Actions have {store.action_dim} dimensions, but those of {task.name} have {task.action_dim}."
        )
    name = dataset_id or _default_id(task.name if task is not None else path.name)
    try:
        parse_dataset_id(name)
    except (ValueError, TypeError) as error:
        raise DataError(f"Minari ids have the form namespace/name-v0, unlike {name}.") from error
    with replacing(path, overwrite=overwrite, replaceable=is_minari) as folder:
        storage = MinariStorage.new(folder, *_spaces(store, task), env_spec)
        _write_episodes(store, folder / _MAIN_FILE)
        storage.update_metadata(
            {
                "total_episodes": store.episodes,
                "total_steps": store.transitions,
                "dataset_size": float(storage.get_size()),
                "dataset_id": name,
                "minari_version": minari.__version__,
                "description": description,
                "algorithm_name": algorithm,
            }
        )


def is_minari(path: Path) -> bool:
    """Whether a folder looks like a Minari dataset."""
    return (path / METADATA_FILE_NAME).is_file()


def read_minari(folder: Path) -> RawTrajectories:
    """The trajectories of a Minari dataset, with ``achieved_goal`` where observations have it as an array."""
    with reading(folder, "a Minari dataset"):
        metadata = json.loads((folder / METADATA_FILE_NAME).read_text())
        episodes = int(metadata["total_episodes"])
        if episodes < 1:
            raise DataError(f"{folder} holds no episodes.")
        if metadata["data_format"] == "hdf5":
            return _assemble(folder, episodes, int(metadata["total_steps"]), _read_hdf5(folder, episodes))
        dataset = minari.MinariDataset(folder)
        return _assemble(folder, episodes, int(metadata["total_steps"]), _read_other(dataset, folder))


_Parts = tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]  # observations, actions, achieved goals


def _read_hdf5(folder: Path, episodes: int) -> Iterator[_Parts]:
    """Straight from the file: several times as fast as Minari's reader, which decodes all there is."""
    with Hdf5Reader(folder / _MAIN_FILE) as file:
        nested = file.is_group("episode_0/observations")
        with_goal = nested and "episode_0/observations/achieved_goal" in file
        with_goal = with_goal and not file.is_group("episode_0/observations/achieved_goal")
        for number in range(episodes):
            episode = f"episode_{number}"
            yield (
                file.read(f"{episode}/observations/observation" if nested else f"{episode}/observations"),
                file.read(f"{episode}/actions"),
                file.read(f"{episode}/observations/achieved_goal") if with_goal else None,
            )


def _read_other(dataset: minari.MinariDataset, folder: Path) -> Iterator[_Parts]:
    """Through Minari, whatever the storage behind it."""
    for episode in dataset:
        observations, goals = episode.observations, None
        if isinstance(observations, dict):
            goals = observations.get("achieved_goal")
            if "observation" not in observations:
                raise DataError(f"{folder} has no observations/observation.")
            observations = observations["observation"]
        yield np.asarray(observations), np.asarray(episode.actions), goals


def _assemble(folder: Path, episodes: int, steps: int, parts: Iterator[_Parts]) -> RawTrajectories:
    """All episodes one after the other, once their numbers of steps are what the metadata says."""
    observations, actions, goals, lengths = [], [], [], []
    for number, (states, taken, achieved) in enumerate(parts):
        if states.ndim != 2 or taken.ndim != 2:
            raise DataError(
                f"{folder}: observations and actions of episode {number} are not vectors, "
                f"but of shape {states.shape[1:]} and {taken.shape[1:]}."
            )
        if len(states) != len(taken) + 1:
            raise DataError(
                f"{folder}: episode {number} has {len(states)} observations for {len(taken)} actions."
            )
        observations.append(states)
        actions += [taken, np.zeros((1, taken.shape[1]), taken.dtype)]
        lengths.append(len(states))
        if isinstance(achieved, np.ndarray):
            goals.append(achieved)
    if len(lengths) != episodes or sum(lengths) - len(lengths) != steps:
        raise DataError(
            f"{folder} has {len(lengths)} episodes of {sum(lengths) - len(lengths)} steps, "
            f"but its metadata says {episodes} of {steps}."
        )
    return RawTrajectories(
        source=str(folder),
        observations=np.concatenate(observations),
        actions=np.concatenate(actions),
        lengths=np.array(lengths, np.int64),
        achieved_goals=np.concatenate(goals) if goals else None,
    )


def _default_id(name: str) -> str:
    return f"curioplan/{re.sub(r'[^-_a-zA-Z0-9]+', '-', name) or 'dataset'}-v0"


def _spaces(store: TrajectoryStore, task: Task | None) -> tuple[spaces.Space[Any], spaces.Space[Any]]:
    """The spaces of observations and actions."""

    def unbounded(dim: int) -> spaces.Box:
        return spaces.Box(-np.inf, np.inf, (dim,), np.float32)

    observation = spaces.Dict(
        observation=unbounded(store.observation_dim), achieved_goal=unbounded(store.goal_dim)
    )
    if task is None:
        return observation, unbounded(store.action_dim)
    low, high = np.array(task.action_low, np.float32), np.array(task.action_high, np.float32)
    return observation, spaces.Box(low, high, dtype=np.float32)


def _write_episodes(store: TrajectoryStore, path: Path) -> None:
    """The file behind a Minari dataset, laid out as Minari does, with checksums and twice as fast."""
    with hdf5_writer(path) as file:
        for number, episode in enumerate(store):
            steps = len(episode.actions)
            group = file.create_group(f"episode_{number}")
            group.attrs["id"] = number
            group.attrs["total_steps"] = steps
            arrays = {
                "observations/observation": episode.observations,
                "observations/achieved_goal": episode.achieved_goals,
                "actions": episode.actions,
                "rewards": np.zeros(steps, np.float32),
                "terminations": np.zeros(steps, bool),
                "truncations": np.arange(steps) == steps - 1,
            }
            for name, array in arrays.items():
                chunks = (min(len(array), _CHUNK_ROWS), *array.shape[1:])
                group.create_dataset(name, data=array, chunks=chunks, fletcher32=True)
