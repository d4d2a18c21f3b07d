"""The files of other benchmarks: OGBench's ``.npz`` and D4RL's ``.hdf5``.

Achieved goals are no part of these formats. The writers add them under names of their own, which other
readers pass over, so that no task is needed to read the files back.
"""

from __future__ import annotations

import io
import logging
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from curioplan.data.files import reading, replacing
from curioplan.data.hdf5 import Hdf5Reader, hdf5_writer
from curioplan.data.trajectories import TrajectoryStore
from curioplan.data.validation import RawTrajectories
from curioplan.errors import DataError

_log = logging.getLogger(__name__)


def read_ogbench(path: Path) -> RawTrajectories:
    """An OGBench file: one row per state, of which ``terminals`` marks the last of each trajectory."""
    with reading(path, "an OGBench file"), path.open("rb") as raw, NpzFile(raw, allow_pickle=False) as file:
        for name in ("observations", "actions", "terminals"):
            if name not in file:
                raise DataError(f"{path} has no {name}.")
        observations = file["observations"]
        ends = _flags(file["terminals"], len(observations), "terminals", path)
        goals = file.get("achieved_goals")
        return RawTrajectories(str(path), observations, file["actions"], _lengths(ends), goals)


def write_ogbench(store: TrajectoryStore, path: Path, *, overwrite: bool = False) -> None:
    """Writes an OGBench file."""
    terminals = np.zeros(store.states, bool)
    terminals[store.last_rows.cpu()] = True
    with replacing(path, overwrite=overwrite, replaceable=Path.is_file) as fresh:
        # In memory first: a zip archive that cannot be finished complains again when it is collected.
        buffer = io.BytesIO()
        np.savez_compressed(
            buffer,
            observations=store.observations.cpu().numpy(),
            actions=store.actions.cpu().numpy(),
            terminals=terminals,
            achieved_goals=store.achieved_goals.cpu().numpy(),
        )
        fresh.write_bytes(buffer.getbuffer())


def read_d4rl(path: Path) -> RawTrajectories:
    """A D4RL-style file: one row per transition, and ``terminals`` or ``timeouts`` that end episodes.

    With ``next_observations`` the final state of an episode is known; episodes then also end where the next
    observation is not the one of the following row. Without, the last row serves as the final state, and its
    action is lost.
    """
    with reading(path, "a D4RL file"), Hdf5Reader(path) as file:
        observations, actions = file.read("observations"), file.read("actions")
        count = len(observations)
        ends = _flags(file.read("terminals"), count, "terminals", path)
        if "timeouts" in file:
            ends |= _flags(file.read("timeouts"), count, "timeouts", path)
        goals = file.read("achieved_goals") if "achieved_goals" in file else None
        if "next_observations" not in file:
            return RawTrajectories(str(path), observations, actions, _lengths(ends), goals)
        following = file.read("next_observations")
        if not following.shape == observations.shape or len(actions) != count or count == 0:
            raise DataError(
                f"{path}: observations, actions and next_observations have shapes {observations.shape}, "
                f"{actions.shape} and {following.shape}."
            )
        jumps = (following[:-1] != observations[1:]).reshape(count - 1, -1).any(1) & ~ends[:-1]
        if jumps.any():
            _log.warning("%s: %d episodes end without a terminal or timeout.", path, int(jumps.sum()))
            ends[:-1] |= jumps
        last = np.flatnonzero(_closed(ends))
        if goals is not None:
            goals = np.insert(goals, last + 1, file.read("next_achieved_goals")[last], axis=0)
        return RawTrajectories(
            source=str(path),
            observations=np.insert(observations, last + 1, following[last], axis=0),
            actions=np.insert(actions, last + 1, 0, axis=0),
            lengths=_lengths(ends) + 1,
            achieved_goals=goals,
        )


def write_d4rl(store: TrajectoryStore, path: Path, *, overwrite: bool = False) -> None:
    """Writes a D4RL-style file, with next observations and a timeout at the end of every episode."""
    rows = store.transition_rows
    timeouts = np.isin((rows + 1).cpu().numpy(), store.last_rows.cpu().numpy())
    arrays = {
        "observations": store.observations[rows],
        "actions": store.actions[rows],
        "next_observations": store.observations[rows + 1],
        "achieved_goals": store.achieved_goals[rows],
        "next_achieved_goals": store.achieved_goals[rows + 1],
    }
    flags = {
        "rewards": np.zeros(len(rows), np.float32),
        "terminals": np.zeros(len(rows), bool),
        "timeouts": timeouts,
    }
    with (
        replacing(path, overwrite=overwrite, replaceable=Path.is_file) as fresh,
        hdf5_writer(fresh) as file,
    ):
        for name, values in (arrays | flags).items():
            data = values if isinstance(values, np.ndarray) else values.cpu().numpy()
            file.create_dataset(name, data=data, compression="gzip", compression_opts=1, fletcher32=True)


def _flags(values: NDArray[Any], count: int, name: str, path: Path) -> NDArray[np.bool_]:
    """Booleans, one per row, from any numbers that are 0 or 1."""
    if values.shape not in ((count,), (count, 1)):
        raise DataError(f"{path}: {name} have shape {values.shape} for {count} observations.")
    if values.dtype.kind not in "fiub" or not np.isin(values, (0, 1)).all():
        raise DataError(f"{path}: {name} hold something other than 0 and 1.")
    return values.reshape(count).astype(bool)


def _closed(ends: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The same, with the last row an end: what follows the last boundary is a shorter episode."""
    closed = ends.copy()
    closed[-1:] = True
    return closed


def _lengths(ends: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The rows of each episode."""
    return np.diff(np.flatnonzero(_closed(ends)), prepend=-1).astype(np.int64)
