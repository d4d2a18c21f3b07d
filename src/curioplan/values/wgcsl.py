"""WGCSL (Yang et al., 2022): imitate what reached a goal later on, the sooner and the better the more."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from curioplan.config import LearnConfig
from curioplan.data.relabel import Batch
from curioplan.errors import ConfigError, CurioplanError
from curioplan.values.learner import Info, Learner

_THRESHOLD_RATE = 0.01
"""Weight of a batch in the running quantile: a memory of about a hundred batches, 50 000 transitions of 512
each, which is as many as the authors keep."""


@dataclass(frozen=True)
class WGCSLConfig(LearnConfig):
    """WGCSL: goal-conditioned imitation with weights of three parts, and a critic for two of them."""

    algo: str = field(default="wgcsl", init=False)
    max_weight: float = 10.0
    """Where the exponential advantage weights are capped."""
    low_weight: float = 0.05
    """Factor for transitions whose advantage is below the threshold, ε in the paper."""
    percentile_step: float = 0.01
    """Percentage points by which the threshold rises per update; it starts at the lowest advantage."""
    max_percentile: float = 80.0
    """Percentile of advantages at which the threshold stops rising."""

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        super().__post_init__()
        if not 0 <= self.max_percentile <= 100:
            raise ConfigError(f"max_percentile must be between 0 and 100, not {self.max_percentile}.")
        if not (self.max_weight > 0 and min(self.low_weight, self.percentile_step) >= 0):
            raise ConfigError("max_weight must be above 0, and low_weight and percentile_step at least 0.")
        if self.p_goal == 0:
            raise ConfigError("WGCSL imitates what reached later states: p_goal must be above 0.")


class WGCSL(Learner):
    """A critic Q with a sigmoid and a deterministic actor squashed by tanh.

    Where the goal g is that of the state s_i some steps after s_t, the actor imitates a_t:

        L_π = E[γ^(i − t) · min(exp(A / (1 − γ)), 10) · ε(A) · |a_t − π(s_t; g)|²],
        A = r + γ (1 − terminal) V(s_{t+1}; g) − V(s_t; g),   V(s; g) = Q(s, π(s; g); g),

    with ε(A) = 1 from a threshold Â on and 0.05 below. Â is a percentile of the advantages, kept as a running
    average over batches, that rises from 0 to 80. In the paper every step at the goal is paid, not only
    arrival: its values are ours over 1 − γ, and so are its advantages. The critic's target is
    r + γ (1 − terminal) Q'(s', π'(s'; g); g) by slow copies. Transitions with random goals train the critic
    alone, since nothing says that their actions lead there.
    """

    Config = WGCSLConfig
    config: WGCSLConfig

    def set_up(self) -> None:
        """An actor, a critic, their slow copies, and the threshold of each learner."""
        self.build_actor(self.problem.action_dim)
        self.build_critics()
        self.target_of("actor")
        self.target_of("critic")
        self.threshold = torch.zeros(len(self.seeds), device=self.device)

    def update(self, batch: Batch) -> Info:
        """One step of the critic, one of the actor, and their slow copies move."""
        batch = self.problem.normalise(batch)
        losses, info = self.critics_loss(batch, self.targets(batch))
        self.descend("critic", losses)
        losses, more = self.actor_loss(batch)
        self.descend("actor", losses)
        self.updates += 1
        self.follow("actor")
        self.follow("critic")
        return info | more

    @torch.no_grad()
    def targets(self, batch: Batch) -> Tensor:
        """What the critic is regressed on, (learners, batch)."""
        actions = self.infer("actor_target", (batch.next_observations, batch.goals))[:, 0].tanh_()
        future = self.q_logits(batch.next_observations, actions, batch.goals, "critic_target").sigmoid_()
        return self.looking_ahead(batch, future)

    def actor_loss(self, batch: Batch) -> tuple[Tensor, Info]:
        """Squared error of the actor (learners,), weighted, over transitions with goals ahead of them."""
        if batch.steps is None:
            raise CurioplanError("WGCSL needs batches that tell how many steps ahead their goals lie.")
        advantages = self.advantages(batch)
        self.move_threshold(advantages, batch.steps > 0)
        weights = self.weights(advantages, batch.steps)
        actions = self.evaluate("actor", (batch.observations, batch.goals))[:, 0].tanh()
        error = (actions - batch.actions).square().mean(-1)
        imitated = (batch.steps > 0).sum(1).clamp(min=1)
        info = {
            "weight": weights.sum(1) / imitated,
            "error": (error.detach() * (batch.steps > 0)).sum(1) / imitated,
            "threshold": self.threshold.clone(),
        }
        return (weights * error).sum(1) / imitated, info

    @torch.no_grad()
    def advantages(self, batch: Batch) -> Tensor:
        """A = r + γ (1 − terminal) V(s'; g) − V(s; g), (learners, batch)."""
        states = torch.cat([batch.observations, batch.next_observations], 1)
        now, future = self.logits(states, batch.goals.repeat(1, 2, 1)).sigmoid_().chunk(2, 1)
        return self.looking_ahead(batch, future) - now

    @torch.no_grad()
    def move_threshold(self, advantages: Tensor, imitated: Tensor) -> None:
        """Take the percentile of a batch's imitated advantages into each learner's running average."""
        config = self.config
        percentile = min(self.updates * config.percentile_step, config.max_percentile)
        known = advantages.masked_fill(~imitated, torch.nan)
        quantile = known.nanquantile(percentile / 100, 1)
        quantile = torch.where(quantile.isnan(), self.threshold, quantile)  # nothing to imitate
        self.threshold = self.threshold.lerp(quantile, max(_THRESHOLD_RATE, 1 / (1 + self.updates)))

    def weights(self, advantages: Tensor, steps: Tensor) -> Tensor:
        """Discount times exponential times best-advantage weight, 0 for random goals (learners, batch)."""
        config, gamma = self.config, self.problem.gamma
        exponential = (advantages / (1 - gamma)).exp().clamp(max=config.max_weight)
        best = torch.where(advantages >= self.threshold[:, None], 1.0, config.low_weight)
        return torch.where(steps > 0, gamma**steps * exponential * best, 0.0)

    def policy(self, states: Tensor, goals: Tensor) -> Tensor:
        """π(s; g) in [−1, 1]."""
        return self.infer("actor", (states, goals))[:, 0].tanh_()

    def logits(self, states: Tensor, goals: Tensor) -> Tensor:
        """Log-odds of V(s; g) = Q(s, π(s; g); g)."""
        return self.q_logits(states, self.policy(states, goals), goals)

    def state(self) -> dict[str, Any]:
        """As for all learners, and the thresholds."""
        return super().state() | {"threshold": self.threshold.clone()}

    def load(self, state: dict[str, Any]) -> None:
        """Take over a `state()`."""
        super().load(state)
        self.threshold = state["threshold"].to(self.device, copy=True)
