"""The dynamics model P̂: an ensemble of Gaussian networks that predicts the change of state."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from curioplan.config import ModelConfig
from curioplan.errors import CurioplanError
from curioplan.models.bootstrap import Bootstrap
from curioplan.models.mlp import BatchedMLP, Packed
from curioplan.models.normaliser import Normaliser
from curioplan.models.training import buffers, load_training_state, training_state

HELD_OUT_LIMIT = 2048
"""Held-out transitions on which members are ranked: constant cost however large the dataset."""


def gaussian_loss(mean: Tensor, variance: Tensor, target: Tensor, beta: float = 0.0) -> Tensor:
    """β-NLL per member: ½ ⌊σ²⌋^β (log σ² + (y − μ)² / σ²), averaged over batch and dimensions.

    ⌊·⌋ stops the gradient (Seitzer et al., 2022). β = 0 is the Gaussian negative log-likelihood up to its
    constant; larger β keeps rare, hard transitions from being explained away by a large variance.

    Args:
        mean: Predicted means (members, N, dim).
        variance: Predicted variances (members, N, dim).
        target: Observed values (members, N, dim) or (N, dim).
        beta: Power of the variance that weights each term.

    Returns:
        Losses (members,).
    """
    terms = variance.log() + (target - mean).square() / variance
    if beta:
        terms = terms * variance.detach().pow(beta)
    return terms.mean((1, 2)) / 2


class GaussianEnsemble:
    """Gaussian networks that predict the change of state, each trained on its own bootstrap.

    The data stay where they are: `observations` and `actions` hold one row per state, the state after
    row r is row r + 1, and a transition is known by its row. Inputs (state, action) and outputs (change of
    state) are normalised by their own running mean and deviation. Variances are softly bounded,

        σ² = e^min + e^max · sigmoid(raw),

    which is the double softplus bound of PETS on log σ² with `raw` shifted by max.

    Args:
        observation_dim: Width of a state.
        action_dim: Width of an action.
        config: Settings.
        seed: Seed of initial weights, bootstraps and batches.
        device: Where the model computes, and the data must be.
    """

    def __init__(
        self,
        observation_dim: int,
        action_dim: int,
        config: ModelConfig,
        seed: int = 0,
        device: str | torch.device = "cpu",
    ) -> None:
        self.observation_dim, self.action_dim, self.config = observation_dim, action_dim, config
        self.device = torch.device(device)
        self.generator = torch.Generator().manual_seed(seed)
        inputs = observation_dim + action_dim
        self.network = BatchedMLP(
            config.members,
            inputs,
            2 * observation_dim,
            layers=config.layers,
            units=config.units,
            generator=self.generator,
            device=device,
        )
        self.inputs, self.changes = Normaliser(inputs, device), Normaliser(observation_dim, device)
        self.bootstrap = Bootstrap(config.members, config.held_out)
        self.elites = list(range(config.elites))
        self._low, self._high = math.exp(config.log_variance_min), math.exp(config.log_variance_max)
        # What squared deviations of all means and gates, in this order, count in the disagreement.
        weights = torch.tensor([1.0, self._high**2], device=device) / config.members
        self._weights = weights.repeat_interleave(observation_dim).repeat(config.members)
        self._parameters = list(self.network.parameters())
        self._optimizer = torch.optim.Adam(
            self._parameters, lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
        )

    # Data

    def add(self, observations: Tensor, actions: Tensor, rows: Tensor) -> None:
        """Takes in new transitions: updates normalisers and bootstraps, holds some out.

        Args:
            observations: All states so far (N, observation_dim).
            actions: The action taken at each of them (N, action_dim).
            rows: The new transitions' rows (n,); row r leads from state r to state r + 1.
        """
        if len(rows) == 0:
            return
        states = observations[rows]
        self.inputs.update(torch.cat([states, actions[rows]], -1))
        self.changes.update(observations[rows + 1] - states)
        self.bootstrap.add(rows.cpu(), self.generator)

    def _batch(
        self, observations: Tensor, actions: Tensor, rows: Tensor, states: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Normalised inputs and targets of transitions, from their states or from others in their place."""
        rows = rows.to(self.device)
        states = observations[rows] if states is None else states
        inputs = self.inputs.normalise(torch.cat([states, actions[rows]], -1))
        return inputs, self.changes.normalise(observations[rows + 1] - states)

    @torch.no_grad()
    def _imagined(self, observations: Tensor, actions: Tensor, rows: Tensor) -> Tensor:
        """The states at rows (members, size), each as its member imagines it from up to so many steps before.

        They stay within the range of the data.
        """
        most = torch.randint(self.config.imagined + 1, rows.shape, generator=self.generator)
        back = self.bootstrap.leading_to(rows, most)
        rows, back, dim = rows.to(self.device), back.to(self.device), self.observation_dim
        states = observations[rows - back]
        for step in range(self.config.imagined):
            going = step < back
            inputs = torch.cat([states, actions[rows - back + torch.where(going, step, 0)]], -1)
            mean, _ = self._gaussian(self.network.infer(self.inputs.normalise(inputs)))
            following = (states + self.changes.denormalise(mean)).clamp(
                self.inputs.low[:dim], self.inputs.high[:dim]
            )
            states = torch.where(going[..., None], following, states)
        return states

    # Training

    def update(self, observations: Tensor, actions: Tensor, steps: int, *, pace: float = 1.0) -> float:
        """Takes gradient steps on batches drawn from each member's bootstrap, at a cost free of its size.

        Args:
            observations: All states (N, observation_dim).
            actions: The action taken at each of them (N, action_dim).
            steps: How many.
            pace: Factor on the learning rate.

        Returns:
            The loss, averaged over members and steps.

        Raises:
            CurioplanError: The loss is not finite; the weights are those before the offending step.
        """
        self._require_data()
        size = self.config.batch_size
        batches = (self.bootstrap.sample(size, self.generator) for _ in range(steps))
        return self._descend(observations, actions, batches, pace)

    def fit(self, observations: Tensor, actions: Tensor, epochs: int) -> float:
        """Trains for epochs over each member's bootstrap, stopping early; each keeps its best weights.

        Weights are judged by held-out likelihood after every epoch, those at the start included. Training
        stops when no member has improved for `patience` epochs. The optimiser's moments are not rewound.

        Returns:
            The loss of the last epoch, averaged over members.

        Raises:
            CurioplanError: As in `update`.
        """
        self._require_data()
        loss, stale = math.nan, 0
        best = self.held_out_likelihood(observations, actions)
        weights = [p.detach().clone() for p in self._parameters]
        for _ in range(epochs):
            batches = self.bootstrap.epoch(self.config.batch_size, self.generator)
            loss = self._descend(observations, actions, batches)
            likelihood = self.held_out_likelihood(observations, actions)
            better = ~(likelihood <= best)  # without held-out data all is nan, and the last weights count
            best = torch.where(better, likelihood, best)
            for kept, parameter in zip(weights, self._parameters, strict=True):
                kept[better] = parameter.detach()[better]
            stale = 0 if better.any() else stale + 1
            if stale >= self.config.patience:
                break
        for kept, parameter in zip(weights, self._parameters, strict=True):
            parameter.data.copy_(kept)
        return loss

    def _descend(
        self, observations: Tensor, actions: Tensor, batches: Iterable[Tensor], pace: float = 1.0
    ) -> float:
        """One Adam step per batch of rows (members, size); the mean loss."""
        self._optimizer.param_groups[0]["lr"] = pace * self.config.learning_rate
        total, steps = 0.0, 0
        for rows in batches:
            states = self._imagined(observations, actions, rows) if self.config.imagined else None
            inputs, targets = self._batch(observations, actions, rows, states)
            mean, variance = self._gaussian(self.network(inputs))
            loss = gaussian_loss(mean, variance, targets, self.config.beta).sum()
            value = loss.item()
            if not math.isfinite(value):
                raise CurioplanError(
                    f"The loss of the dynamics model is {value}: either the data hold values that are not "
                    "finite, or the learning rate is too high. The weights are those before this step."
                )
            for parameter in self._parameters:
                parameter.grad = None
            loss.backward()
            self._optimizer.step()
            total, steps = total + value / self.config.members, steps + 1
        return total / max(steps, 1)

    def _require_data(self) -> None:
        if self.bootstrap.count == 0:
            raise CurioplanError("The dynamics model has no transitions to train on: add some first.")

    # Ranking

    @torch.no_grad()
    def held_out_likelihood(self, observations: Tensor, actions: Tensor) -> Tensor:
        """Mean log-likelihood per dimension (members,) of held-out changes of state, in normalised units.

        At most `HELD_OUT_LIMIT` transitions are looked at; nan if none is held out.
        """
        rows = self.bootstrap.held_out_sample(HELD_OUT_LIMIT)
        inputs, targets = self._batch(observations, actions, rows)
        losses = gaussian_loss(*self._gaussian(self.network.infer(inputs)), targets)
        return -losses - math.log(2 * math.pi) / 2

    def select_elites(self, observations: Tensor, actions: Tensor) -> Tensor:
        """Makes the members of highest held-out likelihood the elites; returns all likelihoods (members,)."""
        likelihood = self.held_out_likelihood(observations, actions)
        order = likelihood.nan_to_num(-math.inf).argsort(descending=True, stable=True)
        self.elites = sorted(order[: self.config.elites].tolist())
        return likelihood

    # Prediction

    def _gaussian(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances, in normalised units, from raw outputs (…, 2 · observation_dim)."""
        mean, raw = outputs.split(self.observation_dim, -1)
        return mean, self._low + self._high * raw.sigmoid()

    def variance_(self, gate: Tensor) -> Tensor:
        """Turns gates, as `tiles` gives them, in place into variances in normalised units."""
        return gate.mul_(self._high).add_(self._low)

    def tiles(self, inputs: Tensor, packed: Packed) -> Iterator[tuple[slice, Tensor]]:
        """Predictions in tiles of rows, as of `BatchedMLP.tiles`.

        Yields:
            The rows of a tile, and (members, 2, observation_dim, rows): means in normalised units, and gates
            in (0, 1) that `variance_` turns into variances.
        """
        for rows, outputs in self.network.tiles(inputs, packed):
            parts = outputs.view(len(outputs), 2, self.observation_dim, -1)
            parts[:, 1].sigmoid_()
            yield rows, parts

    @torch.no_grad()
    def predict(self, observations: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Next states of all members in state units.

        Args:
            observations: States (N, observation_dim).
            actions: Actions (N, action_dim).

        Returns:
            Means and variances (members, N, observation_dim) of the next state.
        """
        inputs = self.inputs.normalise(torch.cat([observations, actions], -1))
        mean, variance = self._gaussian(self.network.infer(inputs))
        return observations + self.changes.denormalise(mean), variance * self.changes.scale.square()

    @torch.no_grad()
    def disagreement(self, observations: Tensor, actions: Tensor) -> Tensor:
        """Intrinsic reward (N,) of states and actions; see `disagreement_`."""
        inputs = self.inputs.normalise(torch.cat([observations, actions], -1))
        reward = torch.empty(len(inputs), device=self.device)
        for rows, parts in self.tiles(inputs, self.network.pack()):
            reward[rows] = self.disagreement_(parts)
        return reward

    def disagreement_(self, parts: Tensor) -> Tensor:
        """Trace of the covariance, across members, of their predictions: Σ_d Var_m μ_d + Σ_d Var_m σ²_d.

        Args:
            parts: Predictions of all members as `tiles` gives them; overwritten.

        Returns:
            Disagreement (rows,) in normalised units; the variance divides by the number of members.
        """
        parts.sub_(parts.sum(0, keepdim=True), alpha=1 / len(parts))
        return self._weights @ parts.square_().flatten(0, 2)

    # Checkpoints

    def state(self) -> dict[str, Any]:
        """All that is needed to go on exactly, as plain tensors, lists and numbers."""
        return {
            "network": training_state(self._parameters, self._optimizer),
            "inputs": buffers(self.inputs),
            "changes": buffers(self.changes),
            "bootstrap": self.bootstrap.state(),
            "elites": list(self.elites),
            "generator": self.generator.get_state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Takes over a `state()`.

        Raises:
            ConfigError: It belongs to a model of another shape.
        """
        load_training_state(self._parameters, self._optimizer, state["network"])
        self.inputs.load_state_dict(state["inputs"])
        self.changes.load_state_dict(state["changes"])
        self.bootstrap.load(state["bootstrap"])
        self.elites = [int(member) for member in state["elites"]]
        self.generator.set_state(state["generator"])
