"""A trained value function and its policy, as a file."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from curioplan.config import Evaluate, from_dict
from curioplan.errors import ConfigError, CurioplanError, RunError
from curioplan.models.memory import Memory
from curioplan.storage import load_tree, save_tree
from curioplan.values.learner import Learner
from curioplan.values.problem import Problem
from curioplan.values.registry import learner_class

_PAIRS = 8192
"""Pairs of states and goals evaluated at a time."""
_QUICK_PAIRS = 2048
"""The same for the quick network, whose hidden layers then stay in cache."""
_CHECKED = 0.25
"""Share of the edges that are checked, the shortest: paths over longer ones are rare."""
_CHECKED_EACH = 250
"""Edges that are checked at most, per state: the more vertices there are, the shorter the edges of paths."""


class Distances(Protocol):
    """What a graph asks of values: temporal distances between all of some states and all of some goals."""

    gamma: float

    def distances(self, states: Tensor, goals: Tensor) -> Tensor:
        """log_γ V(s; g) of every state (N, ·) to every goal (M, ·), (N, M)."""
        ...

    def edges(self, states: Tensor, goals: Tensor) -> Tensor:
        """The same for what is kept of a graph, and may take longer."""
        ...

    def task_goals(self, goals: Tensor) -> Tensor:
        """Goals of the task, met by any state that achieves them, as `distances` takes them."""
        ...

    def whole_goals(self, states: Tensor, achieved: Tensor) -> Tensor:
        """States as goals that only they meet."""
        ...


class Values:
    """One learner's V̂(s; g) and π(s; g), for batches of states (N, ·) and goals (N, ·).

    These may be on any device; what is returned is on the learner's.

    Args:
        learner: A learner of one seed.
    """

    def __init__(self, learner: Learner) -> None:
        if len(learner.seeds) != 1:
            raise CurioplanError(f"A value function is one learner, not {len(learner.seeds)}.")
        self.learner, self.gamma = learner, learner.problem.gamma

    def value(self, states: Tensor, goals: Tensor) -> Tensor:
        """V̂(s; g) in [0, 1], (N,)."""
        return self.learner.value(states, goals)[0]

    def distance(self, states: Tensor, goals: Tensor) -> Tensor:
        """log_γ V̂(s; g) ≥ 0 in steps, (N,)."""
        return self.learner.distance(states, goals)[0]

    def distances(self, states: Tensor, goals: Tensor) -> Tensor:
        """log_γ V̂(s; g) of every state (N, ·) to every goal (M, ·), (N, M)."""
        states, goals = states.to(self.learner.device), self.task_goals(goals)
        out = torch.empty(len(states), len(goals), device=self.learner.device)
        rows = max(1, _PAIRS // max(1, len(goals)))
        for start in range(0, len(states), rows):
            part = states[start : start + rows]
            pairs = part.repeat_interleave(len(goals), 0), goals.repeat(len(part), 1)
            out[start : start + rows] = self.distance(*pairs).view(len(part), len(goals))
        return out

    def edges(self, states: Tensor, goals: Tensor) -> Tensor:
        """As `distances`."""
        return self.distances(states, goals)

    @torch.no_grad()
    def distances_within(self, states: Tensor, goals: Tensor, limits: Tensor) -> Tensor:
        """As `distance`, (N,), but where it exceeds a limit, any number above that will do."""
        # What rounding might take away is given in advance.
        least = torch.logit(self.gamma ** limits.clamp(min=0), eps=1e-7) - 1e-3
        logits = self.learner.logits_above(*self.learner.inputs(states, self.task_goals(goals)), least)
        return functional.logsigmoid(logits[0]) / math.log(self.gamma)

    def task_goals(self, goals: Tensor) -> Tensor:
        """Goals of the task, met by any state that achieves them, as `distances` takes them."""
        return self.learner.problem.task_goals(goals.to(self.learner.device))

    def whole_goals(self, states: Tensor, achieved: Tensor) -> Tensor:
        """States as goals that only they meet, velocities and all.

        Raises:
            ConfigError: These values were learned for goals of the task alone.
        """
        if not self.learner.problem.whole:
            raise ConfigError("These values know no whole states as goals; train them with p_state above 0.")
        states, achieved = states.to(self.learner.device), achieved.to(self.learner.device)
        everywhere = torch.ones(states.shape[:-1], dtype=torch.bool, device=states.device)
        return self.learner.problem.goals_of(achieved, states, everywhere)

    def act(self, states: Tensor, goals: Tensor) -> Tensor:
        """π(s; g) within the environment's bounds, (N, action_dim)."""
        return self.learner.act(states, goals)[0]

    def for_graph(self, evaluate: Evaluate) -> Distances:
        """What gives a graph its lengths.

        Raises:
            ConfigError: It is to be the small network trained along, and there is none.
        """
        if evaluate == "exact":
            return self
        if "quick" not in self.learner.networks:
            raise ConfigError("These values have no quick network; train them with quick_units above 0.")
        return CheckedValues(self) if evaluate == "checked" else QuickValues(self)

    @classmethod
    def load(cls, path: Path, device: str | torch.device = "cpu") -> Values:
        """Read a value function that `save_values` wrote, onto a device."""
        saved = load_tree(path)
        if not isinstance(saved, dict) or not saved.keys() >= {"config", "problem", "networks", "seed"}:
            raise RunError(f"{path} does not hold a value function.")
        kind = learner_class(saved["config"]["algo"])
        config = from_dict(kind.Config, saved["config"])
        problem = Problem.from_state(saved["problem"], device)
        learner = kind(problem, config, [saved["seed"]], for_training=False)
        learner.adopt(saved)
        return cls(learner)


