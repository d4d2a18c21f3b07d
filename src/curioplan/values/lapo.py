"""LAPO (Chen et al., 2022): a policy over the latent variable of a generative model of good actions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from curioplan.config import LearnConfig
from curioplan.data.relabel import Batch
from curioplan.errors import ConfigError
from curioplan.values.learner import Info, Learner
from curioplan.values.losses import ActorObjective, climbing_loss

_LOG_VARIANCE_MIN, _LOG_VARIANCE_MAX = -8.0, 4.0
"""Bounds of the encoder's log-variances."""


@dataclass(frozen=True)
class LAPOConfig(LearnConfig):
    """LAPO: a VAE of the data's actions, weighted by advantage, and an actor in its latent space."""

    presets: ClassVar[dict[str, dict[str, Any]]] = {"cpu": {"actor_objective": "log-odds"}}
    algo: str = field(default="lapo", init=False)
    latent_dim: int = 0
    """Dimensions of the latent variable; 0 takes twice those of actions."""
    max_latent: float = 2.0
    """Bound of the actor's latent actions, in deviations of the prior."""
    kl_weight: float = 0.1
    """Weight of the KL divergence to the prior against squared errors of actions in [−1, 1]. The authors' 0.3
    for mazes is for actions of unit variance; those uniform in [−1, 1] have a third of it."""
    positive_weight: float = 0.9
    """Weight of actions better than the policy's in the VAE's loss; the others get what is missing to 1."""
    target_noise: float = 0.2
    """Deviation of the noise on the target's latent actions."""
    noise_clip: float = 0.5
    """Where that noise is clipped."""
    actor_objective: ActorObjective = "value"
    """What the actor climbs: the value, or its log-odds, which weighs far goals as much as near ones."""

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        super().__post_init__()
        if not 0 < self.positive_weight < 1:
            raise ConfigError(f"positive_weight must be above 0 and below 1, not {self.positive_weight}.")
        if not (self.max_latent > 0 and min(self.latent_dim, self.kl_weight, self.target_noise) >= 0):
            raise ConfigError(
                "max_latent must be above 0, and latent_dim, kl_weight and target_noise at least 0."
            )


