"""Trajectories from outside, checked before anything relies on them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from curioplan.data.trajectories import TrajectoryStore
from curioplan.envs.task import Task
from curioplan.errors import DataError, EnvError

_log = logging.getLogger(__name__)

ACTION_TOLERANCE = 1e-3
"""How far beyond the task's bounds an action may lie, to allow for rounding in files."""


@dataclass(frozen=True)
class RawTrajectories:
    """Trajectories as a file holds them: one row per state, unchecked.

    There are no rewards: they come from relabelling, so those of a file are never read, be they NaN.

    Attributes:
        source: What to call them in messages.
        observations: Of all states of all episodes, in order.
        actions: As many rows; those of final states are ignored.
        lengths: How many states each episode has.
        achieved_goals: As many rows as observations, or ``None`` where the file has none.
    """

    source: str
    observations: NDArray[Any]
    actions: NDArray[Any]
    lengths: NDArray[np.int64]
    achieved_goals: NDArray[Any] | None = None


def validate(raw: RawTrajectories, task: Task | None = None) -> TrajectoryStore:
    """The store of these trajectories, or a :class:`DataError` that says what is wrong and where.

    Floats and integers become float32. Episodes of a single state hold no transition: they are dropped, with
    a warning in the log. Missing achieved goals are read off the observations, which takes a task.
    """
    name, lengths = raw.source, raw.lengths
    observations = _floats(raw.observations, "observations", name)
    actions = _floats(raw.actions, "actions", name)
    states = int(lengths.sum())
    if not len(observations) == len(actions) == states or (lengths < 1).any():
        raise DataError(
            f"{name} has {len(observations)} observations and {len(actions)} actions for {states} states "
            f"in {len(lengths)} episodes."
        )
    if task is not None:
        _check_dim(observations, task.observation_dim, "observations", task, name)
        _check_dim(actions, task.action_dim, "actions", task, name)
    goals = _goals(raw, observations, task)
    if len(goals) != states:
        raise DataError(f"{name} has {len(goals)} achieved goals for {states} observations.")
    single = lengths == 1
    if single.all():
        raise DataError(f"{name} holds no transitions.")
    if single.any():
        _log.warning("%s: %d episodes of a single state were dropped.", name, int(single.sum()))
    last = np.cumsum(lengths) - 1
    actions[last] = 0
    _check_finite({"observations": observations, "actions": actions, "achieved goals": goals}, lengths, name)
    if task is not None:
        _check_bounds(actions, lengths, task, name)
    first = np.zeros(states, bool)
    first[last - lengths + 1] = True
    led = np.roll(actions, 1, axis=0)  # final states have action zero, so first states are led to by zero
    store = TrajectoryStore(observations.shape[1], goals.shape[1], actions.shape[1], capacity=states)
    rows = {"observations": observations, "achieved_goals": goals, "actions": led, "first": first}
    keep = np.repeat(~single, lengths)
    store.append_rows({field: torch.from_numpy(array[keep]) for field, array in rows.items()})
    return store


def _floats(array: NDArray[Any], field: str, source: str) -> NDArray[np.float32]:
    """A float32 copy of rows of numbers."""
    if array.dtype.kind not in "fiu":
        raise DataError(f"{source}: {field} are of type {array.dtype}, not numbers.")
    if array.ndim != 2 or array.shape[1] == 0:
        raise DataError(f"{source}: {field} have shape {array.shape}, not (rows, dimensions).")
    with np.errstate(over="ignore", invalid="ignore"):  # what does not fit becomes infinite, and is reported
        return array.astype(np.float32)


def _check_dim(array: NDArray[Any], expected: int, field: str, task: Task, source: str) -> None:
    if array.shape[1] != expected:
        raise DataError(
            f"{source}: {field} have {array.shape[1]} dimensions, but those of {task.name} have {expected}."
        )


def _goals(raw: RawTrajectories, observations: NDArray[np.float32], task: Task | None) -> NDArray[np.float32]:
    """The achieved goals, from the file or else from the task."""
    if raw.achieved_goals is not None:
        goals = _floats(raw.achieved_goals, "achieved goals", raw.source)
        if task is not None:
            _check_dim(goals, task.goal_dim, "achieved goals", task, raw.source)
        return goals
    if task is None:
        raise DataError(
            f"{raw.source} holds no achieved goals: pass the environment it comes from, which knows them."
        )
    try:
        return task.goal_of(observations)
    except EnvError as error:
        raise DataError(
            f"{raw.source} holds no achieved goals, and those of {task.name} are no part of its observations."
        ) from error


def _where(row: int, lengths: NDArray[np.int64]) -> str:
    """The place of a row, for messages."""
    ends = np.cumsum(lengths)
    episode = int(np.searchsorted(ends, row, side="right"))
    return f"episode {episode}, row {row - int(ends[episode] - lengths[episode])}"


def _check_finite(fields: dict[str, NDArray[np.float32]], lengths: NDArray[np.int64], source: str) -> None:
    for field, array in fields.items():
        bad = ~np.isfinite(array).all(1)
        if bad.any():
            place = _where(int(bad.argmax()), lengths)
            raise DataError(
                f"{source}: {field} hold NaN or infinity in {place} ({int(bad.sum())} rows in all)."
            )


def _check_bounds(actions: NDArray[np.float32], lengths: NDArray[np.int64], task: Task, source: str) -> None:
    low, high = np.array(task.action_low), np.array(task.action_high)
    taken = np.ones(len(actions), bool)
    taken[np.cumsum(lengths) - 1] = False  # final states have no action
    beyond = np.maximum(low - actions, actions - high)
    bad = (beyond > ACTION_TOLERANCE).any(1) & taken
    if bad.any():
        row = int(bad.argmax())
        column = int(beyond[row].argmax())
        raise DataError(
            f"{source}: action {actions[row, column]:.4g} in {_where(row, lengths)}, dimension {column}, is "
            f"outside the bounds {low[column]:g} to {high[column]:g} of {task.name}."
        )
