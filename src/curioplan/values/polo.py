"""POLO's values (Lowrey et al., 2019): an ensemble for goals known in training, whose doubts draw one on."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from curioplan.config import LearnConfig
from curioplan.data.relabel import Batch
from curioplan.errors import ConfigError
from curioplan.values.learner import Info, Learner
from curioplan.values.losses import regression_loss


@dataclass(frozen=True)
class POLOConfig(LearnConfig):
    """POLO: values without an actor, several of them, which differ where nothing has been learned."""

    algo: str = field(default="polo", init=False)
    members: int = 6
    """Value networks."""
    prior: float = 3.0
    """Scale of the fixed random network that is added to each, so that they differ where nothing is known."""
    optimism: float = 20.0
    """κ in the optimistic value: near 0 it is the mean of the members, from above it nears their maximum."""

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        super().__post_init__()
        if self.members < 1 or self.prior < 0 or not 0 < self.optimism < math.inf:
            raise ConfigError("POLO needs at least one member, a prior of at least 0 and optimism above 0.")


class POLO(Learner):
    """Members V_k(s; g) = sigmoid(f_k + prior · p_k), with f_k learned and p_k random and fixed.

    Each is regressed on targets of its own, such as r + γ (1 − terminal) V'_k(s'; g) with slowly following
    copies V', so that what the priors say spreads against time as doubts do (Osband et al., 2018). The value
    is the mean of the members; the optimistic one is

        log (mean_k exp(κ V_k)) / κ ≈ mean_k V_k + κ/2 · variance_k V_k.

    There is no actor: actions come from planning.
    """

    Config = POLOConfig
    config: POLOConfig

    def set_up(self) -> None:
        """Value networks, their fixed priors and slow copies."""
        config, situation = self.config, self.problem.observation_dim + self.problem.goal_dim
        self.build("critic", situation, 1, heads=config.members, rate=config.critic_learning_rate)
        prior = self.build("prior", situation, 1, heads=config.members).requires_grad_(False)
        for weight in prior.weights:  # initial weights are small, and so would be the differences
            weight.data.mul_(2.0)
        self.target_of("critic")

    def update(self, batch: Batch) -> Info:
        """One step towards r + γ (1 − terminal) V'_k(s'; g): the values of whatever policy acted."""
        batch = self.problem.normalise(batch)
        future = self.members(batch.next_observations, batch.goals, "critic_target").sigmoid_()
        rewards, terminals = batch.rewards[:, None], batch.terminals[:, None]
        return self.regress(
            batch.observations, batch.goals, rewards + self.problem.gamma * (1 - terminals) * future
        )

    def regress(self, states: Tensor, goals: Tensor, targets: Tensor) -> Info:
        """One step of every member towards targets of its own.

        Args:
            states: Normalised, (learners, batch, ·).
            goals: Normalised, (learners, batch, ·).
            targets: In [0, 1], (learners, members, batch).
        """
        prior = self.infer("prior", (states, goals))[..., 0]
        logits = self.evaluate("critic", (states, goals))[..., 0] + self.config.prior * prior
        self.descend("critic", regression_loss(logits, targets, self.config.critic_loss).mean(2).sum(1))
        self.follow("critic")
        self.updates += 1
        values = logits.detach().sigmoid()
        return {
            "td_error": (values - targets).abs_().mean((1, 2)),
            "q": values.mean((1, 2)),
            "doubt": values.std(1, correction=0).mean(1),
        }

    def members(self, states: Tensor, goals: Tensor, which: str = "critic") -> Tensor:
        """Log-odds of every member, or of its slow copy (learners, members, N), of normalised inputs."""
        prior = self.infer("prior", (states, goals))[..., 0]
        return self.infer(which, (states, goals))[..., 0] + self.config.prior * prior

    @torch.no_grad()
    def target_values(self, states: Tensor, goals: Tensor) -> Tensor:
        """V'_k(s; g) of states (N, ·) and goals (N, ·) of the environment, (learners, members, N)."""
        return self.members(*self.inputs(states, goals), "critic_target").sigmoid_()

    @torch.no_grad()
    def optimistic(self, states: Tensor, goals: Tensor) -> Tensor:
        """The optimistic value of states (N, ·) and goals (N, ·), (learners, N)."""
        values = self.members(*self.inputs(states, goals)).sigmoid_()
        kappa = self.config.optimism
        return ((kappa * values).logsumexp(1) - math.log(self.config.members)) / kappa

    def logits(self, states: Tensor, goals: Tensor) -> Tensor:
        """Log-odds of the mean of the members' values, precise however small."""
        members = self.members(states, goals)
        return logsigmoid(members).logsumexp(1) - logsigmoid(-members).logsumexp(1)

    def policy(self, states: Tensor, goals: Tensor) -> Tensor:
        """There is none.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError("POLO has no policy of its own: evaluate it with the controller mbp.")
