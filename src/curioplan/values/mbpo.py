"""MBPO (Janner et al., 2019): TD3 on what the dynamics model imagines."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import torch
from torch import Tensor

from curioplan.data.relabel import Batch
from curioplan.errors import ConfigError, CurioplanError
from curioplan.values.learner import Info
from curioplan.values.td3 import TD3, TD3Config

_MARGIN = 0.5
"""Imagined states may leave the range of the data by this share of it."""


@dataclass(frozen=True)
class MBPOConfig(TD3Config):
    """MBPO: TD3 on short rollouts of the model that branch off the data."""

    presets: ClassVar[dict[str, dict[str, Any]]] = {
        **TD3Config.presets,
        "smoke": {"rollouts": 500, "rollout_every": 100},
    }
    exceptions: ClassVar[dict[tuple[str, str], dict[str, Any]]] = {}  # those of TD3 need whole trajectories
    algo: str = field(default="mbpo", init=False)
    rollout_every: int = 500
    """Updates between rollouts."""
    rollouts: int = 5000
    """Rollouts imagined each time, from the states and goals last seen in real batches."""
    rollout_horizon: int = 5
    """Steps of a rollout."""
    rollout_noise: float = 0.1
    """Deviation of the noise on imagined actions, in units of half the action range: the actor is
    deterministic, and critics need to see actions beside its own."""
    buffer_size: int = 1_000_000
    """Imagined transitions that are kept; the newest replace the oldest."""
    real_ratio: float = 0.0
    """Share of real transitions in a batch."""

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        super().__post_init__()
        for name in ("rollout_every", "rollouts", "rollout_horizon"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}.")
        if not self.rollout_noise >= 0:
            raise ConfigError(f"rollout_noise must be at least 0, not {self.rollout_noise}.")
        if not 0 <= self.real_ratio < 1:
            raise ConfigError(
                f"real_ratio must be at least 0 and below 1 (that would be td3), not {self.real_ratio}."
            )
        if self.buffer_size < self.rollouts * self.rollout_horizon:
            raise ConfigError(
                f"buffer_size ({self.buffer_size}) must hold the {self.rollouts} rollouts of "
                f"{self.rollout_horizon} steps that are imagined at a time."
            )


@dataclass(frozen=True)
class Rollouts:
    """Imagined trajectories of N rollouts per learner and H steps, in the units of the environment."""

    states: Tensor
    """(learners, N, H + 1, observation_dim)."""
    actions: Tensor
    """(learners, N, H, action_dim)."""
    uncertainty: Tensor
    """(learners, N, H): how uncertain the model was of each step; see `MBPO.step`."""


class RolloutMemory:
    """The last rollouts of every learner, in rings of a fixed capacity that take memory as they fill."""

    def __init__(self, capacity: int, device: str | torch.device = "cpu") -> None:
        self.capacity, self.device, self.added = capacity, device, 0
        self._rings: dict[str, Tensor] = {}

    @property
    def filled(self) -> int:
        """Rollouts in memory, per learner."""
        return min(self.added, self.capacity)

    @property
    def rollouts(self) -> Rollouts:
        """All of them, not copied; the first `filled` count."""
        return Rollouts(**self._rings)

    def add(self, new: Rollouts) -> None:
        """Take in rollouts, in place of the oldest where there is no room."""
        content = {entry.name: getattr(new, entry.name) for entry in fields(new)}
        if not self._rings:
            self._rings = self._room(content)
        slots = (self.added + torch.arange(new.states.shape[1], device=self.device)) % self.capacity
        for name, part in content.items():
            self._rings[name][:, slots] = part
        self.added += len(slots)

    def _room(self, like: dict[str, Tensor]) -> dict[str, Tensor]:
        # The system backs pages only once they are written to, so that empty rings cost nothing.
        return {
            name: part.new_empty(len(part), self.capacity, *part.shape[2:], device=self.device)
            for name, part in like.items()
        }

    def state(self) -> dict[str, Any]:
        """What is filled, as plain tensors."""
        return {
            "added": self.added,
            "rings": {name: ring[:, : self.filled].clone() for name, ring in self._rings.items()},
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take over a `state()`."""
        self.added, self._rings = state["added"], self._room(state["rings"])
        for name, part in state["rings"].items():
            self._rings[name][:, : self.filled] = part


