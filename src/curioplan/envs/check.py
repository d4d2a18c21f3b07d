"""What an environment of the user's needs to work here: checked, told in plain words, and derived."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from curioplan.envs.task import Array, Case, Task
from curioplan.errors import EnvError

KEYS = ("observation", "achieved_goal", "desired_goal")
PROBE_STEPS = 50
DERIVED_CASES = 20

Level = Literal["ok", "note", "missing"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: fine, worth knowing, or missing (the environment will not work)."""

    level: Level
    text: str


@dataclass(frozen=True)
class RewardSuccess:
    """Success read off a goal environment's reward: as much as for being exactly at the goal.

    This is right for sparse rewards of either convention (−1/0 or 0/1); with a dense reward only the
    exact goal counts, which ``check_env`` points out.
    """

    env: gym.Env

    def __call__(self, achieved: Array, desired: Array) -> Array:
        """Booleans of the broadcast leading shape."""
        if not isinstance(achieved, np.ndarray):
            import torch

            result = self(achieved.detach().cpu().numpy(), desired.detach().cpu().numpy())
            return torch.as_tensor(result, device=achieved.device)
        achieved, desired = np.broadcast_arrays(achieved, desired)
        return self._reward(achieved, desired) >= self._reward(desired, desired) - 1e-9

    def _reward(self, achieved: NDArray[Any], desired: NDArray[Any]) -> NDArray[Any]:
        compute = self.env.get_wrapper_attr("compute_reward")
        reward = np.asarray(compute(achieved, desired, {}), dtype=np.float64)
        leading = achieved.shape[:-1]
        if reward.shape == leading:
            return reward
        # Not written for batches: one at a time.
        pairs = zip(
            achieved.reshape(-1, achieved.shape[-1]), desired.reshape(-1, desired.shape[-1]), strict=True
        )
        return np.array([float(compute(a, d, {})) for a, d in pairs]).reshape(leading)


def derive_task(env: gym.Env, name: str) -> Task:
    """The task description of any environment with the goal interface of Gymnasium-Robotics.

    Raises:
        EnvError: With the first thing that is missing.
    """
    for finding in _interface(env):
        if finding.level == "missing":
            raise EnvError(f"{name} cannot be used: {finding.text} (curioplan check-env tells all.)")
    assert isinstance(env.observation_space, spaces.Dict)
    assert isinstance(env.action_space, spaces.Box)
    length = episode_length(env)
    assert length is not None
    return Task(
        name=name,
        env=name,
        observation_dim=_dim(env.observation_space["observation"]),
        goal_dim=_dim(env.observation_space["achieved_goal"]),
        action_low=tuple(env.action_space.low.tolist()),
        action_high=tuple(env.action_space.high.tolist()),
        episode_length=length,
        success=RewardSuccess(env),
        gamma=0.95 if length <= 100 else 0.99,
        goal_indices=find_goal_indices(env),
        cases=tuple(Case(f"draw {k}") for k in range(DERIVED_CASES)),
    )


def episode_length(env: gym.Env) -> int | None:
    """Steps after which the environment's ``TimeLimit`` truncates, if it has one."""
    wrapper: Any = env
    while isinstance(wrapper, gym.Wrapper):
        if isinstance(wrapper, gym.wrappers.TimeLimit):
            return int(wrapper._max_episode_steps)
        wrapper = wrapper.env
    own = getattr(wrapper, "episode_length", None)
    return int(own) if own is not None else None


def find_goal_indices(env: gym.Env) -> tuple[int, ...] | None:
    """The observation dimensions that equal the achieved goal along a random episode, if there are any."""
    rows = [observation for observation, *_ in _random_steps(env, seed=0)]
    observations = np.array([row["observation"] for row in rows])
    goals = np.array([row["achieved_goal"] for row in rows])
    chosen: list[int] = []
    for goal in goals.T:
        equal = np.flatnonzero((observations == goal[:, None]).all(0))
        free = [int(k) for k in equal if k not in chosen]
        if not free:
            return None
        chosen.append(free[0])
    return tuple(chosen)


def check_env(env: gym.Env) -> list[Finding]:
    """Everything an environment has or lacks for curioplan, in plain words."""
    findings = list(_interface(env))
    if all(finding.level != "missing" for finding in findings):
        findings += _behaviour(env)
    return findings


