"""TD3 (Fujimoto et al., 2018) on relabelled goals: the default learner."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from curioplan.config import LearnConfig
from curioplan.data.relabel import Batch
from curioplan.errors import ConfigError
from curioplan.values.learner import Info, Learner
from curioplan.values.losses import ActorObjective, climbing_loss, critics_loss


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
    exceptions: ClassVar[dict[tuple[str, str], dict[str, Any]]] = {
        # Bounds on the values of goals fifty steps ahead, not twenty, keep far ones from falling.
        ("cpu", "maze_large"): {"p_geometric": 0.02},
        # Goals are many presses or contacts away, which a policy is long in learning.
        ("cpu", "kitchen"): {"values": "data", "lookahead": 50, "p_geometric": 0.02},
        # What lies near in numbers of buttons is seldom near in time; values need as many goals of the task.
        ("cpu", "pinpad"): {
            "values": "data",
            "lookahead": 100,
            "p_geometric": 0.01,
            "p_near": 0.1,
            "p_state": 0.3,
            "updates": 20_000,
        },
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
    values: Literal["policy", "data"] = "policy"
    """Whose values V are: the policy's, which takes for granted whatever critics overestimate, again at every
    step; or those of the better ways the data went on, learned by networks of their own from states alone."""
    expectile: float = 0.7
    """How much better, for values of the data: V is this expectile of its targets, 0.5 being their mean."""
    lookahead: int = 1
    """How many steps ahead targets look, uniformly many up to this number, along what the data did."""
    actor_objective: ActorObjective = "value"
    """What the actor climbs: the value, or its log-odds, which weighs far goals as much as near ones."""

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        super().__post_init__()
        if self.lookahead < 1:
            raise ConfigError(f"lookahead must be at least 1, not {self.lookahead}.")
        if not 0 < self.expectile < 1:
            raise ConfigError(f"expectile must be above 0 and below 1, not {self.expectile}.")


class TD3(Learner):
    """Twin critics Q₁, Q₂ with a sigmoid, and a deterministic actor squashed by tanh.

    The critics' targets are

        y = r + γ (1 − terminal) min_k Q'_k(s', π(s'; g) + ε; g),   ε = clip(N(0, 0.2), ±0.5),

    or, with `next_action` "better", the larger of this and what the data's own next action is worth. Q' are
    slowly following critics; as in the paper's code, the actor itself stands in place of a slow copy.
    The actor climbs min_k Q_k(s, π(s; g); g), which is also the value V(s; g).

    With `values` of the data, V is the lesser of two networks of its own instead, each the expectile τ of

        y = r + γ (1 − terminal) min_j V'_j(s'; g),

    which critics, then updated as often as the actor, are regressed on, too. No action but the data's is ever
    asked about. With a `lookahead`, s' is the state after n steps, or as many as the data took to the goal,
    and y is γ^(n − 1) times as much.
    """

    Config = TD3Config
    config: TD3Config

    def set_up(self) -> None:
        """An actor, twin critics, perhaps twin values, and slow copies of what targets look ahead with."""
        self.build_actor(self.problem.action_dim)
        self.build_critics(heads=2)
        if self.config.values == "data":
            situation = self.problem.observation_dim + self.problem.goal_dim
            self.build("value", situation, 1, heads=2, rate=self.config.critic_learning_rate)
        self.target_of(self.leading)

    @property
    def leading(self) -> str:
        """The networks whose slow copies targets look ahead with, updated every time."""
        return "value" if self.config.values == "data" else "critic"

    @property
    def lookahead(self) -> int:
        """See `Learner`."""
        return self.config.lookahead

    def update(self, batch: Batch) -> Info:
        """One step of critics or values and, every `policy_delay`, one of all else."""
        batch = self.problem.normalise(batch)
        targets = self.targets(batch)
        losses, info = self.leading_loss(batch, targets)
        self.descend(self.leading, losses)
        self.updates += 1
        if self.updates % self.config.policy_delay == 0:
            if self.config.values == "data":
                self.descend("critic", self.critics_loss(batch, targets)[0])
            losses, more = self.actor_loss(batch)
            self.descend("actor", losses)
            self.follow(self.leading)
            info |= more
        return info

    def leading_loss(self, batch: Batch, targets: Tensor) -> tuple[Tensor, Info]:
        """Loss of critics, or of values, (learners,)."""
        if self.config.values == "policy":
            return self.critics_loss(batch, targets)
        logits = self.evaluate("value", (batch.observations, batch.goals))[..., 0]
        return critics_loss(logits, targets, self.config.critic_loss, self.config.expectile)

    @torch.no_grad()
    def targets(self, batch: Batch) -> Tensor:
        """What critics and values are regressed on, (learners, batch)."""
        rows = _unfinished_rows(batch.terminals)  # the future of the others does not matter

        def some(content: Tensor) -> Tensor:
            return content.take_along_dim(rows[..., None], 1)

        states, goals, taken = some(batch.next_observations), some(batch.goals), batch.next_actions
        if self.config.values == "data":
            logits = self.infer("value_target", (states, goals))[..., 0].amin(1)
        else:
            noise = self.normal(*batch.actions.shape[1:]).mul_(self.config.target_noise)
            noise.clamp_(-self.config.noise_clip, self.config.noise_clip)
            actions = (self.policy(states, goals) + some(noise)).clamp_(-1, 1)
            logits = self.q_logits(states, actions, goals, "critic_target")
            if self.config.next_action == "better" and taken is not None:
                logits = torch.maximum(logits, self.q_logits(states, some(taken), goals, "critic_target"))
        future = torch.zeros_like(batch.rewards).scatter_(1, rows, logits.sigmoid_())
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
        """Log-odds of V(s; g) = min_k Q_k(s, π(s; g); g), or of the lesser of two values of the data."""
        if self.config.values == "data":
            return self.infer("value", (states, goals))[..., 0].amin(1)
        return self.q_logits(states, self.policy(states, goals), goals)

    def logits_above(self, states: Tensor, goals: Tensor, least: Tensor) -> Tensor:
        """See `Learner`: the second critic is asked only where the first gives enough."""
        if len(self.seeds) > 1 or self.config.values == "data":
            return self.logits(states, goals)
        critic = self.networks["critic"]
        inputs = torch.cat([states, self.policy(states, goals), goals], -1)[0]
        first = critic.infer(inputs, [0])[0, :, 0]
        enough = torch.nonzero(first >= least)[:, 0]
        second = critic.infer(inputs[enough], [1])[0, :, 0]
        return first.scatter_reduce_(0, enough, second, "amin")[None]


def _unfinished_rows(terminals: Tensor) -> Tensor:
    """The rows (learners, n) of a batch that are not terminal and, for learners with fewer, some that are."""
    count = int((terminals == 0).sum(1).max())
    return terminals.argsort(dim=1, stable=True)[:, :count]
