"""DDPG (Lillicrap et al., 2016) on relabelled goals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from curioplan.config import LearnConfig
from curioplan.data.relabel import Batch
from curioplan.values.learner import Info, Learner
from curioplan.values.losses import ActorObjective, climbing_loss


@dataclass(frozen=True)
class DDPGConfig(LearnConfig):
    """DDPG: one critic and one actor, each with a slow copy."""

    presets: ClassVar[dict[str, dict[str, Any]]] = {"cpu": {"actor_objective": "log-odds"}}
    algo: str = field(default="ddpg", init=False)
    actor_objective: ActorObjective = "value"
    """What the actor climbs: the value, or its log-odds, which weighs far goals as much as near ones."""


class DDPG(Learner):
    """A critic Q with a sigmoid, and a deterministic actor squashed by tanh.

    The critic's targets are

        y = r + γ (1 − terminal) Q'(s', π'(s'; g); g),

    with slow copies Q' and π' of both. The actor climbs Q(s, π(s; g); g), which is also the value V(s; g).
    """

    Config = DDPGConfig
    config: DDPGConfig

    def set_up(self) -> None:
        """An actor, a critic and their slow copies."""
        self.build_actor(self.problem.action_dim)
        self.build_critics()
        self.target_of("actor")
        self.target_of("critic")

    def update(self, batch: Batch) -> Info:
        """One step of critic, actor and targets."""
        batch = self.problem.normalise(batch)
        losses, info = self.critics_loss(batch, self.targets(batch))
        self.descend("critic", losses)
        losses, more = self.actor_loss(batch)
        self.descend("actor", losses)
        self.follow("critic")
        self.follow("actor")
        self.updates += 1
        return info | more

    @torch.no_grad()
    def targets(self, batch: Batch) -> Tensor:
        """What the critic is regressed on, (learners, batch)."""
        actions = self.infer("actor_target", (batch.next_observations, batch.goals))[:, 0].tanh_()
        future = self.q_logits(batch.next_observations, actions, batch.goals, "critic_target").sigmoid_()
        return self.looking_ahead(batch, future)

    def actor_loss(self, batch: Batch) -> tuple[Tensor, Info]:
        """How little the critic, which stays as it is, values the actor's actions (learners,)."""
        actions = self.evaluate("actor", (batch.observations, batch.goals))[:, 0].tanh()
        logits = self.q_logits_of_actions(batch.observations, actions, batch.goals)
        return climbing_loss(logits, self.config.actor_objective)

    def policy(self, states: Tensor, goals: Tensor) -> Tensor:
        """π(s; g) in [−1, 1]."""
        return self.infer("actor", (states, goals))[:, 0].tanh_()

    def logits(self, states: Tensor, goals: Tensor) -> Tensor:
        """Log-odds of V(s; g) = Q(s, π(s; g); g)."""
        return self.q_logits(states, self.policy(states, goals), goals)