class MBPO(TD3):
    """TD3 whose batches are imagined.

    Every so often, rollouts branch off the states of the data: with the goal g of a relabelled real
    transition,

        a_t = π(s_t; g) + N(0, 0.1),   s_{t+1} ~ P̂_m(s_t, a_t),   m a random elite at every step.

    Their transitions are relabelled afresh whenever they are sampled, just as real ones: with probability
    p_goal the goal is that of the state τ ~ Geometric(p) steps ahead in the same rollout, capped at its last,
    and else that of a random real transition; reward and termination are 1 when it is the goal of s_{t+1}
    itself, by its index.
    """

    Config = MBPOConfig
    config: MBPOConfig
    needs_model = True

    def set_up(self) -> None:
        """The networks of TD3, and a memory for rollouts."""
        problem, config, model = self.problem, self.config, self.model
        if problem.goal_indices is None:
            raise ConfigError(
                f"{config.algo} needs the goals of imagined states, but in this task the goal is not a part "
                "of the state: choose a learner without a model, such as td3."
            )
        if model is not None and (model.observation_dim, model.action_dim) != (
            problem.observation_dim,
            problem.action_dim,
        ):
            raise ConfigError(
                f"The dynamics model is of states and actions of widths {model.observation_dim} and "
                f"{model.action_dim}, the data of {problem.observation_dim} and {problem.action_dim}."
            )
        super().set_up()
        self.goal_dims = list(problem.goal_indices)
        self.memory = RolloutMemory(config.buffer_size // config.rollout_horizon, self.device)
        self.recent: deque[tuple[Tensor, Tensor]] = deque()

    def update(self, batch: Batch) -> Info:
        """One step of TD3 on imagined transitions, after imagining more where it is time."""
        self._keep(batch)
        if self.updates % self.config.rollout_every == 0:
            self.memory.add(self.imagine())
        size = batch.rewards.shape[1]
        real = round(self.config.real_ratio * size)
        imagined, uncertainty = self.sample(size - real, batch)
        return super().update(_joined(batch, imagined, real)) | {"uncertainty": uncertainty}

    def _keep(self, batch: Batch) -> None:
        """Keep the states and goals of the last real batches, as many as rollouts start from."""
        self.recent.append((batch.observations, batch.goals))
        total = sum(states.shape[1] for states, _ in self.recent)
        while total - self.recent[0][0].shape[1] >= self.config.rollouts:
            total -= self.recent.popleft()[0].shape[1]

    @torch.no_grad()
    def imagine(self) -> Rollouts:
        """Rollouts of the current actor in the model, from the real states and goals last seen.

        As long as there are too few of these, they are used several times.
        """
        config, problem = self.config, self.problem
        states, goals = (torch.cat(part, 1) for part in zip(*self.recent, strict=True))
        start = max(0, states.shape[1] - config.rollouts)
        rows = start + torch.arange(config.rollouts, device=self.device) % (states.shape[1] - start)
        states, goals = states[:, rows], problem.goals.normalise(goals[:, rows])
        path, actions, uncertainty = [states], [], []
        for _ in range(config.rollout_horizon):
            action = self.policy(problem.states.normalise(states), goals)
            action = action.add_(self.normal(*action.shape[1:]), alpha=config.rollout_noise).clamp_(-1, 1)
            action = problem.bounded(action)
            states, spread = self.step(states, action)
            path.append(states)
            actions.append(action)
            uncertainty.append(spread)
        return Rollouts(torch.stack(path, 2), torch.stack(actions, 2), torch.stack(uncertainty, 2))

    def step(self, states: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Next states, each drawn from the Gaussian of a random elite, and how uncertain the model is.

        Args:
            states: In state units (learners, N, observation_dim).
            actions: Of the environment (learners, N, action_dim).

        Returns:
            Next states, kept to the range of the data widened by half of it on either side; and
            u(s, a) = ‖max_m σ_m(s, a)‖ (learners, N), the norm over state dimensions of the largest standard
            deviation of any member, in units of the deviation of changes in the data.
        """
        model = self.model
        if model is None:
            raise CurioplanError(f"{self.config.algo} was made without a model, and not to be trained.")
        shape = states.shape[1:]
        elites = torch.tensor(model.elites)
        member = torch.cat(
            [elites[torch.randint(len(elites), shape[:1], generator=each)] for each in self.generators]
        ).to(self.device)
        noise = self.normal(*shape).flatten(0, 1)
        change, uncertainty = torch.empty_like(noise), noise.new_empty(len(noise))
        inputs = model.inputs.normalise(torch.cat([states, actions], -1)).flatten(0, 1)
        for rows, parts in model.tiles(inputs, model.network.pack()):
            mean, variance = parts[:, 0], model.variance_(parts[:, 1])
            chosen = member[rows], slice(None), torch.arange(variance.shape[2], device=self.device)
            change[rows] = mean[chosen] + noise[rows] * variance[chosen].sqrt()
            uncertainty[rows] = variance.amax(0).sum(0).sqrt()
        low, high = self.problem.states.low, self.problem.states.high
        margin = _MARGIN * (high - low)
        following = states + model.changes.denormalise(change).view_as(states)
        return following.clamp(low - margin, high + margin), uncertainty.view(states.shape[:2])

    def sample(self, size: int, real: Batch) -> tuple[Batch, Tensor]:
        """Relabelled imagined transitions (learners, size, ·), and their mean uncertainty (learners,)."""
        draws = [self._draw(size, real.goals.shape[1], each) for each in self.generators]
        rollout, step, ahead, future, other, on = (
            torch.stack(part).to(self.device) for part in zip(*draws, strict=True)
        )
        at = (step + ahead).clamp(max=self.config.rollout_horizon)
        learner = torch.arange(len(self.seeds), device=self.device)[:, None]
        kept = self.memory.rollouts
        reached_states = kept.states[learner, rollout, at]
        achieved = self.problem.goals_of(
            reached_states[..., self.goal_dims], reached_states, self._whole(size)
        )
        uncertainty = kept.uncertainty[learner, rollout, step]
        end, last = (step + on).clamp(max=self.config.rollout_horizon), self.config.rollout_horizon - 1
        end = torch.where(future, torch.minimum(end, at), end)  # targets look no further than to the goal
        reached = (future & (at == end)).float()
        batch = Batch(
            observations=kept.states[learner, rollout, step],
            actions=kept.actions[learner, rollout, step],
            next_observations=kept.states[learner, rollout, end],
            goals=torch.where(future[..., None], achieved, real.goals[learner, other]),
            rewards=self.rewards(reached, uncertainty),
            terminals=reached,
            goal_rows=torch.where(future, -1, real.goal_rows[learner, other]),
            steps=torch.where(future, at - step, -1).float(),
            next_actions=kept.actions[learner, rollout, end.clamp(max=last)],
            span=(end - step).float() if self.lookahead > 1 else None,
        )
        return batch, uncertainty.mean(1)

    def rewards(self, reached: Tensor, uncertainty: Tensor) -> Tensor:
        """1 where the goal is reached."""
        return reached

    def _whole(self, size: int) -> Tensor:
        """Which goals are whole states, (learners, size)."""
        if not self.problem.whole:
            return torch.zeros(len(self.seeds), size, dtype=torch.bool, device=self.device)
        draws = [torch.rand(size, generator=each) for each in self.generators]
        return torch.stack(draws).to(self.device) < self.config.p_state

    def _draw(self, size: int, goals: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Random rollouts, steps, steps ahead, whether goals lie there, real rows, and steps to look on."""
        config = self.config
        rollout = torch.randint(self.memory.filled, (size,), generator=generator)
        step = torch.randint(config.rollout_horizon, (size,), generator=generator)
        ahead = torch.ones(size)
        if config.p_geometric < 1:
            ahead.geometric_(config.p_geometric, generator=generator)
        future = torch.rand(size, generator=generator) < config.p_goal
        other = torch.randint(goals, (size,), generator=generator)
        on = torch.ones(size, dtype=torch.long)
        if self.lookahead > 1:
            on = torch.randint(1, self.lookahead + 1, (size,), generator=generator)
        return rollout, step, ahead.clamp_(max=config.rollout_horizon).long(), future, other, on

    def state(self) -> dict[str, Any]:
        """See `Learner`; with what is remembered, and what the next rollouts start from."""
        recent = [list(pair) for pair in self.recent]
        return super().state() | {"memory": self.memory.state(), "recent": recent}

    def load(self, state: dict[str, Any]) -> None:
        """See `Learner`."""
        super().load(state)
        self.memory.load(state["memory"])
        self.recent = deque((part[0].to(self.device), part[1].to(self.device)) for part in state["recent"])


def _joined(real: Batch, imagined: Batch, count: int) -> Batch:
    """The first `count` real transitions of each learner, then all its imagined ones."""
    if count == 0:
        return imagined
    parts: dict[str, Any] = {}
    others = imagined.tensors()
    for name, mine in real.tensors().items():
        if name in others:
            parts[name] = torch.cat([mine[:, :count], others[name]], 1)
    return Batch(**parts)
