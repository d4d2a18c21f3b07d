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
from curioplan.models.mlp import CONSTANT

Advance = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""From inputs (rows, in), the place of each row (rows,) in the elites' hands (see `_Hands`) and the noise at
every place (dim, elites, rows per elite) to normalised changes of state (rows, dim), each drawn from the
elite that has the row; puts the rows' disagreement, if known, into the last argument (rows,)."""

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
            generators: Source of randomness of each episode, where states and actions are; its result
                depends on no other.
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
        ensemble: The model; its elites and weights are read at each rollout, which is computed where it is.
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
        self._memory = Memory(ensemble.device)

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
        hands = _Hands(
            len(model.elites), episodes, sequences * particles, dim, self.propagation != "mean", model.device
        )
        advance = self._all_members(hands) if disagreement else self._elites(hands)
        # Rows are (episode, sequence, particle); states and actions are normalised.
        state_mean, state_std = model.inputs.mean[:dim], model.inputs.std[:dim]
        state = self._memory.get("state", rows, dim)
        state.view(episodes, -1, dim)[:] = ((states - state_mean) / state_std).unsqueeze(1)
        actions = (actions - model.inputs.mean[dim:]) / model.inputs.std[dim:]
        steps = actions.permute(2, 0, 1, 3).flatten(1, 2).unsqueeze(2).unbind()
        inputs = self._memory.get("inputs", rows, dim + model.action_dim + 1)
        inputs[:, -1] = CONSTANT
        into_state, into_actions = inputs[:, :dim], inputs[:, dim:-1].unflatten(0, (-1, particles))
        # A normalised change y moves the state by offset + scale · y. These vectors are repeated for many
        # rows, since loops over the few dimensions of a single one are slow.
        many = math.gcd(rows, 64)
        offset, scale = ((x / state_std).repeat(many) for x in (model.changes.mean, model.changes.scale))
        low, high, mean, std = (x.repeat(many) for x in (*self._bounds(), state_mean, state_std))
        block, cloud = state.view(-1, many * dim), state.view(-1, particles, dim)

        path = self._memory.get("path", horizon + 1, rows, dim)
        path[0].view(episodes, -1, dim)[:] = states.unsqueeze(1)
        blocks = path[1:].unflatten(1, (-1, many)).flatten(2).unbind()
        rewards = self._memory.get("rewards", horizon, rows)
        spread = torch.zeros(episodes * sequences, device=model.device)
        for action, following, reward in zip(steps, blocks, rewards.unbind(), strict=True):
            into_state.copy_(state)
            into_actions.copy_(action)
            change = advance(inputs, hands.deal(generators), hands.noise(generators), reward)
            block.add_(offset).addcmul_(change.view(block.shape), scale).clamp_(low, high)
            torch.addcmul(mean, block, std, out=following)
            if particles > 1:
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

    def _all_members(self, hands: _Hands) -> Advance:
        """Evaluates all members on every row."""
        model, dim, packed = self.ensemble, self.ensemble.observation_dim, self.ensemble.network.pack()
        elites = torch.tensor(model.elites, device=model.device)
        member_at = elites.repeat_interleave(hands.places // hands.elites)

        def advance(inputs: Tensor, place: Tensor, noise: Tensor, reward: Tensor) -> Tensor:
            changes = self._memory.get("changes", len(inputs), dim)
            member, noise = member_at[place], noise.flatten(1).index_select(1, place)
            for part, predictions in model.tiles(inputs, packed):
                own = predictions.gather(0, member[part].expand(1, 2, dim, -1))
                changes[part] = self._sample(own, noise[:, part])[0].t()
                reward[part] = model.disagreement_(predictions)
            return changes

        return advance

    def _elites(self, hands: _Hands) -> Advance:
        """Evaluates every elite on its own rows only, in one batch of equal shares."""
        model, dim = self.ensemble, self.ensemble.observation_dim
        packed = model.network.pack(model.elites)
        # Where shares are not full, row 0 again.
        row_at = torch.zeros(hands.places, dtype=torch.int64, device=model.device)
        rows = torch.arange(hands.rows, device=model.device)

        def advance(inputs: Tensor, place: Tensor, noise: Tensor, reward: Tensor) -> Tensor:
            row_at.scatter_(0, place, rows)
            dealt = inputs.index_select(0, row_at).view(hands.elites, -1, inputs.shape[1])
            drawn = self._memory.get("drawn", *dealt.shape[:2], dim)
            for part, predictions in model.tiles(dealt, packed):
                drawn[:, part] = self._sample(predictions, noise[..., part].transpose(0, 1)).transpose(1, 2)
            changes = self._memory.get("changes", len(inputs), dim)
            return torch.index_select(drawn.view(-1, dim), 0, place, out=changes)

        return advance

    def _sample(self, predictions: Tensor, noise: Tensor) -> Tensor:
        """Normalised changes of state (members, dim, rows), drawn from predictions, which are overwritten."""
        mean, gate = predictions.unbind(1)
        if self.propagation == "mean":
            return mean
        return mean.addcmul_(noise, self.ensemble.variance_(gate).sqrt_())


class _Hands:
    """How the rows of several episodes are dealt out to the elites, in equal shares.

    Number p in the deal of episode b gets the place b · share + p // elites in the hand of elite p % elites.
    If deals are random, rows are numbered anew at every step, and there is noise on them.
    """

    def __init__(
        self, elites: int, episodes: int, count: int, dim: int, random: bool, device: torch.device
    ) -> None:
        self.elites, self.count, self.random = elites, count, random
        share = math.ceil(count / elites)
        self.rows, self.places = episodes * count, elites * episodes * share
        in_hands = torch.arange(self.places, device=device).view(elites, episodes, share)
        self._in_turn = in_hands.permute(1, 2, 0).reshape(episodes, -1)
        self._noise = torch.zeros(episodes, dim, elites, share, device=device)

    def deal(self, generators: Sequence[torch.Generator]) -> Tensor:
        """The place of every row (rows,), counted through all hands."""
        if not self.random:
            return self._in_turn[:, : self.count].flatten()
        turns = [torch.randperm(self.count, generator=each, device=each.device) for each in generators]
        return torch.cat([places[turn] for places, turn in zip(self._in_turn, turns, strict=True)])

    def noise(self, generators: Sequence[torch.Generator]) -> Tensor:
        """Standard normal noise at every place (dim, elites, rows per elite), or zeros."""
        if self.random:
            for part, generator in zip(self._noise, generators, strict=True):
                part.normal_(generator=generator)
        return self._noise.permute(1, 2, 0, 3).flatten(2)