class LAPO(Learner):
    """Encoder q(z|s, a; g) and decoder p(a|s, z; g), an actor π(s; g) in latent space, twin critics Q₁, Q₂.

    The variational autoencoder is trained on the data's actions, those better than the policy's above all:

        L = E[w (|a − â(s, z; g)|² + κ KL(q(z|s, a; g) ‖ N(0, 1)))],   z ~ q,
        w = 0.9 if Q(s, a; g) > V(s; g) else 0.1,

    so that latent actions, which the actor's tanh keeps within ±2, decode into actions like those. The actor
    climbs Q(s, â(s, π(s; g); g); g) = V(s; g), with Q = min_k Q_k, through decoder and critics. The critics'
    targets are

        y = r + γ (1 − terminal) Q'(s', â'(s', π'(s'; g) + ε; g); g),   ε = clip(N(0, 0.2), ±0.5),

    by slowly following critics, actor and decoder. The authors also fit a network to V, which changes no
    fixed point and is left out, and act through the slow decoder, for which this takes the decoder itself.
    """

    Config = LAPOConfig
    config: LAPOConfig

    def set_up(self) -> None:
        """The two halves of the autoencoder, the latent actor, twin critics, and slow copies."""
        config, actions = self.config, self.problem.action_dim
        situation, latent = self.problem.observation_dim + self.problem.goal_dim, self.latent_dim
        self.build("encoder", situation + actions, 2 * latent, rate=config.actor_learning_rate)
        self.build("decoder", situation + latent, actions, rate=config.actor_learning_rate)
        self.build_actor(latent)
        self.build_critics(heads=2)
        for name in ("decoder", "actor", "critic"):
            self.target_of(name)

    @property
    def latent_dim(self) -> int:
        """Dimensions of the latent variable."""
        return self.config.latent_dim or 2 * self.problem.action_dim

    def update(self, batch: Batch) -> Info:
        """One step of the critics, the autoencoder and the latent actor, and their slow copies move."""
        batch = self.problem.normalise(batch)
        losses, info = self.critics_loss(batch, self.targets(batch))
        self.descend("critic", losses)
        self.updates += 1
        losses, more = self.autoencoder_loss(batch, self.weights(self.advantages(batch)))
        self.descend(("encoder", "decoder"), losses)
        info |= more
        losses, more = self.actor_loss(batch)
        self.descend("actor", losses)
        for name in ("decoder", "actor", "critic"):
            self.follow(name)
        return info | more

    @torch.no_grad()
    def targets(self, batch: Batch) -> Tensor:
        """What the critics are regressed on, (learners, batch)."""
        config, situation = self.config, (batch.next_observations, batch.goals)
        latents = self.infer("actor_target", situation)[:, 0].tanh_().mul_(config.max_latent)
        noise = self.normal(*latents.shape[1:]).mul_(config.target_noise)
        latents = (latents + noise.clamp_(-config.noise_clip, config.noise_clip)).clamp_(
            -config.max_latent, config.max_latent
        )
        actions = self.infer("decoder_target", (*situation, latents))[:, 0].tanh_()
        future = self.q_logits(batch.next_observations, actions, batch.goals, "critic_target").sigmoid_()
        return self.looking_ahead(batch, future)

    @torch.no_grad()
    def advantages(self, batch: Batch) -> Tensor:
        """Q(s, a; g) − V(s; g) of the data's actions (learners, batch)."""
        values = self.logits(batch.observations, batch.goals).sigmoid_()
        return self.q_logits(batch.observations, batch.actions, batch.goals).sigmoid_() - values

    def weights(self, advantages: Tensor) -> Tensor:
        """0.9 for better actions than the policy's, 0.1 for others."""
        share = self.config.positive_weight
        return torch.where(advantages > 0, share, 1 - share)

    def autoencoder_loss(self, batch: Batch, weights: Tensor) -> tuple[Tensor, Info]:
        """Weighted evidence lower bound of the data's actions, negated (learners,)."""
        situation = (batch.observations, batch.goals)
        encoded = self.evaluate("encoder", (*situation, batch.actions))[:, 0]
        mean, log_variance = encoded.chunk(2, -1)
        log_variance = log_variance.clamp(_LOG_VARIANCE_MIN, _LOG_VARIANCE_MAX)
        latents = torch.addcmul(mean, self.normal(*mean.shape[1:]), (0.5 * log_variance).exp())
        actions = self.evaluate("decoder", (*situation, latents))[:, 0].tanh()
        error = (actions - batch.actions).square().sum(-1)
        divergence = kl_from_prior(mean, log_variance)
        losses = (weights * (error + self.config.kl_weight * divergence)).mean(1)
        info = {"error": error, "kl": divergence, "weight": weights}
        return losses, {name: value.detach().mean(1) for name, value in info.items()}

    def actor_loss(self, batch: Batch) -> tuple[Tensor, Info]:
        """How little the critics value what the decoder makes of the actor's latents (learners,)."""
        situation = (batch.observations, batch.goals)
        latents = self.evaluate("actor", situation)[:, 0].tanh() * self.config.max_latent
        decoder = self.networks["decoder"].select()
        actions = self.evaluate("decoder", (*situation, latents), decoder)[:, 0].tanh()
        logits = self.q_logits_of_actions(batch.observations, actions, batch.goals)
        return climbing_loss(logits, self.config.actor_objective)

    def policy(self, states: Tensor, goals: Tensor) -> Tensor:
        """What the actor's latents decode into, in [−1, 1]."""
        latents = self.infer("actor", (states, goals))[:, 0].tanh_().mul_(self.config.max_latent)
        return self.infer("decoder", (states, goals, latents))[:, 0].tanh_()

    def logits(self, states: Tensor, goals: Tensor) -> Tensor:
        """Log-odds of V(s; g) = min_k Q_k at the policy's action."""
        return self.q_logits(states, self.policy(states, goals), goals)


def kl_from_prior(mean: Tensor, log_variance: Tensor) -> Tensor:
    """KL(N(μ, σ²) ‖ N(0, 1)) = ½ (μ² + σ² − 1 − log σ²), summed over the last dimension."""
    return 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(-1)