def _interface(env: gym.Env) -> Iterator[Finding]:
    """The static part: spaces, goals, actions, success and episode length."""
    space = env.observation_space
    if not isinstance(space, spaces.Dict) or any(key not in space.spaces for key in KEYS):
        yield Finding(
            "missing",
            f"observations must be a Dict with {', '.join(KEYS)}, but the space is a {_kind(space)}.",
        )
    elif any(not isinstance(space[key], spaces.Box) or len(space[key].shape or ()) != 1 for key in KEYS):
        kinds = ", ".join(f"{key} is a {_kind(space[key])}" for key in KEYS)
        yield Finding("missing", f"observation and goals must be flat Box vectors, but {kinds}.")
    elif space["achieved_goal"].shape != space["desired_goal"].shape:
        yield Finding(
            "missing",
            "achieved_goal and desired_goal must have the same shape, but have "
            f"{space['achieved_goal'].shape} and {space['desired_goal'].shape}.",
        )
    else:
        sizes = ", ".join(f"{key} {_dim(space[key])}" for key in KEYS)
        yield Finding("ok", f"Observations have the goal interface ({sizes}).")

    action = env.action_space
    if not isinstance(action, spaces.Box) or len(action.shape) != 1:
        yield Finding("missing", f"actions must be a flat Box vector, but the space is a {_kind(action)}.")
    elif not (np.isfinite(action.low).all() and np.isfinite(action.high).all()):
        yield Finding("missing", "actions must have finite bounds, since planning samples between them.")
    else:
        yield Finding("ok", f"Actions are {_dim(action)} bounded numbers.")

    if not env.has_wrapper_attr("compute_reward"):
        yield Finding(
            "missing",
            "there is no compute_reward(achieved_goal, desired_goal, info), so success cannot be told.",
        )
    else:
        yield Finding("ok", "compute_reward tells when a goal is achieved.")

    length = episode_length(env)
    if length is None:
        yield Finding(
            "missing",
            "episodes have no length: register with max_episode_steps, wrap in gymnasium.wrappers.TimeLimit, "
            "or set an attribute episode_length.",
        )
    else:
        yield Finding("ok", f"Episodes last {length} steps.")


def _behaviour(env: gym.Env) -> Iterator[Finding]:
    """The moving part: finite and repeatable steps, endings, success, starts, goals in the state."""
    try:
        first, second = (list(_random_steps(env, seed=0)) for _ in range(2))
    except Exception as error:
        yield Finding("missing", f"an episode of random actions fails: {type(error).__name__}: {error}")
        return
    finite = all(np.isfinite(observation[key]).all() for observation, *_ in first for key in KEYS)
    if finite:
        yield Finding("ok", "Observations stay finite under random actions.")
    else:
        yield Finding("missing", "observations become NaN or infinite under random actions.")
    same = len(first) == len(second) and all(
        np.array_equal(a[0][key], b[0][key]) for a, b in zip(first, second, strict=True) for key in KEYS
    )
    if same:
        yield Finding("ok", "The same seed and actions give the same trajectory.")
    else:
        yield Finding("note", "The same seed and actions give different trajectories: runs will not repeat.")
    if any(terminated for _, terminated in first):
        yield Finding(
            "note",
            "Episodes end early: shorter trajectories are kept as they are, but an option such as "
            "continuing_task=True gives more to learn from.",
        )
    else:
        yield Finding("ok", "Episodes do not end early.")
    yield from _success(env, first)
    yield from _starts(env, first[-1][0])
    if find_goal_indices(env) is None:
        yield Finding(
            "note",
            "The achieved goal is not a part of the observation: everything works but planning on a sparse "
            "cost, which needs goals of imagined states.",
        )
    else:
        yield Finding("ok", "The achieved goal is a part of the observation.")


def _success(env: gym.Env, steps: list[tuple[dict[str, NDArray[Any]], bool]]) -> Iterator[Finding]:
    achieved = np.array([observation["achieved_goal"] for observation, _ in steps], dtype=np.float64)
    compute = env.get_wrapper_attr("compute_reward")
    try:
        rewards = [float(compute(goal, achieved[0], {})) for goal in achieved]
        near = RewardSuccess(env)(achieved[:1] + 1e-6, achieved[:1])
    except Exception as error:
        yield Finding("missing", f"compute_reward fails on achieved goals: {type(error).__name__}: {error}")
        return
    if len({round(reward, 9) for reward in rewards}) > 2 or not near[0]:
        yield Finding(
            "note",
            "The reward looks dense, so only the exact goal would count as success: make the environment "
            "with a sparse reward (often reward_type='sparse').",
        )
    else:
        yield Finding("ok", "The reward is sparse, so it tells success.")


def _starts(env: gym.Env, wanted: dict[str, NDArray[Any]]) -> Iterator[Finding]:
    options = {"state": wanted["observation"], "goal": wanted["achieved_goal"]}
    try:
        observation, _ = env.reset(seed=1, options=options)
    except Exception:  # whatever it raises, it does not take these options
        observation = {}
    if observation and np.allclose(observation["desired_goal"], options["goal"], atol=1e-6):
        yield Finding("ok", 'reset(options={"goal": …}) sets the goal.')
    else:
        yield Finding(
            "note",
            'reset(options={"state": …, "goal": …}) does not set the goal: evaluation uses the starts and '
            "goals that the environment draws itself.",
        )


def _random_steps(env: gym.Env, seed: int) -> Iterator[tuple[dict[str, NDArray[Any]], bool]]:
    """Observations of a random episode, each with whether it terminated there."""
    rng = np.random.default_rng(seed)
    assert isinstance(env.action_space, spaces.Box)
    low, high, kind = env.action_space.low, env.action_space.high, env.action_space.dtype
    observation, _ = env.reset(seed=seed)
    yield observation, False
    for _ in range(PROBE_STEPS):
        observation, _, terminated, truncated, _ = env.step(rng.uniform(low, high).astype(kind))
        yield observation, bool(terminated)
        if terminated or truncated:
            return


def _dim(space: spaces.Space) -> int:
    assert space.shape is not None
    return space.shape[0]


def _kind(space: spaces.Space) -> str:
    return f"{type(space).__name__}{'' if space.shape is None else space.shape}"
