"""Episodes of a controller: cases run in one batch, and what became of each."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from curioplan.envs import Case, Task, make_env
from curioplan.envs.task import Observation
from curioplan.errors import EnvError
from curioplan.planning import PlanReport
from curioplan.seeding import seed_for
from curioplan.stages.cases import as_floats, case_key
from curioplan.stages.control import Controller, PlanningController

SHOWN_ELITES = 5  # imagined trajectories kept of each plan, for pictures
TENSORS = ("observations", "actions", "achieved_goals", "plan_steps", "plans")


@dataclass(frozen=True, eq=False)
class Outcome:
    """What became of one case.

    Attributes:
        case: The case.
        seed: The seed of everything random in it.
        goal: What was to be achieved.
        steps: Steps until it was, 0 if it was at the start; ``None`` if it never was.
        path_length: Length of the way taken, on the map where there is one, else of the achieved goal.
        seconds: Time the controller took; that of a batch is shared evenly among its episodes.
        observations: ``(steps + 1, observation)``.
        actions: ``(steps, action)``.
        achieved_goals: ``(steps + 1, goal)``.
        plan_steps: ``(plans,)``: on a map, the steps at which plans were made.
        plans: ``(plans, elites, H + 1, 2)``: the positions that the best of each plan imagined.
    """

    case: Case
    seed: int
    goal: tuple[float, ...]
    steps: int | None
    path_length: float
    seconds: float
    observations: Tensor
    actions: Tensor
    achieved_goals: Tensor
    plan_steps: Tensor
    plans: Tensor

    @property
    def success(self) -> bool:
        """Whether the goal was achieved at any step, the start included."""
        return self.steps is not None

    @property
    def rate(self) -> float | None:
        """Actions per second of the controller's time; ``None`` where nothing had to be done."""
        return len(self.actions) / self.seconds if len(self.actions) and self.seconds else None

    def record(self) -> dict[str, Any]:
        """Everything but the tensors, as JSON."""
        return {
            "case": asdict(as_floats(self.case)),
            "seed": self.seed,
            "goal": list(self.goal),
            "steps": self.steps,
            "path_length": self.path_length,
            "seconds": self.seconds,
        }

    def tensors(self) -> dict[str, Tensor]:
        """The tensors, by name."""
        return {name: getattr(self, name) for name in TENSORS}

    @classmethod
    def restore(cls, record: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Outcome:
        """The inverse of `record` and `tensors`."""
        case: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in record["case"].items()
        }
        content: dict[str, Any] = {**record, **tensors, "case": Case(**case), "goal": tuple(record["goal"])}
        return cls(**content)


def run_cases(
    controller: Controller, task: Task, cases: Sequence[Case], seed: int = 0, *, bar: tqdm | None = None
) -> list[Outcome]:
    """Run cases in one batch, each until its goal is achieved or its time is up.

    All that is random in a case depends on the seed and the case alone, so it does not matter which others
    are run beside it, or in what order.

    Args:
        controller: What acts.
        task: The task; every case gets an environment of its own.
        cases: The cases.
        seed: The seed of everything random.
        bar: A progress bar to advance by one for every case that is over.
    """
    with ExitStack() as stack:
        episodes = []
        for case in cases:
            env = stack.enter_context(closing(make_env(task.env)))
            episodes.append(_Episode(env, task, case, seed))
            if bar is not None:
                bar.update(episodes[-1].over)
        goals = torch.from_numpy(np.stack([episode.goal for episode in episodes])).float()
        controller.reset(goals, [seed_for(seed, "planner", case_key(case)) for case in cases])
        report: PlanReport | None = None
        while running := [slot for slot, episode in enumerate(episodes) if not episode.over]:
            states = np.stack([episodes[slot].observations[-1] for slot in running])
            began = time.perf_counter()
            actions = controller.act(torch.from_numpy(states).float(), running)
            share = (time.perf_counter() - began) / len(running)
            made = controller.planner.report if isinstance(controller, PlanningController) else None
            if made is not report and made is not None and task.floor_plan is not None:
                for slot, elites in zip(made.slots.tolist(), made.elite_states, strict=True):
                    episodes[slot].remember(elites)
            report = made
            for slot, action in zip(running, actions.numpy(), strict=True):
                episodes[slot].step(action, share)
            if bar is not None:
                bar.update(sum(episodes[slot].over for slot in running))
                furthest = max(len(episodes[slot].actions) for slot in running)
                bar.set_postfix_str(f"step {furthest} of {task.episode_length}", refresh=False)
        return [episode.outcome() for episode in episodes]


