"""Curiosity about what lies beyond the horizon of a plan."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from curioplan.errors import CurioplanError
from curioplan.models.ensemble import GaussianEnsemble
from curioplan.models.mlp import BatchedMLP
from curioplan.models.training import load_training_state, training_state
from curioplan.planning.rollout import Rollout

_STEPS = 10
"""How far targets look ahead along the data before a value takes over."""
_KEPT = 0.99
"""Share of the target network, and of the mean reward, kept at each update."""


class Foresight:
    """Disagreement over the horizon, and V of the state where a plan ends: Σ_t r_int + V(s_H).

    V(s) is the disagreement, discounted by γ per step, that followed s in the data, seen with the model as it
    is now: what was new once, and is known since, draws no more. Where all that is near is known, V leads to
    where it is not. Values are averaged over particles.

    Args:
        model: The ensemble whose disagreement is sought.
        gamma: γ, the discount factor of what lies beyond the horizon.
        units: Units of each of the two hidden layers of V.
        learning_rate: Step size of Adam.
        seed: Seed of V's initial weights.
    """

    needs_disagreement = True

    def __init__(
        self,
        model: GaussianEnsemble,
        gamma: float,
        *,
        units: int = 128,
        learning_rate: float = 1e-3,
        seed: int = 0,
    ) -> None:
        self.model, self.gamma = model, gamma
        self.network, self._target = (
            BatchedMLP(
                1,
                model.observation_dim,
                1,
                layers=2,
                units=units,
                activation="relu",
                generator=torch.Generator().manual_seed(seed),
                device=model.device,
            )
            for _ in range(2)
        )
        self._parameters = list(self.network.parameters())
        self._optimizer = torch.optim.Adam(self._parameters, lr=learning_rate, fused=True)
        self.reward = 0.0
        """Running mean of r_int in the data, which sets the scale of V; 0 before the first update."""

    def __call__(self, rollout: Rollout, actions: Tensor, slots: Tensor) -> Tensor:
        """See `Objective`."""
        assert rollout.disagreement is not None
        ends = rollout.states[..., -1, :]
        return rollout.disagreement.sum(-1) + self.value(ends.flatten(0, -2)).view(ends.shape[:-1]).mean(-1)

    @property
    def scale(self) -> float:
        """What the network gives in units of: V where all rewards are of the mean size."""
        return self.reward / (1 - self.gamma)

    def value(self, states: Tensor) -> Tensor:
        """V (N,) of states (N, obs)."""
        return self._infer(self.network, states) * self.scale

    def _normalise(self, states: Tensor) -> Tensor:
        inputs, dim = self.model.inputs, states.shape[-1]
        return (states - inputs.mean[:dim]) / inputs.std[:dim]

    def _infer(self, network: BatchedMLP, states: Tensor) -> Tensor:
        return network.infer(self._normalise(states))[0, :, 0]

    def update(self, observations: Tensor, actions: Tensor, rows: Tensor, last: Tensor) -> float:
        """One gradient step on a batch of visited states; returns the loss.

        Args:
            observations: All states (N, obs).
            actions: The action taken at each of them (N, act).
            rows: The states to learn V of (batch,), none of them final.
            last: The final rows of their episodes (batch,), which only the step limit has ended.

        Raises:
            CurioplanError: The loss is not finite; the weights are those before this step.
        """
        with torch.no_grad():
            ahead = torch.arange(_STEPS, device=rows.device)
            steps = (last - rows).clamp(max=_STEPS)
            taken = ahead < steps[:, None]
            path = torch.where(taken, rows[:, None] + ahead, rows[:, None]).flatten()
            rewards = self.model.disagreement(observations[path], actions[path]).view_as(taken) * taken
            mean = float(rewards.sum() / steps.sum())
            self.reward = _KEPT * self.reward + (1 - _KEPT) * mean if self.reward else mean
            beyond = self.gamma**steps * self._infer(self._target, observations[rows + steps])
            targets = (rewards @ self.gamma**ahead) / max(self.scale, 1e-30) + beyond
        values = self.network(self._normalise(observations[rows]))[0, :, 0]
        loss = (values - targets).square().mean()
        number = loss.item()
        if not math.isfinite(number):
            raise CurioplanError("The loss of the value of disagreement is not finite: are the states?")
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        with torch.no_grad():
            for kept, parameter in zip(self._target.parameters(), self._parameters, strict=True):
                kept.lerp_(parameter, 1 - _KEPT)
        return number

    def state(self) -> dict[str, Any]:
        """All that is needed to go on exactly, as plain tensors, lists and numbers."""
        return {
            "network": training_state(self._parameters, self._optimizer),
            "target": [parameter.detach().clone() for parameter in self._target.parameters()],
            "reward": self.reward,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Takes over a `state()`.

        Raises:
            ConfigError: It belongs to networks of another shape.
        """
        load_training_state(self._parameters, self._optimizer, state["network"])
        for parameter, saved in zip(self._target.parameters(), state["target"], strict=True):
            parameter.data.copy_(saved)
        self.reward = float(state["reward"])
