"""Imagined trajectories: what a planner asks of a dynamics model, and the ensemble's answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from curioplan.errors import ConfigError
from curioplan.models.ensemble import GaussianEnsemble
from curioplan.models.memory import Memory

Evaluate = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From inputs (rows, in) and places (episodes, rows per episode) to predictions (2, rows, dim) of the elite
at each row's place, as of `GaussianEnsemble.tiles`; puts the rows' disagreement, if known, into the last."""


_MARGIN = 0.5
"""Imagined states may leave the range of the data by this share of it."""


@dataclass(frozen=True)
class Rollout:
    """Imagined trajectories of B episodes, P action sequences each, K particles per sequence, H steps."""

    states: Tensor
    """(B, P, K, H + 1, obs) in state units: the current state, then the one after each action."""
    disagreement: Tensor | None
    """(B, P, H): intrinsic reward of every step, averaged over particles, if it was asked for."""
    spread: Tensor
    """(B, P): variance of the particles, averaged over normalised state dims, summed over the horizon."""


@runtime_checkable
class Dynamics(Protocol):
    """What a planner knows of the world."""

    def rollout(
        self, states: Tensor, actions: Tensor, generators: Sequence[torch.Generator], *, disagreement: bool
    ) -> Rollout:
        """Imagines where action sequences lead.

        Args:
            states: Current states (B, obs).
            actions: Action sequences (B, P, H, act).
            generators: Source of randomness of each episode; its result depends on no other.
            disagreement: Whether the intrinsic reward is wanted.

        Returns:
            The trajectories; their memory may be reused by the next rollout.
        """
        ...


