"""IQL (Kostrikov et al., 2022): values of the best actions of the data, without ever asking about others."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from curioplan.config import LearnConfig
from curioplan.data.relabel import Batch
from curioplan.errors import ConfigError
from curioplan.values.learner import Info, Learner
from curioplan.values.losses import expectile_weights, regression_loss


@dataclass(frozen=True)
class IQLConfig(LearnConfig):
    """IQL: expectile regression of values, and an actor by advantage-weighted regression.

    The defaults of expectile and temperature are those of its paper for navigation (AntMaze), where the
    choice among the data's actions matters most.
    """

    algo: str = field(default="iql", init=False)
    expectile: float = 0.9
    """Which expectile τ of the data's actions V is: 0.5 their mean, towards 1 their best."""
    temperature: float = 10.0
    """How strongly the actor prefers actions of higher value: β in exp(β A / (1 − γ)). An advantage of 1 − γ
    is about one step gained, so this does not depend on the discount; 0 is behaviour cloning."""
    max_weight: float = 100.0
    """Where the actor's weights are capped."""

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        super().__post_init__()
        if not 0 < self.expectile < 1:
            raise ConfigError(f"expectile must be above 0 and below 1, not {self.expectile}.")
        if not (self.temperature >= 0 and self.max_weight > 0):
            raise ConfigError("temperature must be at least 0 and max_weight above 0.")


class IQL(Learner):
    """A value network V, twin critics Q₁, Q₂, all with a sigmoid, and an actor squashed by tanh.

    V is the expectile τ of the critics over the data's actions, and the critics look one step ahead with it:

        L_V = E[|τ − 1(u < 0)| u²],   u = min_k Q'_k(s, a; g) − V(s; g),
        L_Q = E[(r + γ (1 − terminal) V(s'; g) − Q_k(s, a; g))²].

    Since Q averages over s' before V picks among actions, lucky outcomes do not make V optimistic. The reward
    is 1 on arrival, so V* = γ^(steps to the goal − 1). Critics Q' follow slowly. The actor is a normal
    distribution of constant deviation, whose log-likelihood is a squared error:

        L_π = E[min(exp(β A / (1 − γ)), 100) |a − π(s; g)|²],   A = min_k Q'_k(s, a; g) − V(s; g).

    The paper's β is for rewards of −1 per step, under which advantages are those of ours over 1 − γ.
    """

    Config = IQLConfig
    config: IQLConfig

    def set_up(self) -> None:
        """An actor, a value network, twin critics and their slow copies."""
        situation = self.problem.observation_dim + self.problem.goal_dim
        self.build_actor(self.problem.action_dim)
        self.build("value", situation, 1, rate=self.config.critic_learning_rate)
        self.build_critics(heads=2)
        self.target_of("critic")

    def update(self, batch: Batch) -> Info:
        """One step of value network, actor and critics, in this order, and the slow critics move."""
        batch = self.problem.normalise(batch)
        q = self.q_logits(batch.observations, batch.actions, batch.goals, "critic_target").sigmoid_()
        losses, info = self.value_loss(batch, q)
        self.descend("value", losses)
        self.updates += 1
        losses, more = self.actor_loss(batch, q)
        self.descend("actor", losses)
        info |= more
        losses, more = self.critics_loss(batch, self.targets(batch))
        self.descend("critic", losses)
        self.follow("critic")
        return info | more

    def value_loss(self, batch: Batch, q: Tensor) -> tuple[Tensor, Info]:
        """Expectile loss of V (learners,) against the values `q` of the data's actions."""
        logits = self.evaluate("value", (batch.observations, batch.goals))[:, 0, :, 0]
        values = logits.detach().sigmoid()
        weights = expectile_weights(q - values, self.config.expectile)
        loss = weights * regression_loss(logits, q, self.config.critic_loss)
        return loss.mean(1), {"value": values.mean(1), "advantage": (q - values).mean(1)}

    def actor_loss(self, batch: Batch, q: Tensor) -> tuple[Tensor, Info]:
        """Squared error of the actor (learners,), weighted by the advantage of the data's actions."""
        values = self.infer("value", (batch.observations, batch.goals))[:, 0, :, 0].sigmoid_()
        weights = self.actor_weights(q - values)
        actions = self.evaluate("actor", (batch.observations, batch.goals))[:, 0].tanh()
        error = (actions - batch.actions).square().sum(-1)
        return (weights * error).mean(1), {"weight": weights.mean(1), "error": error.detach().mean(1)}

    def actor_weights(self, advantages: Tensor) -> Tensor:
        """exp(β A / (1 − γ)), capped."""
        scale = self.config.temperature / (1 - self.problem.gamma)
        return (scale * advantages).exp().clamp(max=self.config.max_weight)

    @torch.no_grad()
    def targets(self, batch: Batch) -> Tensor:
        """What the critics are regressed on, (learners, batch)."""
        future = self.infer("value", (batch.next_observations, batch.goals))[:, 0, :, 0].sigmoid_()
        return self.looking_ahead(batch, future)

    def policy(self, states: Tensor, goals: Tensor) -> Tensor:
        """π(s; g) in [−1, 1]."""
        return self.infer("actor", (states, goals))[:, 0].tanh_()

    def logits(self, states: Tensor, goals: Tensor) -> Tensor:
        """Log-odds of V(s; g)."""
        return self.infer("value", (states, goals))[:, 0, :, 0]