class QuickValues:
    """The distances of `Values`, by one small network whose first layer is split into state and goal."""

    def __init__(self, values: Values) -> None:
        self.gamma, self._values = values.gamma, values
        self._problem = values.learner.problem
        self._layers = [(w[0], b[0]) for w, b in values.learner.networks["quick"].select()]
        self._memory = Memory(values.learner.device)

    @torch.no_grad()
    def distances(self, states: Tensor, goals: Tensor) -> Tensor:
        """log_γ V̂(s; g) of every state (N, ·) to every goal (M, ·), (N, M)."""
        problem, (weight, bias) = self._problem, self._layers[0]
        from_states = problem.states.normalise(states.to(problem.device)) @ weight[: problem.observation_dim]
        to_goals = problem.goals.normalise(self.task_goals(goals)) @ weight[problem.observation_dim :] + bias
        out = torch.empty(len(states), len(goals), device=problem.device)
        rows = max(1, _QUICK_PAIRS // max(1, len(goals)))
        for start in range(0, len(states), rows):
            part = from_states[start : start + rows]
            hidden = self._memory.get("first", len(part), len(goals), weight.shape[1])
            torch.add(part[:, None], to_goals, out=hidden)
            out[start : start + rows] = self._finish(hidden.relu_().flatten(0, 1)).view(len(part), -1)
        return functional.logsigmoid(out) / math.log(self.gamma)

    def edges(self, states: Tensor, goals: Tensor) -> Tensor:
        """As `distances`."""
        return self.distances(states, goals)

    def task_goals(self, goals: Tensor) -> Tensor:
        """See `Values`."""
        return self._values.task_goals(goals)

    def whole_goals(self, states: Tensor, achieved: Tensor) -> Tensor:
        """See `Values`."""
        return self._values.whole_goals(states, achieved)

    def _finish(self, hidden: Tensor) -> Tensor:
        """The layers after the first."""
        for number, (weight, bias) in enumerate(self._layers[1:-1]):
            buffer = self._memory.get(("even", "odd")[number % 2], len(hidden), weight.shape[1])
            hidden = torch.addmm(bias, hidden, weight, out=buffer).relu_()
        weight, bias = self._layers[-1]
        return hidden @ weight[:, 0] + bias[0, 0]


class CheckedValues(QuickValues):
    """Quick distances, of which the shortest are checked by the learner's own where they are kept.

    An edge that is too short misleads every path that takes it, one that is too long only those that need it.
    """

    def edges(self, states: Tensor, goals: Tensor) -> Tensor:
        """As `distances`, of which the shortest are no shorter than the learner's own."""
        states, goals = states.to(self._problem.device), self.task_goals(goals)
        lengths = self.distances(states, goals)
        count = min(math.ceil(_CHECKED * lengths.numel()), _CHECKED_EACH * len(states))
        limit = lengths.flatten().kthvalue(count).values
        rows, columns = torch.nonzero(lengths <= limit, as_tuple=True)
        for row, column in zip(rows.split(_PAIRS), columns.split(_PAIRS), strict=True):
            exact = self._values.distance(states[row], goals[column])
            lengths[row, column] = torch.maximum(lengths[row, column], exact)
        return lengths


def save_values(path: Path, learner: Learner, number: int) -> None:
    """Write one of several learners, with all that is needed to use it, on whatever device."""
    config = {name: value for name, value in asdict(learner.config).items() if name != "device"}
    save_tree(path, {"config": config} | learner.export(number))
