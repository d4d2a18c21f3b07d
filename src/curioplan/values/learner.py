"""What all learners share: several of one kind trained as one batched computation, and their state."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from curioplan.config import LearnConfig
from curioplan.data.relabel import Batch
from curioplan.errors import ConfigError, CurioplanError
from curioplan.models import BatchedMLP, GaussianEnsemble
from curioplan.models.mlp import Layer
from curioplan.models.training import load_training_state, training_state
from curioplan.values.losses import critics_loss, regression_loss
from curioplan.values.problem import Problem

Info = dict[str, Tensor]
"""What an update tells, each one number per learner: losses, TD error, values."""

_FORGOTTEN = 1e-30
"""First moments of Adam below which a step changes nothing, and which a hundred steps take to 1e-35."""


class Learner(ABC):
    """Several independent learners, one per seed, whose networks are evaluated in shared batched products.

    Everything a learner computes depends on its own seed and its own batches alone, so it comes out as if
    it had been trained by itself, up to the order of floating-point sums. Networks work on normalised
    states and goals and on actions in [−1, 1]; what `value` and `act` take and give is in the units of the
    environment. Networks live where the problem's statistics are; random numbers are drawn on the CPU and
    moved there, so that checkpoints fit any device.

    Args:
        problem: Dimensions and statistics.
        config: Settings, of the learner's own class.
        seeds: One per learner.
        model: The dynamics model, for learners that need one to be trained.
        for_training: Whether `update` will be called.
    """

    Config: ClassVar[type[LearnConfig]] = LearnConfig
    needs_model: ClassVar[bool] = False

    def __init__(
        self,
        problem: Problem,
        config: LearnConfig,
        seeds: Sequence[int],
        model: GaussianEnsemble | None = None,
        *,
        for_training: bool = True,
    ) -> None:
        self.problem, self.config, self.seeds, self.model = problem, config, list(seeds), model
        if self.needs_model and for_training and model is None:
            raise ConfigError(
                f"{config.algo} needs a dynamics model: explore makes one, and so does train-model."
            )
        self.device = problem.device
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self.updates = 0
        self.networks: dict[str, BatchedMLP] = {}
        self._heads: dict[str, int] = {}
        self._optimizers: dict[str, torch.optim.Adam] = {}
        self._rates: dict[str, float] = {}
        self.set_up()
        if config.quick_units:
            situation = problem.observation_dim + problem.goal_dim
            self.build("quick", situation, 1, rate=config.quick_learning_rate, units=config.quick_units)

    # What a learner defines

    @abstractmethod
    def set_up(self) -> None:
        """Make the networks, by `build` and `target_of`."""

    @abstractmethod
    def update(self, batch: Batch) -> Info:
        """One step on relabelled transitions (learners, batch, ·), in the environment's units.

        Raises:
            CurioplanError: A loss is not finite; the weights are those before the offending step.
        """

    @abstractmethod
    def logits(self, states: Tensor, goals: Tensor) -> Tensor:
        """Values before the sigmoid (learners, N), for normalised states and goals."""

    @abstractmethod
    def policy(self, states: Tensor, goals: Tensor) -> Tensor:
        """Actions (learners, N, action_dim) in [−1, 1], for normalised states and goals."""

    def logits_above(self, states: Tensor, goals: Tensor, least: Tensor) -> Tensor:
        """As `logits`, but where they are below `least` (N,), any number below it will do."""
        return self.logits(states, goals)

    @property
    def lookahead(self) -> int:
        """How many steps ahead, at most, updates want to know where trajectories came."""
        return 1

    # What follows

    @torch.no_grad()
    def value(self, states: Tensor, goals: Tensor) -> Tensor:
        """V(s; g) in [0, 1] of states (N, ·) and goals (N, ·), for each learner (learners, N)."""
        return self.logits(*self.inputs(states, goals)).sigmoid()

    @torch.no_grad()
    def distance(self, states: Tensor, goals: Tensor) -> Tensor:
        """Temporal distance d(s; g) = log_γ V(s; g) ≥ 0 in steps, (learners, N); precise however far."""
        logits = self.logits(*self.inputs(states, goals))
        return torch.nn.functional.logsigmoid(logits) / math.log(self.problem.gamma)

    @torch.no_grad()
    def act(self, states: Tensor, goals: Tensor) -> Tensor:
        """Actions π(s; g) of states (N, ·) and goals (N, ·), for each learner (learners, N, action_dim)."""
        return self.problem.bounded(self.policy(*self.inputs(states, goals)))

    def inputs(self, states: Tensor, goals: Tensor) -> tuple[Tensor, Tensor]:
        """States and goals (N, ·) as networks take them: normalised, for each learner (learners, N, ·).

        They may come from another device.
        """
        shape = (len(self.seeds), -1, -1)
        states, goals = states.to(self.device), self.problem.task_goals(goals.to(self.device))
        return (
            self.problem.states.normalise(states).expand(shape),
            self.problem.goals.normalise(goals).expand(shape),
        )

    def distil(self, batch: Batch) -> Info:
        """One step of the quick network towards the values of the learner (learners, batch)."""
        batch = self.problem.normalise(batch)
        with torch.no_grad():
            targets = self.logits(batch.observations, batch.goals).sigmoid_()
        logits = self.evaluate("quick", (batch.observations, batch.goals))[:, 0, :, 0]
        self.descend("quick", regression_loss(logits, targets, "cross-entropy").mean(1))
        return {"quick_error": (logits.detach().sigmoid_() - targets).abs_().mean(1)}

    # Building blocks

    def build(
        self,
        name: str,
        inputs: int,
        outputs: int,
        *,
        heads: int = 1,
        rate: float | None = None,
        units: int = 0,
    ) -> BatchedMLP:
        """A network per learner, or `heads` of them; trained by `descend` if it has a learning rate."""
        make = partial(
            BatchedMLP, layers=self.config.layers, units=units or self.config.units, activation="relu"
        )
        network = make(len(self.seeds) * heads, inputs, outputs, device=self.device)
        for k, generator in enumerate(self.generators):
            own = make(heads, inputs, outputs, generator=generator)
            for mine, theirs in zip(network.parameters(), own.parameters(), strict=True):
                mine.data[k * heads : (k + 1) * heads] = theirs.data
        self._register(name, network, heads)
        if rate is not None:
            self._rates[name] = rate
            self._optimizers[name] = torch.optim.Adam(network.parameters(), lr=rate, fused=True)
        return network

    def build_actor(self, outputs: int) -> BatchedMLP:
        """The network "actor", of states and goals."""
        situation = self.problem.observation_dim + self.problem.goal_dim
        return self.build("actor", situation, outputs, rate=self.config.actor_learning_rate)

    def build_critics(self, heads: int = 1) -> BatchedMLP:
        """The networks "critic", of states, actions and goals."""
        inputs = self.problem.observation_dim + self.problem.action_dim + self.problem.goal_dim
        return self.build("critic", inputs, 1, heads=heads, rate=self.config.critic_learning_rate)

    def target_of(self, name: str) -> BatchedMLP:
        """A copy of a network that follows it slowly, by `follow`."""
        target = copy.deepcopy(self.networks[name]).requires_grad_(False)
        self._register(f"{name}_target", target, self._heads[name])
        return target

    def _register(self, name: str, network: BatchedMLP, heads: int) -> None:
        self.networks[name], self._heads[name] = network, heads

    @torch.no_grad()
    def follow(self, name: str) -> None:
        """Move a target network: θ' ← p θ' + (1 − p) θ, with the Polyak coefficient p."""
        weights, targets = (
            [p.data for p in self.networks[which].parameters()] for which in (name, f"{name}_target")
        )
        torch._foreach_lerp_(targets, weights, 1 - self.config.polyak)

    def evaluate(self, name: str, inputs: Sequence[Tensor], layers: list[Layer] | None = None) -> Tensor:
        """Outputs (learners, heads, N, outputs) of inputs, each (learners, N, ·), with gradients.

        Given `layers` (of `BatchedMLP.select`) in place of the network's own, only the inputs take part in
        the gradient.
        """
        network, heads = self.networks[name], self._heads[name]
        joined = _per_head(torch.cat(list(inputs), -1), heads)
        outputs = network(joined) if layers is None else network.apply_layers(joined, layers)
        return outputs.unflatten(0, (-1, heads))

    def infer(self, name: str, inputs: Sequence[Tensor]) -> Tensor:
        """As `evaluate`, without gradients and faster."""
        heads = self._heads[name]
        joined = _per_head(torch.cat(list(inputs), -1), heads)
        return self.networks[name].infer(joined).unflatten(0, (-1, heads))

    def q_logits(self, states: Tensor, actions: Tensor, goals: Tensor, which: str = "critic") -> Tensor:
        """Log-odds of min_k Q_k(s, a; g), (learners, N), without gradients."""
        return self.infer(which, (states, actions, goals))[..., 0].amin(1)

    def q_logits_of_actions(self, states: Tensor, actions: Tensor, goals: Tensor) -> Tensor:
        """As `q_logits`, with gradients to the inputs: the critics stay as they are."""
        layers = self.networks["critic"].select()
        return self.evaluate("critic", (states, actions, goals), layers)[..., 0].amin(1)

    def looking_ahead(self, batch: Batch, future: Tensor) -> Tensor:
        """Targets r + γ (1 − terminal) V(s'; g) of values V of the next states, (learners, batch).

        They are discounted by another γ^(n − 1) if these are n steps on. With `hindsight`, no less than
        γ^(k − 1) where the data themselves came to the goal after k steps.
        """
        targets = batch.rewards + self.problem.gamma * (1 - batch.terminals) * future
        if batch.span is not None:
            targets = targets * self.problem.gamma ** (batch.span - 1)
        if self.config.hindsight and batch.steps is not None:
            shown = torch.where(batch.steps > 0, self.problem.gamma ** (batch.steps - 1), 0.0)
            targets = torch.maximum(targets, shown)
        return targets

    def critics_loss(self, batch: Batch, targets: Tensor) -> tuple[Tensor, Info]:
        """Loss of all critics (learners,) against the same targets (learners, batch)."""
        logits = self.evaluate("critic", (batch.observations, batch.actions, batch.goals))[..., 0]
        return critics_loss(logits, targets, self.config.critic_loss)

    def descend(self, name: str | tuple[str, ...], losses: Tensor) -> None:
        """One Adam step of a network, or several, on the sum of the learners' losses (learners,)."""
        names = (name,) if isinstance(name, str) else name
        total = losses.sum()
        if not math.isfinite(total.item()):
            finite = torch.isfinite(losses).tolist()
            seeds = [str(seed) for seed, fine in zip(self.seeds, finite, strict=True) if not fine]
            raise CurioplanError(
                f"After {self.updates} updates the loss of the {' and '.join(names)} is not finite (seed "
                f"{', '.join(seeds)}): try a lower learning rate. The last good checkpoint is kept."
            )
        optimizers = [self._optimizers[each] for each in names]
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        total.backward()
        for optimizer in optimizers:
            optimizer.step()
            if (
                self.device.type == "cpu"
            ):  # alone slow with such numbers, and it knows its step without waiting
                _settle(optimizer)

    def scale_rates(self, factor: float) -> None:
        """Set all learning rates to this multiple of their settings."""
        for name, optimizer in self._optimizers.items():
            for group in optimizer.param_groups:
                group["lr"] = self._rates[name] * factor

    def normal(self, *shape: int) -> Tensor:
        """Standard normal numbers (learners, *shape), from each learner's own generator."""
        return torch.stack([torch.randn(*shape, generator=each) for each in self.generators]).to(self.device)

    # Checkpoints

    def state(self) -> dict[str, Any]:
        """All that is needed to go on exactly, as plain tensors and numbers."""
        return {
            "updates": self.updates,
            "generators": [each.get_state() for each in self.generators],
            "networks": {
                name: training_state(list(network.parameters()), self._optimizers[name])
                if name in self._optimizers
                else [p.detach().clone() for p in network.parameters()]
                for name, network in self.networks.items()
            },
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take over a `state()`.

        Raises:
            ConfigError: It belongs to learners of another shape.
        """
        self.updates = state["updates"]
        for generator, saved in zip(self.generators, state["generators"], strict=True):
            generator.set_state(saved)
        for name, network in self.networks.items():
            parameters, saved = list(network.parameters()), state["networks"][name]
            if name in self._optimizers:
                load_training_state(parameters, self._optimizers[name], saved)
            else:
                _copy(parameters, saved)

    def export(self, learner: int) -> dict[str, Any]:
        """One learner's networks, without what only training needs; `restore` makes a learner of them."""
        part = {}
        for name, network in self.networks.items():
            heads = self._heads[name]
            if not name.endswith("_target"):
                mine = slice(learner * heads, (learner + 1) * heads)
                part[name] = [p.detach()[mine].clone() for p in network.parameters()]
        return {"problem": self.problem.state(), "seed": self.seeds[learner], "networks": part}

    def adopt(self, exported: dict[str, Any]) -> None:
        """Take over the networks of an `export` as the only learner."""
        for name, saved in exported["networks"].items():
            _copy(list(self.networks[name].parameters()), saved)


@torch.no_grad()
def _settle(optimizer: torch.optim.Adam) -> None:
    """Every hundred steps, set to zero what is left of the gradients of units that have none any more.

    It would decay until it is too small for a normal number, and Adam takes five times as long over such.
    """
    states = list(optimizer.state.values())
    if int(states[0]["step"]) % 100 == 0:
        for state in states:
            state["exp_avg"].masked_fill_(state["exp_avg"].abs() < _FORGOTTEN, 0.0)


def _per_head(inputs: Tensor, heads: int) -> Tensor:
    """Inputs (learners, N, ·) once per head (learners · heads, N, ·)."""
    if len(inputs) == 1:
        return inputs.expand(heads, -1, -1)
    return inputs.repeat_interleave(heads, 0)


def _copy(parameters: Sequence[Tensor], saved: Sequence[Tensor]) -> None:
    if [tuple(p.shape) for p in parameters] != [tuple(s.shape) for s in saved]:
        raise ConfigError("The saved networks are of another shape: same settings?")
    for parameter, content in zip(parameters, saved, strict=True):
        parameter.data.copy_(content)
