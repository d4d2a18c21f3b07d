"""T-local optima: states where a value function traps whoever climbs it, estimated by sampling.

A state s is a T-local optimum of V(·; g) if

    max_S V  >  V(s)  >  max of V over what else is one step away,

and its depth is the smallest k such that something better than s is k + 1 steps away. Optimal values have
none: they are errors of estimation. Both maxima are estimated from below, by random states of the data and by
random action sequences, so that with exact dynamics all errors are of three kinds, each rarer with more
samples:

- something as good one step away is missed: a state is taken for an optimum (more sequences help);
- something better further away is missed: a depth is too large, never too small (more sequences help);
- nothing better is found anywhere: an optimum is taken for the best state (more random states help).

A learned model adds its own: where it imagines what cannot be reached, optima are missed or too shallow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from curioplan.analysis.values import BATCH, ValueFunction
from curioplan.envs.task import Floats
from curioplan.errors import ConfigError, DataError
from curioplan.planning.noise import coloured_noise
from curioplan.planning.rollout import Dynamics

ROWS = 2**14  # imagined trajectories at once

ValueFunctions = ValueFunction
"""Several V(s; g) at once, from states ``(N, observation)`` and goals ``(N, goal)`` to values ``(M, N)``.

The value of a learner of M seeds is one; `stacked` makes one of separate functions.
"""


def stacked(values: Sequence[ValueFunction]) -> ValueFunctions:
    """Separate value functions, of which each gives ``(N,)``, as one that gives ``(M, N)``."""
    return lambda states, goals: torch.stack([value(states, goals) for value in values])


@dataclass(frozen=True)
class RandomReach:
    """Samples what can be reached from states, by random action sequences.

    Every action is uniform between its bounds, and actions in sequence are alike: uniform quantiles of
    coloured noise. Each particle of the dynamics is a sample of its own.

    Args:
        dynamics: What imagines trajectories.
        action_low: Lower bounds (act,).
        action_high: Upper bounds (act,).
        horizon: Steps per sequence; depths beyond it cannot be told apart.
        sequences: Sequences per state.
        exponent: Of the noise: 0 makes actions independent, 3 is what the planner draws.
    """

    dynamics: Dynamics
    action_low: Tensor
    action_high: Tensor
    horizon: int
    sequences: int = 50
    exponent: float = 3.0

    def __post_init__(self) -> None:
        if self.horizon < 1 or self.sequences < 1:
            raise ConfigError(
                "Reachable states need at least one sequence of one step, "
                f"not {self.sequences} of {self.horizon}."
            )

    @torch.no_grad()
    def sample(self, states: Tensor, generators: Sequence[torch.Generator]) -> Tensor:
        """States ``(horizon + 1, N, samples, obs)`` reached after 0, 1, … steps; may reuse their memory.

        Args:
            states: Where to start ``(N, obs)``.
            generators: One for each of them.
        """
        dim = len(self.action_low)
        noise = coloured_noise(self.sequences, self.horizon, dim, self.exponent, generators)
        actions = torch.lerp(self.action_low, self.action_high, torch.special.ndtr(noise))
        reached = self.dynamics.rollout(states, actions, generators, disagreement=False).states
        return reached.flatten(1, 2).permute(2, 0, 1, 3)


@dataclass(frozen=True)
class Optima:
    """Which of N states are T-local optima of M value functions, and how deep.

    Attributes:
        depth: ``(M, N)``: 0 where there is none; at `horizon` it is that or more, since sampling looked no
            further.
        horizon: Steps within which something better was looked for.
    """

    depth: NDArray[np.int64]
    horizon: int

    @property
    def censored(self) -> NDArray[np.bool_]:
        """``(M, N)``: where nothing better was found within the horizon: depths of at least so much."""
        return self.depth == self.horizon

    def share(self, depth: int = 1) -> Floats:
        """The share of the states that are optima of at least this depth, ``(M,)``.

        The horizon of a planner is the depth from which it cannot escape.
        """
        if not 1 <= depth <= self.horizon:
            raise ConfigError(f"Depths are known from 1 to the horizon {self.horizon}, not {depth}.")
        return (self.depth >= depth).mean(1)


def find_optima(
    values: ValueFunctions,
    states: Tensor,
    goals: Tensor,
    best: Floats,
    reach: RandomReach,
    generator: torch.Generator,
) -> Optima:
    """Look for T-local optima among states.

    Args:
        values: M value functions; values are never negative.
        states: The N states to test ``(N, obs)``.
        goals: Their goals ``(N, goal)``, or one for all ``(goal,)``.
        best: The value of the best state known, see `best_values`: ``(M, N)``, or ``(M, 1)`` for all. What
            is reached from a state counts as known too.
        reach: Samples what can be reached.
        generator: Seeds every state's samples, so that these do not depend on how many there are.
    """
    if not len(states):
        raise DataError("There are no states to look at.")
    goals = goals.expand(len(states), -1)
    seeds = torch.randint(2**63 - 1, (len(states),), generator=generator).tolist()
    worth = _evaluate(values, states, goals)
    parts = []
    for part in _slices(len(states), max(1, ROWS // reach.sequences)):
        generators = [torch.Generator(states.device).manual_seed(seed) for seed in seeds[part]]
        reached = reach.sample(states[part], generators)
        parts.append(_escapes(values, worth[:, part], goals[part], reached))
    rival, escape = (np.concatenate(found, 1) for found in zip(*parts, strict=True))
    optimal = (worth > rival) & ((best > worth) | (escape <= reach.horizon))
    return Optima(np.where(optimal, escape - 1, 0), reach.horizon)


def best_values(values: ValueFunctions, pool: Tensor, goals: Tensor) -> Floats:
    """The value of the best of some states, such as random ones of the data, for each goal ``(M, goals)``.

    Args:
        values: M value functions.
        pool: The states ``(R, obs)``.
        goals: The goals ``(goals, goal)``.
    """
    if not len(pool) or not len(goals):
        raise DataError("The best of no states, or for no goal, is unknown.")
    return np.stack([_evaluate(values, pool, goal.expand(len(pool), -1)).max(1) for goal in goals], 1)


def optima_along(
    values: ValueFunctions,
    paths: Sequence[Tensor],
    goals: Tensor,
    pool: Tensor,
    reach: RandomReach,
    generator: torch.Generator,
) -> list[Optima]:
    """Look for T-local optima along trajectories, whose occurrence is then `Optima.share` of each.

    Args:
        values: M value functions.
        paths: The states of each trajectory ``(steps + 1, obs)``.
        goals: Its goal ``(paths, goal)``.
        pool: Random states of the data, among which the best counts as the best there is ``(R, obs)``.
        reach: Samples what can be reached.
        generator: Seeds the samples.
    """
    best = best_values(values, pool, goals)
    return [
        find_optima(values, path, goal, most[:, None], reach, generator)
        for path, goal, most in zip(paths, goals, best.T, strict=True)
    ]


def non_monotonicity(values: ValueFunctions, paths: Sequence[Tensor], goals: Tensor, horizon: int) -> Floats:
    """The share of a trajectory's steps i with V(s_i; g) ≥ V(s_{i+H}; g), ``(M, paths)``.

    It needs no sampling: whoever plans H steps ahead for values without T-local optima climbs. To rest at
    the goal is not to climb either, so end trajectories where they succeed. NaN where there are no H steps.

    Args:
        values: M value functions.
        paths: The states of each trajectory ``(steps + 1, obs)``.
        goals: Its goal ``(paths, goal)``.
        horizon: H.
    """
    if horizon < 1:
        raise ConfigError(f"Values are compared at least one step ahead, not {horizon}.")
    shares = []
    for path, goal in zip(paths, goals, strict=True):
        worth = _evaluate(values, path, goal.expand(len(path), -1))
        now, later = worth[:, :-horizon], worth[:, horizon:]
        shares.append((now >= later).mean(1) if now.size else np.full(len(worth), np.nan))
    if not shares:
        raise DataError("There are no trajectories to look at.")
    return np.stack(shares, 1)


def _escapes(
    values: ValueFunctions, worth: Floats, goals: Tensor, reached: Tensor
) -> tuple[Floats, NDArray[np.int64]]:
    """The best value one step away, and the first step with a better one than here, each ``(M, N)``.

    The start itself is left out wherever it is reached; where nothing else is, the best value is 0. Steps are
    horizon + 1 where there is nothing better.

    Args:
        values: M value functions.
        worth: Their values here ``(M, N)``.
        goals: Goals ``(N, goal)``.
        reached: What is reached from here ``(horizon + 1, N, samples, obs)``.
    """
    horizon, samples = len(reached) - 1, reached.shape[2]
    rival = np.zeros_like(worth)
    escape = np.full(worth.shape, horizon + 1)
    for step in range(1, horizon + 1):
        left = np.flatnonzero((escape > horizon).any(0))  # most states escape soon, and cost no more
        if not len(left):
            break
        here, there = reached[0, left], reached[step, left]  # (left, samples, obs)
        found = _evaluate(values, there.flatten(0, 1), goals[left].repeat_interleave(samples, 0))
        others = ~(here == there).all(-1).cpu().numpy()
        most = (found.reshape(len(found), -1, samples) * others).max(2)  # (M, left)
        if step == 1:
            rival[:, left] = most
        better = (most > worth[:, left]) & (escape[:, left] > horizon)
        escape[:, left] = np.where(better, step, escape[:, left])
    return rival, escape


def _evaluate(values: ValueFunctions, states: Tensor, goals: Tensor) -> Floats:
    """The values ``(M, N)`` of states for goals, in batches and without gradients."""
    with torch.no_grad():
        found = torch.cat([values(states[part], goals[part]) for part in _slices(len(states), BATCH)], -1)
    if found.ndim != 2 or found.shape[1] != len(states):
        raise DataError(
            f"Value functions gave shape {tuple(found.shape)} for {len(states)} states, not (M, "
            f"{len(states)}): pass one alone as stacked([value])."
        )
    if not (torch.isfinite(found) & (found >= 0)).all():
        raise DataError("A value function gave values that are negative or no numbers.")
    return found.cpu().numpy().astype(np.float64)


def _slices(total: int, size: int) -> Iterator[slice]:
    return (slice(start, start + size) for start in range(0, total, size))
