"""TD3 (Fujimoto et al., 2018) on relabelled goals: the default learner."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from curioplan.config import LearnConfig
from curioplan.data.relabel import Batch
from curioplan.values.learner import Info, Learner
from curioplan.values.losses import ActorObjective, climbing_loss


@dataclass(frozen=True)
class TD3Config(LearnConfig):
    """TD3: twin critics against overestimation, noise on the target's actions, a slower actor."""

    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "cpu": {
            "actor_objective": "log-odds",
            # Goals further ahead and elsewhere, bounds on their values, and targets that follow fast: values
            # settle, where they else keep falling for as long as one trains.
            "hindsight": True,
            "next_action": "better",
            "p_goal": 0.5,
            "p_near": 0.5,  # goals behind walls: that these are far is seldom seen otherwise
            "p_geometric": 0.05,
            "polyak": 0.98,
            "updates": 12_000,
        }
    }
    algo: str = field(default="td3", init=False)
    target_noise: float = 0.2
    """Deviation of the noise on the target's actions, in units of half the action range."""
    noise_clip: float = 0.5
    """Where that noise is clipped."""
    policy_delay: int = 2
    """Critic updates per update of the actor and of the target critics."""
    next_action: Literal["policy", "better"] = "policy"
    """What targets look ahead with: the policy's action, or the better of that and what the data did next,
    which keeps values from falling with a policy that has yet to learn."""
    actor_objective: ActorObjective = "value"
    """What the actor climbs: the value, or its log-odds, which weighs far goals as much as near ones."""


class TD3(Learner):
    """Twin critics Q₁, Q₂ with a sigmoid, and a deterministic actor squashed by tanh.

    The critics' targets are

        y = r + γ (1 − terminal) min_k Q'_k(s', π(s'; g) + ε; g),   ε = clip(N(0, 0.2), ±0.5),

    or, with `next_action` "better", the larger of this and what the data's own next action is worth. Q' are
    slowly following critics; as in the paper's code, the actor itself stands in place of a slow copy.
    The actor climbs min_k Q_k(s, π(s; g); g), which is also the value V(s; g).
    """

    Config = TD3Config
    config: TD3Config

    def set_up(self) -> None:
        """An actor, twin critics and their slow copies."""
        self.build_actor(self.problem.action_dim)
        self.build_critics(heads=2)
        self.target_of("critic")

    def update(self, batch: Batch) -> Info:
        """One step of the critics and, every `policy_delay`, one of actor and targets."""
        batch = self.problem.normalise(batch)
        losses, info = self.critics_loss(batch, self.targets(batch))
        self.descend("critic", losses)
        self.updates += 1
        if self.updates % self.config.policy_delay == 0:
            losses, more = self.actor_loss(batch)
            self.descend("actor", losses)
            self.follow("critic")
            info |= more
        return info

    @torch.no_grad()
    def targets(self, batch: Batch) -> Tensor:
        """What the critics are regressed on, (learners, batch)."""
        actions = self.policy(batch.next_observations, batch.goals)
        noise = self.normal(*actions.shape[1:]).mul_(self.config.target_noise)
        noise.clamp_(-self.config.noise_clip, self.config.noise_clip)
        actions = (actions + noise).clamp_(-1, 1)
        future = self.q_logits(batch.next_observations, actions, batch.goals, "critic_target").sigmoid_()
        if self.config.next_action == "better" and batch.next_actions is not None:
            taken = self.q_logits(batch.next_observations, batch.next_actions, batch.goals, "critic_target")
            future = torch.maximum(future, taken.sigmoid_())
        return self.looking_ahead(batch, future)

    def actor_loss(self, batch: Batch) -> tuple[Tensor, Info]:
        """How little the critics, which stay as they are, value the actor's actions (learners,)."""
        actions = self.evaluate("actor", (batch.observations, batch.goals))[:, 0].tanh()
        logits = self.q_logits_of_actions(batch.observations, actions, batch.goals)
        return climbing_loss(logits, self.config.actor_objective)

    def policy(self, states: Tensor, goals: Tensor) -> Tensor:
        """π(s; g) in [−1, 1]."""
        return self.infer("actor", (states, goals))[:, 0].tanh_()

    def logits(self, states: Tensor, goals: Tensor) -> Tensor:
        """Log-odds of V(s; g) = min_k Q_k(s, π(s; g); g)."""
        return self.q_logits(states, self.policy(states, goals), goals)

    def logits_above(self, states: Tensor, goals: Tensor, least: Tensor) -> Tensor:
        """See `Learner`: the second critic is asked only where the first gives enough."""
        if len(self.seeds) > 1:
            return self.logits(states, goals)
        critic = self.networks["critic"]
        inputs = torch.cat([states, self.policy(states, goals), goals], -1)[0]
        first = critic.infer(inputs, [0])[0, :, 0]
        enough = torch.nonzero(first >= least)[:, 0]
        second = critic.infer(inputs[enough], [1])[0, :, 0]
        return first.scatter_reduce_(0, enough, second, "amin")[None]
