"""Whims: random actions, held for as long as a plan looks ahead, begun where the agent has seldom been."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from curioplan.models import Normaliser

_SAMPLE = 1000
"""Achieved goals of the data against which others are held."""
_NEIGHBOURS = 10
"""A goal is as rare as the distance to the so-manieth nearest of them is long."""
_SHARPNESS = 9
"""Whims begin in proportion to rareness to this power: ten times the mean at the rarest goals of all."""


class Whims:
    """When to act at random for a while.

    What the model is wrongly sure of, no plan goes to see, and chance alone finds; where the agent has often
    been, chance has had its turn. The rareness of a goal g is the share of the data whose goals have nearer
    neighbours in the data than g has. It is uniformly distributed over the data, so that with chances
    proportional to a power of it, whims take about the share of the steps that they are given.

    Args:
        share: About this share of the steps belongs to whims.
        horizon: Steps that a plan looks ahead.
        turn: Steps from plan to plan; whims last as many of these turns as make the horizon.
        low: Lowest actions.
        high: Highest actions.
    """

    def __init__(
        self, share: float, horizon: int, turn: int, low: Sequence[float], high: Sequence[float]
    ) -> None:
        turns = math.ceil(horizon / turn)
        self.turn, self.steps = turn, turns * turn
        self.low, self.high = low, high
        # A turn of planning is one of them, a whim is several: the chance that a turn begins one is less.
        self._chance = share / (share + turns * (1 - share))
        self._goals = self._spacings = torch.empty(0)
        self._action = np.zeros(len(low), np.float32)
        self._step = self._left = 0

    def recall(self, goals: Tensor, rng: np.random.Generator) -> None:
        """Begin an episode, and take in what has been achieved so far (N, goal), by a sample."""
        self._step = self._left = 0
        if not self._chance:
            return
        sample = goals[torch.from_numpy(rng.integers(len(goals), size=_SAMPLE))]
        self._units = Normaliser(goals.shape[1])
        self._units.update(sample)
        self._goals = self._units.normalise(sample)
        spacings = self._spacing(self._goals, _NEIGHBOURS + 1)  # each is a neighbour of itself
        self._spacings = spacings.sort().values

    def act(self, goal: NDArray[Any], rng: np.random.Generator) -> NDArray[np.float32] | None:
        """What a whim does at the next step, with this goal achieved, or None if a plan may go on."""
        if not self._left and self._step % self.turn == 0 and self.begins(goal, rng):
            self._action = rng.uniform(self.low, self.high).astype(np.float32)
            self._left = self.steps
        self._step += 1
        if not self._left:
            return None
        self._left -= 1
        return self._action

    def rareness(self, goal: NDArray[Any]) -> float:
        """How seldom a goal (goal,) is among those achieved, from 0 to 1."""
        at = self._units.normalise(torch.as_tensor(goal, dtype=torch.float32)[None])
        return float(torch.searchsorted(self._spacings, self._spacing(at, _NEIGHBOURS))) / _SAMPLE

    def _spacing(self, goals: Tensor, neighbours: int) -> Tensor:
        """The distance (N,) of each of some goals (N, goal) to its so-manieth neighbour in the sample."""
        distances = torch.cdist(goals, self._goals, compute_mode="donot_use_mm_for_euclid_dist")
        return distances.kthvalue(neighbours).values

    def begins(self, goal: NDArray[Any], rng: np.random.Generator) -> bool:
        """Whether a whim begins at a turn of planning, with this goal achieved."""
        if not self._chance:
            return False
        chances = (_SHARPNESS + 1) * self.rareness(goal) ** _SHARPNESS
        return rng.random() >= (1 - self._chance) ** chances