def begin_case(env: gym.Env, case: Case, seed: int) -> Observation:
    """Reset an environment to the start of a case; the same case and seed give the same start.

    Raises:
        EnvError: The environment does not take the goal it is given.
    """
    key = case_key(case)
    options = case.options(np.random.default_rng(seed_for(seed, "jitter", key)))
    seen, _ = env.reset(seed=seed_for(seed, "environment", key) % 2**31, options=options or None)
    if "goal" in options and not np.allclose(seen["desired_goal"], options["goal"], atol=1e-6):
        raise EnvError(
            "The environment does not take the goal that reset is given, so cases with goals cannot be run; "
            "curioplan check-env tells more."
        )
    return {name: np.asarray(value, np.float64) for name, value in seen.items()}


def replay(env: gym.Env, outcome: Outcome) -> Iterator[Observation]:
    """Live through an episode again, step by step: all its observations, the first included."""
    yield begin_case(env, outcome.case, outcome.seed)
    for action in outcome.actions.numpy():
        yield env.step(action)[0]


@dataclass
class _Episode:
    """An episode that is under way."""

    env: gym.Env
    task: Task
    case: Case
    seed: int
    seconds: float = 0.0
    steps: int | None = None
    over: bool = False
    observations: list[NDArray[Any]] = field(default_factory=list)
    actions: list[NDArray[Any]] = field(default_factory=list)
    achieved_goals: list[NDArray[Any]] = field(default_factory=list)
    plans: dict[int, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Start."""
        seen = begin_case(self.env, self.case, self.seed)
        self.goal = seen["desired_goal"]
        self._see(seen)

    def step(self, action: NDArray[Any], seconds: float) -> None:
        """Take an action that took so long to find."""
        action = np.clip(action, self.task.action_low, self.task.action_high).astype(np.float32)
        seen, _, terminated, truncated, _ = self.env.step(action)
        self.actions.append(action)
        self.seconds += seconds
        self.over = terminated or truncated or len(self.actions) >= self.task.episode_length
        self._see(seen)

    def remember(self, elites: Tensor) -> None:
        """Keep where a plan (elites, H + 1, observation) leads."""
        self.plans[len(self.actions)] = elites[:SHOWN_ELITES, :, :2].to("cpu", copy=True)

    def outcome(self) -> Outcome:
        """What became of it."""
        observations, achieved_goals = np.stack(self.observations), np.stack(self.achieved_goals)
        path = achieved_goals if self.task.floor_plan is None else observations[:, :2]
        none = torch.zeros(0, 0, 0, 2)
        return Outcome(
            self.case,
            self.seed,
            tuple(self.goal.tolist()),
            self.steps,
            float(np.linalg.norm(np.diff(path, axis=0), axis=1).sum()),
            self.seconds,
            torch.from_numpy(observations).float(),
            torch.from_numpy(np.array(self.actions, np.float32).reshape(-1, self.task.action_dim)),
            torch.from_numpy(achieved_goals).float(),
            torch.tensor(list(self.plans), dtype=torch.int64),
            torch.stack(list(self.plans.values())) if self.plans else none,
        )

    def _see(self, seen: Observation) -> None:
        """Take in an observation; achieving the goal ends the episode."""
        achieved = np.array(seen["achieved_goal"], np.float64)
        self.observations.append(np.array(seen["observation"], np.float64))
        self.achieved_goals.append(achieved)
        if bool(self.task.success(achieved, self.goal)):
            self.steps, self.over = len(self.actions), True
