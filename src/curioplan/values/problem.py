"""What a learner needs to know of a task and its data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from curioplan.data import TrajectoryStore
from curioplan.data.relabel import Batch
from curioplan.envs import Task
from curioplan.errors import ConfigError
from curioplan.models import Normaliser
from curioplan.models.training import buffers


@dataclass(frozen=True)
class Problem:
    """Dimensions, discount, action bounds and statistics of the data.

    Attributes:
        observation_dim: Width of a state.
        goal_dim: Width of a goal, as networks see it.
        action_dim: Width of an action.
        gamma: Discount factor.
        middle: Centre of the action range (action_dim,).
        half: Half of its width.
        states: Statistics of the states.
        goals: Statistics of the achieved goals.
        goal_indices: The dimensions of a state that are its goal, where they are.
        whole: Whether goals may be whole states, too. Networks then see (goal, state, 1) in place of a goal
            if it is the whole state, and (goal, mean state, 0) if any state with this goal will do.
    """

    observation_dim: int
    goal_dim: int
    action_dim: int
    gamma: float
    middle: Tensor
    half: Tensor
    states: Normaliser
    goals: Normaliser
    goal_indices: tuple[int, ...] | None = None
    whole: bool = False

    @property
    def device(self) -> torch.device:
        """Where the statistics are, and whatever learns with them."""
        return self.middle.device

    @classmethod
    def of(cls, task: Task, store: TrajectoryStore, gamma: float = 0.0, *, whole: bool = False) -> Problem:
        """The problem of a task with this data, where they are; a discount of 0 takes the task's."""
        device = store.device
        low, high = (torch.tensor(bound, device=device) for bound in (task.action_low, task.action_high))
        if not bool((torch.isfinite(low) & torch.isfinite(high) & (low < high)).all()):
            raise ConfigError(f"Learning needs finite action bounds, unlike those of {task.name}.")
        states = Normaliser(task.observation_dim, device)
        states.update(store.observations)
        achieved = store.achieved_goals
        if whole:
            achieved = torch.cat([achieved, store.observations, achieved.new_zeros(len(achieved), 1)], 1)
        goals = Normaliser(achieved.shape[1], device)
        goals.update(achieved)
        return cls(
            task.observation_dim,
            len(goals.mean),
            task.action_dim,
            gamma or task.gamma,
            (low + high) / 2,
            (high - low) / 2,
            states,
            goals,
            task.goal_indices,
            whole,
        )

    def goals_of(self, achieved: Tensor, states: Tensor, whole: Tensor) -> Tensor:
        """Goals as networks see them: the whole states where `whole`, else what they achieve.

        Args:
            achieved: The achieved goals, (..., goal).
            states: The states, (..., observation).
            whole: Booleans, (...).
        """
        if not self.whole:
            return achieved
        shown = torch.where(whole[..., None], states, self.states.mean)
        return torch.cat([achieved, shown, whole[..., None].to(achieved.dtype)], -1)

    def task_goals(self, goals: Tensor) -> Tensor:
        """Goals of the task as networks see them; those that already are stay as they are."""
        if not self.whole or goals.shape[-1] == self.goal_dim:
            return goals
        shape = goals.shape[:-1]
        nowhere = torch.zeros(shape, dtype=torch.bool, device=goals.device)
        return self.goals_of(goals, self.states.mean.expand(*shape, -1), nowhere)

    def normalise(self, batch: Batch) -> Batch:
        """The batch with states and goals normalised and actions in [−1, 1]."""
        normalise, unbounded = self.states.normalise, self.unbounded
        return replace(
            batch,
            observations=normalise(batch.observations),
            actions=unbounded(batch.actions),
            next_observations=normalise(batch.next_observations),
            goals=self.goals.normalise(batch.goals),
            next_actions=None if batch.next_actions is None else unbounded(batch.next_actions),
        )

    def unbounded(self, actions: Tensor) -> Tensor:
        """Actions in [−1, 1] from those of the environment."""
        return ((actions - self.middle) / self.half).clamp(-1, 1)

    def bounded(self, actions: Tensor) -> Tensor:
        """Actions of the environment from actions in [−1, 1]."""
        return torch.addcmul(self.middle, actions, self.half)

    def state(self) -> dict[str, Any]:
        """Everything as plain tensors and numbers."""
        return {
            "gamma": self.gamma,
            "middle": self.middle,
            "half": self.half,
            "states": buffers(self.states),
            "goals": buffers(self.goals),
            "goal_indices": None if self.goal_indices is None else list(self.goal_indices),
            "whole": self.whole,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any], device: str | torch.device = "cpu") -> Problem:
        """The inverse of `state`, on a device."""
        states, goals = (Normaliser(len(state[name]["mean"]), device) for name in ("states", "goals"))
        states.load_state_dict(state["states"])
        goals.load_state_dict(state["goals"])
        indices = state["goal_indices"]
        return cls(
            len(states.mean),
            len(goals.mean),
            len(state["middle"]),
            state["gamma"],
            state["middle"].to(device),
            state["half"].to(device),
            states,
            goals,
            None if indices is None else tuple(indices),
            state.get("whole", False),
        )
