"""CRR (Wang et al., 2020): imitate the actions of the data that a critic prefers to the actor's own."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from curioplan.config import LearnConfig
from curioplan.data.relabel import Batch
from curioplan.errors import ConfigError
from curioplan.values.learner import Info, Learner

_LOG_STD_MIN, _LOG_STD_MAX = -3.0, 0.0
"""Bounds of the actor's log-deviations: from a fortieth of the action range to half of it. Without the lower
one, the likelihood of actions that the data repeats exactly, such as those at the bounds, has no maximum."""


@dataclass(frozen=True)
class CRRConfig(LearnConfig):
    """CRR: a stochastic actor by weighted behaviour cloning, twin critics of that actor."""

    algo: str = field(default="crr", init=False)
    beta: float = 1.0
    """Temperature of the weights exp(A / β): the smaller, the more the better actions count. Advantages are
    differences of values in [0, 1], mostly below 1 − γ², so at 1 the weights are nearly equal."""
    action_samples: int = 4
    """Actions of the actor that a data action is compared with."""
    max_weight: float = 20.0
    """Where the weights are capped."""

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        super().__post_init__()
        if not (self.beta > 0 and self.max_weight > 0 and self.action_samples >= 1):
            raise ConfigError("beta and max_weight must be above 0, action_samples at least 1.")


class CRR(Learner):
    """Twin critics Q₁, Q₂ with a sigmoid, and a Gaussian actor.

    The actor π(a|s; g) is a normal distribution whose mean is squashed by tanh and whose samples are clipped
    to the bounds, rather than squashed themselves: curious data is full of actions at the bounds, where the
    density of a squashed normal is not finite, and this one's is. Its losses are

        − E[min(exp(A / β), 20) log π(a|s; g)],   A = Q(s, a; g) − mean_j Q(s, a_j; g),   a_j ~ π(·|s; g),

    with Q = min_k Q_k. The critics' targets are r + γ (1 − terminal) Q'(s', a'; g) with one a' ~ π'(·|s'; g);
    critics Q' and actor π' follow slowly. The policy is the mean, and V(s; g) is Q there.
    """

    Config = CRRConfig
    config: CRRConfig

    def set_up(self) -> None:
        """An actor with means and deviations, twin critics, and slow copies of all."""
        self.build_actor(2 * self.problem.action_dim)
        self.build_critics(heads=2)
        self.target_of("actor")
        self.target_of("critic")

    def update(self, batch: Batch) -> Info:
        """One step of the critics, one of the actor, and their slow copies move."""
        batch = self.problem.normalise(batch)
        losses, info = self.critics_loss(batch, self.targets(batch))
        self.descend("critic", losses)
        self.updates += 1
        losses, more = self.actor_loss(batch)
        self.descend("actor", losses)
        self.follow("actor")
        self.follow("critic")
        return info | more

    @torch.no_grad()
    def targets(self, batch: Batch) -> Tensor:
        """What the critics are regressed on, (learners, batch)."""
        mean, log_std = _gaussian(self.infer("actor_target", (batch.next_observations, batch.goals))[:, 0])
        actions = self.sample(mean, log_std)
        future = self.q_logits(batch.next_observations, actions, batch.goals, "critic_target").sigmoid_()
        return self.looking_ahead(batch, future)

    def actor_loss(self, batch: Batch) -> tuple[Tensor, Info]:
        """Negative log-likelihood of the data's actions (learners,), weighted by their advantage."""
        mean, log_std = _gaussian(self.evaluate("actor", (batch.observations, batch.goals))[:, 0])
        weights = self.weights(self.advantages(batch, mean.detach(), log_std.detach()))
        likelihood = log_likelihood(batch.actions, mean, log_std)
        info = {"log_likelihood": likelihood.detach().mean(1), "weight": weights.mean(1)}
        return -(weights * likelihood).mean(1), info

    @torch.no_grad()
    def advantages(self, batch: Batch, mean: Tensor, log_std: Tensor) -> Tensor:
        """A(s, a; g) of the data's actions (learners, batch), over the mean of the actor's samples."""
        candidates = [batch.actions]
        candidates += [self.sample(mean, log_std) for _ in range(self.config.action_samples)]
        inputs = (
            batch.observations.repeat(1, len(candidates), 1),
            torch.cat(candidates, 1),
            batch.goals.repeat(1, len(candidates), 1),
        )
        values = self.q_logits(*inputs).sigmoid_()
        values = values.unflatten(1, (len(candidates), -1))  # (learners, 1 + samples, batch)
        return values[:, 0] - values[:, 1:].mean(1)

    def weights(self, advantages: Tensor) -> Tensor:
        """exp(A / β), capped."""
        return (advantages / self.config.beta).exp().clamp(max=self.config.max_weight)

    def sample(self, mean: Tensor, log_std: Tensor) -> Tensor:
        """An action in [−1, 1] for each mean and deviation (learners, batch, action_dim)."""
        noise = self.normal(*mean.shape[1:])
        return torch.addcmul(mean, noise, log_std.exp()).clamp_(-1, 1)

    def policy(self, states: Tensor, goals: Tensor) -> Tensor:
        """The mean of π(·|s; g), in [−1, 1]."""
        return _gaussian(self.infer("actor", (states, goals))[:, 0])[0]

    def logits(self, states: Tensor, goals: Tensor) -> Tensor:
        """Log-odds of V(s; g) = min_k Q_k at the policy's action."""
        return self.q_logits(states, self.policy(states, goals), goals)


def log_likelihood(actions: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Log-density of a under N(μ, σ²), summed over the last dimension."""
    scaled = (actions - mean) * (-log_std).exp()
    return -(0.5 * scaled.square() + log_std + 0.5 * math.log(2 * math.pi)).sum(-1)


def _gaussian(outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Mean in [−1, 1] and bounded log-deviation, each (…, action_dim), of the actor's outputs."""
    mean, raw = outputs.chunk(2, -1)
    return mean.tanh(), _LOG_STD_MIN + (_LOG_STD_MAX - _LOG_STD_MIN) * raw.sigmoid()