class ModelRollout:
    """Rollouts of a `GaussianEnsemble`.

    Ways to propagate a state:

    - "ts1": K particles per action sequence; at every step each is assigned to a random elite (an equal
      split, by a random permutation) and its next state is sampled from that elite's Gaussian.
    - "shared": ts1 with one particle; with disagreement, one state on which all members are evaluated and
      whose successor is sampled from a random elite. There is no spread to discard by.
    - "mean": every elite carries its own mean trajectory, without noise (K = elites).

    The intrinsic reward evaluates all members at every particle; without it only the elite that moves a
    particle is evaluated. Random draws are the same either way. Imagined states stay within the range of the
    data, widened by half of it on either side.

    Args:
        ensemble: The model; its elites and weights are read at each rollout.
        propagation: One of the above.
        particles: K for "ts1".
    """

    def __init__(
        self,
        ensemble: GaussianEnsemble,
        propagation: Literal["ts1", "mean", "shared"] = "ts1",
        particles: int = 20,
    ) -> None:
        if propagation not in ("ts1", "mean", "shared"):
            raise ConfigError(f"Unknown propagation {propagation!r}; choose ts1, mean or shared.")
        self.ensemble, self.propagation = ensemble, propagation
        self._particles = particles
        self._memory = Memory()

    @property
    def particles(self) -> int:
        """K: particles per action sequence."""
        if self.propagation == "mean":
            return len(self.ensemble.elites)
        return 1 if self.propagation == "shared" else self._particles

    @torch.no_grad()
    def rollout(
        self, states: Tensor, actions: Tensor, generators: Sequence[torch.Generator], *, disagreement: bool
    ) -> Rollout:
        """See `Dynamics`."""
        model, (episodes, sequences, horizon, _) = self.ensemble, actions.shape
        dim, particles, rows = model.observation_dim, self.particles, episodes * sequences * self.particles
        # Rows are (episode, sequence, particle). States are normalised and advance in place in `inputs`.
        inputs = self._memory.get("inputs", rows, dim + model.action_dim)
        state = inputs[:, :dim]
        state_mean, state_std = model.inputs.mean[:dim], model.inputs.std[:dim]
        state.view(episodes, -1, dim)[:] = ((states - state_mean) / state_std).unsqueeze(1)
        actions = (actions - model.inputs.mean[dim:]) / model.inputs.std[dim:]
        steps = actions.permute(2, 0, 1, 3).unsqueeze(3).unbind()
        into_actions = inputs[:, dim:].unflatten(0, (episodes, sequences, particles))
        # A normalised change y moves the normalised state by offset + scale · y.
        offset, scale = model.changes.mean / state_std, model.changes.scale / state_std

        low, high = self._bounds()

        path = self._memory.get("path", horizon + 1, rows, dim)
        path[0].view(episodes, -1, dim)[:] = states.unsqueeze(1)
        rewards = self._memory.get("rewards", horizon, rows)
        spread = torch.zeros(episodes * sequences)
        evaluate = (
            self._all_members(rows // episodes) if disagreement else self._elites(episodes, rows // episodes)
        )
        for action, following, reward in zip(steps, path[1:].unbind(), rewards.unbind(), strict=True):
            into_actions.copy_(action)
            chosen = evaluate(inputs, self._deal(rows // episodes, generators), reward)
            state.add_(offset).addcmul_(self._sample(chosen, generators), scale).clamp_(low, high)
            torch.addcmul(state_mean, state, state_std, out=following)
            if particles > 1:
                cloud = state.unflatten(0, (-1, particles))
                spread += (cloud - cloud.mean(1, keepdim=True)).square_().sum((1, 2))
        shape = episodes, sequences, particles
        return Rollout(
            path.view(horizon + 1, *shape, dim).permute(1, 2, 3, 0, 4),
            rewards.view(horizon, *shape).mean(3).permute(1, 2, 0) if disagreement else None,
            spread.div_(particles * dim).view(episodes, sequences),
        )

    def _bounds(self) -> tuple[Tensor, Tensor]:
        """The range of the states seen, normalised and widened: networks extrapolate without limit."""
        inputs, dim = self.ensemble.inputs, self.ensemble.observation_dim
        low, high = (inputs.normalise(bound)[:dim] for bound in (inputs.low, inputs.high))
        margin = torch.nan_to_num(_MARGIN * (high - low), posinf=0.0)
        return low - margin, high + margin

    def _deal(self, count: int, generators: Sequence[torch.Generator]) -> Tensor:
        """The place of every row (episodes, count) when each episode's are dealt out to the elites in turn.

        The row at place p goes to elite p % elites.
        """
        if self.propagation == "mean":
            return torch.arange(count).expand(len(generators), -1)
        return torch.stack([torch.randperm(count, generator=generator) for generator in generators])

    def _all_members(self, count: int) -> Evaluate:
        """Evaluates all members on every row."""
        model, dim = self.ensemble, self.ensemble.observation_dim
        layers = model.network.select()
        member_at = torch.tensor(model.elites)[torch.arange(count) % len(model.elites)]

        def evaluate(inputs: Tensor, places: Tensor, reward: Tensor) -> Tensor:
            chosen = self._memory.get("chosen", 2, len(inputs), dim)
            member = member_at[places.flatten()]
            for part, predictions in model.tiles(inputs, layers):
                size = predictions.shape[2]
                picks = member[part].mul_(size).add_(torch.arange(size))
                chosen[:, part] = torch.index_select(predictions.view(2, -1, dim), 1, picks)
                reward[part] = model.disagreement_(predictions)
            return chosen

        return evaluate

    def _elites(self, episodes: int, count: int) -> Evaluate:
        """Evaluates every elite on its own rows only, in one batch of equal shares."""
        model, dim = self.ensemble, self.ensemble.observation_dim
        elites = len(model.elites)
        share, layers = math.ceil(count / elites), model.network.select(model.elites)
        # The row at place p of episode b is number b · share + p // elites of elite p % elites.
        number_at = torch.arange(elites * episodes * share).view(elites, episodes, share)
        number_at = number_at.permute(1, 2, 0).reshape(episodes, -1)
        rows = torch.arange(episodes * count).view(episodes, count)
        hand = torch.zeros(elites * episodes * share, dtype=torch.int64)  # what shares lack repeats row 0

        def evaluate(inputs: Tensor, places: Tensor, reward: Tensor) -> Tensor:
            number = number_at.gather(1, places)
            hand[number] = rows
            dealt = torch.index_select(inputs, 0, hand).view(elites, episodes * share, -1)
            out = self._memory.get("out", 2, *dealt.shape[:2], dim)
            for part, predictions in model.tiles(dealt, layers):
                out[:, :, part] = predictions
            chosen = self._memory.get("chosen", 2, len(inputs), dim)
            return torch.index_select(out.view(2, -1, dim), 1, number.flatten(), out=chosen)

        return evaluate

    def _sample(self, predictions: Tensor, generators: Sequence[torch.Generator]) -> Tensor:
        """Normalised changes of state (rows, dim) drawn from predictions (2, rows, dim): means and gates."""
        mean, gate = predictions
        if self.propagation == "mean":
            return mean
        noise = self._memory.get("noise", *mean.shape)
        for part, generator in zip(noise.chunk(len(generators)), generators, strict=True):
            part.normal_(generator=generator)
        return mean.addcmul_(noise, self.ensemble.variance_(gate).sqrt_())
