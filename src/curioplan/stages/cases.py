"""Which goals to evaluate on: the task's own cases, goals from a file, or goals that the data achieve."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from curioplan.data import TrajectoryStore
from curioplan.envs import Case, Task
from curioplan.errors import ConfigError, DataError
from curioplan.options import nearest
from curioplan.seeding import seed_for

KEYS = ("goal", "state", "name")


def choose_cases(spec: str, task: Task, data: Callable[[], TrajectoryStore], seed: int = 0) -> list[Case]:
    """The cases that are meant.

    Args:
        spec: Empty for all cases of the task; a file ending in ``.json``, see :func:`read_cases`; or a list
            separated by commas, of names of the task's cases, ``own`` for all of them, and ``random:N`` for
            goals achieved by N random states of the data, from the start of the task's first case.
        task: The task.
        data: Loads the data, if they are needed.
        seed: Draws the random goals.

    Raises:
        ConfigError: There is no such case, or none at all.
        DataError: The file is missing, damaged, or does not fit the task.
    """
    if spec.strip().endswith(".json"):
        return read_cases(Path(spec.strip()), task)
    chosen: list[Case] = []
    for part in _parts(spec.strip() or "own"):
        if part.startswith("random:"):
            chosen += _random_cases(part.removeprefix("random:"), task, data, seed)
        elif not task.cases:
            raise ConfigError(f"{task.name} has no cases of its own: name a file of goals, or random:20.")
        else:
            own = list(task.cases)
            chosen += own if part == "own" else named_cases(part, own, task.name)
    return list({case.name: case for case in chosen}.values())


def named_cases(names: str, cases: list[Case], where: str) -> list[Case]:
    """Some of the cases, by their names separated by commas; commas within brackets belong to a name."""
    known = {case.name: case for case in cases}
    chosen = _parts(names)
    for name in chosen:
        if name not in known:
            raise ConfigError(f"There is no case {name!r} in {where}{nearest(name, list(known))}")
    return [known[name] for name in dict.fromkeys(chosen)]


def _parts(names: str) -> list[str]:
    return [name.strip() for name in re.split(r",(?![^(]*\))", names)]


def read_cases(path: Path, task: Task) -> list[Case]:
    """The cases of a JSON file: a list of goals, or of objects with goal, state and name.

    State and name are optional: a case without a state starts as the task's first case does.

    Raises:
        DataError: The file is missing, damaged, or does not fit the task.
    """
    try:
        entries = json.loads(path.read_bytes())
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror or error}.") from error
    except (ValueError, RecursionError):
        raise DataError(f"{path} is not valid JSON; a list of goals is expected.") from None
    if not isinstance(entries, list) or not entries:
        raise DataError(f"{path} must hold a list of goals, or of objects with a goal each.")
    start = task.cases[0] if task.cases else Case("")
    cases = [
        _read_case(entry, start, task, f"entry {number} of {path}", f"goal {number}")
        for number, entry in enumerate(entries, start=1)
    ]
    names = [case.name for case in cases]
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"{path} has two cases named {name!r}; give each a name of its own.")
    return cases


def case_key(case: Case) -> int:
    """A number that depends on the name and the contents of a case, to draw its random streams from."""
    return zlib.crc32(json.dumps(astuple(as_floats(case))).encode())


def as_floats(case: Case) -> Case:
    """A case whose numbers are floats, whether they were written as integers or not."""

    def floats(numbers: tuple[float, ...] | None) -> tuple[float, ...] | None:
        return None if numbers is None else tuple(map(float, numbers))

    return replace(case, goal=floats(case.goal), state=floats(case.state), jitter=floats(case.jitter))


def _random_cases(count: str, task: Task, data: Callable[[], TrajectoryStore], seed: int) -> list[Case]:
    if not re.fullmatch(r"0*[1-9]\d{0,6}", count):
        raise ConfigError(f"random: is followed by how many goals are wanted, as random:20, not {count!r}.")
    store = data()
    if int(count) > store.states:
        raise ConfigError(f"The data have only {store.states} states to draw {count} goals from.")
    generator = torch.Generator().manual_seed(seed_for(seed, "random goals"))
    rows = torch.randperm(store.states, generator=generator)[: int(count)]
    start = task.cases[0] if task.cases else Case("")
    return [
        replace(start, name=f"random {number}", goal=tuple(goal))
        for number, goal in enumerate(store.achieved_goals[rows].double().tolist(), start=1)
    ]


def _read_case(entry: Any, start: Case, task: Task, where: str, name: str) -> Case:
    entry = entry if isinstance(entry, dict) else {"goal": entry}
    for key in entry:
        if key not in KEYS:
            raise DataError(f"In {where} there is {key!r}, where {', '.join(KEYS)} are known.")
    if "goal" not in entry:
        raise DataError(f"In {where} there is no goal.")
    name = entry.get("name", name)
    if not isinstance(name, str) or not name.strip():
        raise DataError(f"In {where} the name must be text, not {name!r}.")
    goal = _vector(entry["goal"], task.goal_dim, f"the goal in {where}")
    if "state" not in entry:
        return replace(start, name=name, goal=goal)
    return Case(name, goal, _vector(entry["state"], task.observation_dim, f"the state in {where}"))


def _vector(value: Any, size: int, what: str) -> tuple[float, ...]:
    numbers = isinstance(value, list) and all(
        isinstance(x, int | float) and not isinstance(x, bool) for x in value
    )
    if not numbers or len(value) != size or not all(abs(x) < np.finfo(np.float32).max for x in value):
        raise DataError(f"{what[0].upper()}{what[1:]} must be a list of {size} finite numbers.")
    return tuple(map(float, value))
