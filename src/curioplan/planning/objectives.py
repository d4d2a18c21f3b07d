"""What a planner maximises."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from curioplan.config import Valuing
from curioplan.errors import CurioplanError
from curioplan.models.mlp import BatchedMLP
from curioplan.models.normaliser import Normaliser
from curioplan.models.training import buffers, load_training_state, training_state
from curioplan.planning.rollout import Rollout


@runtime_checkable
class Objective(Protocol):
    """The worth of imagined trajectories."""

    @property
    def needs_disagreement(self) -> bool:
        """Whether rollouts must carry the intrinsic reward, which costs an evaluation of all members."""
        ...

    def __call__(self, rollout: Rollout, actions: Tensor, slots: Tensor) -> Tensor:
        """Values of action sequences.

        Args:
            rollout: What the model imagines for B episodes and P sequences.
            actions: The sequences (B, P, H, act).
            slots: The planner's slot of each episode (B,), for objectives with a goal per episode; always on
                the CPU.

        Returns:
            Values (B, P), larger is better; what is not finite ranks last.
        """
        ...


def final_states(rollout: Rollout, valuing: Valuing) -> Tensor:
    """The last imagined states that count, (B, P, K, obs): of every particle, or their mean alone."""
    states = rollout.states[..., -1, :]
    return states if valuing == "particles" else states.mean(2, keepdim=True)


class Disagreement:
    """Curiosity: the sum over the horizon of r_int, averaged over particles."""

    needs_disagreement = True

    def __call__(self, rollout: Rollout, actions: Tensor, slots: Tensor) -> Tensor:
        """See `Objective`."""
        assert rollout.disagreement is not None
        return rollout.disagreement.sum(-1)


class Distance:
    """Minus the Euclidean distance to a goal, averaged over particles: −Σ_t ‖s_t[goal] − g‖ or its last term.

    A hand-made cost, to judge a model by what plans it allows.

    Args:
        goals: Goal of each slot (slots, goal).
        goal_indices: The dimensions of a state that make up its achieved goal.
        final: Whether only the last state counts.
    """

    needs_disagreement = False

    def __init__(self, goals: Tensor, goal_indices: Sequence[int], *, final: bool = False) -> None:
        self.goals, self.goal_indices, self.final = goals, list(goal_indices), final

    def __call__(self, rollout: Rollout, actions: Tensor, slots: Tensor) -> Tensor:
        """See `Objective`."""
        states = rollout.states[..., -1:, :] if self.final else rollout.states[..., 1:, :]
        goals = self.goals[slots][:, None, None, None]
        return -(states[..., self.goal_indices] - goals).norm(dim=-1).sum(-1).mean(-1)


class Sparse:
    """The share of imagined states that succeed, Σ_t 1[s_t achieves g], averaged over particles.

    Args:
        success: The task's success test on batches of achieved and desired goals.
        goal_of: The achieved goals of states.
        goals: Goal of each slot (slots, goal).
    """

    needs_disagreement = False

    def __init__(
        self,
        success: Callable[[Tensor, Tensor], Tensor],
        goal_of: Callable[[Tensor], Tensor],
        goals: Tensor,
    ) -> None:
        self.success, self.goal_of, self.goals = success, goal_of, goals

    def __call__(self, rollout: Rollout, actions: Tensor, slots: Tensor) -> Tensor:
        """See `Objective`."""
        achieved = self.goal_of(rollout.states[..., 1:, :])  # (B, P, K, H, goal)
        return self.success(achieved, self.goals[slots][:, None, None, None]).float().sum(-1).mean(-1)


class GoalValue:
    """The value V(s_H; g) of the last imagined state.

    The discount γ^{H−1} in front of it is the same for all sequences and left out.

    Args:
        value: V(s; g) of states (N, obs) and goals (N, goal), as (N,).
        goals: Goal of each slot (slots, goal).
        valuing: Whether every particle is valued, and values averaged, or the mean of the particles.
    """

    needs_disagreement = False

    def __init__(
        self, value: Callable[[Tensor, Tensor], Tensor], goals: Tensor, valuing: Valuing = "particles"
    ) -> None:
        self.value, self.goals, self.valuing = value, goals, valuing

    def __call__(self, rollout: Rollout, actions: Tensor, slots: Tensor) -> Tensor:
        """See `Objective`."""
        states = final_states(rollout, self.valuing)  # (B, P, K, obs)
        goals = self.goals[slots][:, None, None].expand(*states.shape[:-1], -1)
        return self.value(states.flatten(0, -2), goals.flatten(0, -2)).view(states.shape[:-1]).mean(-1)


class GoalReturn:
    """The discounted return of reaching a goal, with a value for what comes after the horizon.

    γ^t where action t (from 0) is the first to lead to success, else γ^H V(s_H; g), averaged over particles:
    as V(s; g) = γ^(steps − 1), plans of any length agree.

    Args:
        value: V(s; g) of states (N, obs) and goals (N, goal), as (N,).
        success: The task's success test.
        goal_of: The achieved goals of states.
        gamma: The discount factor.
        goals: Goal of each slot (slots, goal).
    """

    needs_disagreement = False

    def __init__(
        self,
        value: Callable[[Tensor, Tensor], Tensor],
        success: Callable[[Tensor, Tensor], Tensor],
        goal_of: Callable[[Tensor], Tensor],
        gamma: float,
        goals: Tensor,
    ) -> None:
        self.value, self.success, self.goal_of = value, success, goal_of
        self.gamma, self.goals = gamma, goals

    def __call__(self, rollout: Rollout, actions: Tensor, slots: Tensor) -> Tensor:
        """See `Objective`."""
        goals = self.goals[slots][:, None, None].expand(*rollout.states.shape[:3], -1)
        last = rollout.states[..., -1, :]
        future = self.value(last.flatten(0, -2), goals.flatten(0, -2)).view(last.shape[:-1])
        reached, discount = self.arrivals(rollout.states[..., 1:, :], goals)
        return torch.where(reached, discount, discount * future).mean(-1)

    def arrivals(self, states: Tensor, goals: Tensor) -> tuple[Tensor, Tensor]:
        """Whether paths (..., H, obs) reach goals (..., goal), and the discount of that, γ^t, or else γ^H."""
        met = self.success(self.goal_of(states), goals[..., None, :])  # (..., H)
        reached, first = met.any(-1), met.to(torch.uint8).argmax(-1)
        steps = torch.where(reached, first, states.shape[-2])
        return reached, self.gamma ** steps.to(states.dtype)


class Novelty:
    """Random network distillation (Burda et al., 2019): novel states are those a trained copy gets wrong.

    The worth of a trajectory is Σ_t ‖f̂(s_t) − f(s_t)‖² / outputs, averaged over particles, with f a fixed
    random network of normalised states and f̂ one trained to imitate it on visited states.

    Args:
        observation_dim: Width of a state.
        units: Units of each of the two hidden layers.
        outputs: Width of the random features.
        learning_rate: Step size of Adam.
        seed: Seed of both networks.
        device: Where they live.
    """

    needs_disagreement = False

    def __init__(
        self,
        observation_dim: int,
        *,
        units: int = 128,
        outputs: int = 32,
        learning_rate: float = 1e-3,
        seed: int = 0,
        device: str | torch.device = "cpu",
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.target, self.predictor = (
            BatchedMLP(
                1,
                observation_dim,
                outputs,
                layers=2,
                units=units,
                activation="relu",
                generator=generator,
                device=device,
            )
            for _ in range(2)
        )
        # Features of unit scale: the small initial weights of a trained network would make all states alike.
        for weight in self.target.weights:
            weight.data.mul_(2 * 2**0.5)
        self.normaliser = Normaliser(observation_dim, device)
        self._optimizer = torch.optim.Adam(self.predictor.parameters(), lr=learning_rate, fused=True)

    def __call__(self, rollout: Rollout, actions: Tensor, slots: Tensor) -> Tensor:
        """See `Objective`."""
        states = rollout.states[..., 1:, :]
        return self.error(states.flatten(0, -2)).view(states.shape[:-1]).sum(-1).mean(-1)

    def error(self, states: Tensor) -> Tensor:
        """Novelty (N,) of states (N, obs)."""
        inputs = self.normaliser.normalise(states)
        return (self.predictor.infer(inputs) - self.target.infer(inputs)).square_().mean((0, 2))

    def add(self, states: Tensor) -> None:
        """Takes newly visited states (N, obs) into the normaliser."""
        self.normaliser.update(states)

    def update(self, states: Tensor) -> float:
        """One gradient step on a batch of visited states (N, obs); returns the loss.

        Raises:
            CurioplanError: The loss is not finite; the weights are those before this step.
        """
        inputs = self.normaliser.normalise(states)
        loss = (self.predictor(inputs) - self.target.infer(inputs)).square().mean()
        value = loss.item()
        if not math.isfinite(value):
            raise CurioplanError("The loss of the novelty network is not finite: are the visited states?")
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        return value

    def state(self) -> dict[str, Any]:
        """All that is needed to go on exactly, as plain tensors, lists and numbers."""
        return {
            "target": buffers(self.target),
            "predictor": training_state(list(self.predictor.parameters()), self._optimizer),
            "normaliser": buffers(self.normaliser),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Takes over a `state()`.

        Raises:
            ConfigError: It belongs to networks of another shape.
        """
        load_training_state(list(self.predictor.parameters()), self._optimizer, state["predictor"])
        self.target.load_state_dict(state["target"])
        self.normaliser.load_state_dict(state["normaliser"])
