"""SAC (Haarnoja et al., 2018) on relabelled goals."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from curioplan.config import LearnConfig
from curioplan.data.relabel import Batch
from curioplan.errors import ConfigError
from curioplan.models.training import load_training_state, training_state
from curioplan.values.learner import Info, Learner
from curioplan.values.losses import ActorObjective, climbing_loss

_LOG_STD = (-5.0, 2.0)
"""Soft bounds of the log-deviation of actions before they are squashed."""


@dataclass(frozen=True)
class SACConfig(LearnConfig):
    """SAC: twin critics, and a stochastic actor kept from collapsing by an entropy bonus."""

    algo: str = field(default="sac", init=False)
    actor_objective: ActorObjective = "value"
    """What the actor climbs beside entropy: the value, or its log-odds, which weighs far goals as much as
    near ones."""
    target_entropy: float = -1.0
    """Entropy per action dimension, in nats, that the temperature steers towards; an action uniform in
    [−1, 1] has 0.69."""
    temperature: float = 0.01
    """Temperature to start from. Values lie in [0, 1] and differ little between actions, so it is small."""
    temperature_learning_rate: float = 3e-4
    """Step size of Adam for the logarithm of the temperature; 0 keeps the temperature."""

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        super().__post_init__()
        if not self.temperature > 0:
            raise ConfigError(f"temperature must be above 0, not {self.temperature}.")
        if not self.temperature_learning_rate >= 0:
            raise ConfigError(
                f"temperature_learning_rate must be at least 0, not {self.temperature_learning_rate}."
            )


class SAC(Learner):
    """Twin critics Q₁, Q₂ with a sigmoid, and an actor π that squashes a Gaussian by tanh.

    A sigmoid critic can only hold values in [0, 1], which r + γ (Q − α log π) leaves. Entropy is therefore
    kept to the actor: it climbs

        E_{a ~ π} [min_k Q_k(s, a; g) − α log π(a | s; g)],

    while the critics' targets are those of the stochastic policy without a bonus,

        y = r + γ (1 − terminal) min_k Q'_k(s', a'; g),   a' ~ π(· | s'; g),

    so that their fixed point is the discounted chance of arriving under π itself, and γ^distance where π
    leaves little to chance. Each learner's α follows its own entropy, descending log α · (entropy − target).
    The value, and the action taken, are those of the squashed mean.
    """

    Config = SACConfig
    config: SACConfig

    def set_up(self) -> None:
        """An actor, twin critics, their slow copies, and a temperature per learner."""
        self.build_actor(2 * self.problem.action_dim)
        self.build_critics(heads=2)
        self.target_of("critic")
        config = self.config
        self.log_temperature = nn.Parameter(
            torch.full((len(self.seeds),), math.log(config.temperature), device=self.device)
        )
        self._rates["temperature"] = config.temperature_learning_rate
        self._optimizers["temperature"] = torch.optim.Adam(
            [self.log_temperature], lr=config.temperature_learning_rate, fused=True
        )

    def update(self, batch: Batch) -> Info:
        """One step of critics, actor, temperature and targets."""
        batch = self.problem.normalise(batch)
        losses, info = self.critics_loss(batch, self.targets(batch))
        self.descend("critic", losses)
        losses, more = self.actor_loss(batch)
        self.descend("actor", losses)
        self.descend("temperature", self.temperature_loss(more["entropy"]))
        self.follow("critic")
        self.updates += 1
        return info | more

    @torch.no_grad()
    def targets(self, batch: Batch) -> Tensor:
        """What the critics are regressed on, (learners, batch)."""
        actions, _ = self.sample(self.infer("actor", (batch.next_observations, batch.goals))[:, 0])
        future = self.q_logits(batch.next_observations, actions, batch.goals, "critic_target").sigmoid_()
        return self.looking_ahead(batch, future)

    def actor_loss(self, batch: Batch) -> tuple[Tensor, Info]:
        """E[α log π(a | s; g) − min_k Q_k(s, a; g)] of actions a ~ π, through which gradients flow."""
        actions, log_density = self.sample(self.evaluate("actor", (batch.observations, batch.goals))[:, 0])
        logits = self.q_logits_of_actions(batch.observations, actions, batch.goals)
        losses, info = climbing_loss(logits, self.config.actor_objective)
        temperature = self.log_temperature.detach().exp()
        entropy = -log_density.mean(1)
        info |= {"entropy": entropy.detach(), "temperature": temperature}
        return losses - temperature * entropy, info

    def temperature_loss(self, entropy: Tensor) -> Tensor:
        """The loss log α · (entropy − target), which lowers α while there is more entropy than wanted."""
        return self.log_temperature * (entropy - self.config.target_entropy * self.problem.action_dim)

    def sample(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Actions tanh(u), u ~ N(μ, σ²), and log π, from the actor's outputs (learners, N, 2 · action_dim).

        log π(tanh u) = Σ_d log N(u_d; μ_d, σ_d²) − log(1 − tanh² u_d), and the last term, computed in a way
        that survives large u, is 2 (log 2 − u − softplus(−2u)).
        """
        mean, spread = outputs.chunk(2, -1)
        low, high = _LOG_STD
        log_std = low + (high - low) * spread.sigmoid()
        noise = self.normal(*mean.shape[1:])
        raw = mean + noise * log_std.exp()
        gaussian = -noise.square() / 2 - log_std - math.log(2 * math.pi) / 2
        stretch = 2 * (math.log(2) - raw - functional.softplus(-2 * raw))
        return raw.tanh(), (gaussian - stretch).sum(-1)

    def policy(self, states: Tensor, goals: Tensor) -> Tensor:
        """The squashed mean of π(· | s; g), in [−1, 1]."""
        return self.infer("actor", (states, goals))[:, 0].chunk(2, -1)[0].tanh()

    def logits(self, states: Tensor, goals: Tensor) -> Tensor:
        """Log-odds of V(s; g) = min_k Q_k(s, a; g) for the squashed mean a."""
        return self.q_logits(states, self.policy(states, goals), goals)

    def state(self) -> dict[str, Any]:
        """See `Learner`; with the temperatures."""
        temperature = training_state([self.log_temperature], self._optimizers["temperature"])
        return super().state() | {"temperature": temperature}

    def load(self, state: dict[str, Any]) -> None:
        """See `Learner`."""
        super().load(state)
        load_training_state([self.log_temperature], self._optimizers["temperature"], state["temperature"])
