"""iCEM, CEM and MPPI: action sequences by sampling, ranking and refitting (Pinneri et al., 2020)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from curioplan.config import PlannerConfig
from curioplan.errors import ConfigError, CurioplanError
from curioplan.planning.noise import coloured_noise
from curioplan.planning.objectives import Objective
from curioplan.planning.rollout import Dynamics, Rollout


@dataclass(frozen=True)
class PlanReport:
    """What the last population of a plan looked like, for B episodes and E elites, best first."""

    slots: Tensor
    """(B,): the planner's slot of each episode."""
    elite_values: Tensor
    """(B, E): objective values of the elites."""
    mean_value: Tensor
    """(B,): mean objective value of the whole population, nan and infinities aside."""
    elite_states: Tensor
    """(B, E, H + 1, obs): imagined states of the elites, averaged over particles."""
    discarded: Tensor
    """(B,): share of the population discarded for the spread of its particles."""


class Planner:
    """Plans for several independent episodes at once, each in a slot of its own.

    Per plan and iteration: sample a population mean + std · coloured noise, clipped to the bounds; rank
    it by the objective on imagined trajectories; refit mean and std to the elites,
    new = (1 − momentum) · fit + momentum · old. iCEM remembers: a share of the elites enters the next
    population and, shifted in time with new last actions drawn afresh, the first population of the next
    plan; the mean, shifted with its last action repeated, starts the next plan; it also enters the last
    population. Kept elites and the mean take places in the population, whose size is as stated. CEM draws
    white noise and has no memory, hence no momentum either. MPPI (Williams et al., 2017) keeps no elites and
    never changes the deviation: its mean is that of the whole population, weighted by
    exp((worth − best worth) / (temperature · deviation of worth)), and starts the next plan as with iCEM.

    Sequences whose particles spread beyond `variance_limit` rank below all others, by increasing spread:
    if too few remain, the least spread stand in. Values that are not finite rank last of all.

    Everything but the finished plans, of which single actions are wanted, is where the bounds are.

    Args:
        config: Settings.
        horizon: Actions per sequence.
        action_low: Lower bounds (act,).
        action_high: Upper bounds (act,).
        dynamics: What imagines trajectories.
        objective: What they are worth; may be exchanged between plans.
    """

    def __init__(
        self,
        config: PlannerConfig,
        horizon: int,
        action_low: Tensor,
        action_high: Tensor,
        dynamics: Dynamics,
        objective: Objective,
    ) -> None:
        if config.method == "cem":
            config = replace(config, noise_exponent=0.0, keep_fraction=0.0, momentum=0.0)
        elif config.method == "mppi":
            config = replace(config, keep_fraction=0.0, momentum=0.0)
        if config.population < 4:
            raise ConfigError(f"The planner needs a population of at least 4, not {config.population}.")
        if not config.replan_every <= horizon:
            raise ConfigError(
                f"replan_every ({config.replan_every}) must not exceed the horizon ({horizon})."
            )
        self.config, self.horizon = config, horizon
        self.dynamics, self.objective = dynamics, objective
        self.low, self.high = (torch.as_tensor(b, dtype=torch.float32) for b in (action_low, action_high))
        if not (torch.isfinite(self.high - self.low).all() and (self.low <= self.high).all()):
            raise ConfigError(f"Actions need finite bounds, low ≤ high, not {action_low} and {action_high}.")
        self.elite_count = min(max(2, math.ceil(config.elite_ratio * config.population)), config.population)
        self.kept_count = 0
        if config.keep_fraction > 0:
            kept = max(1, round(config.keep_fraction * self.elite_count))
            self.kept_count = min(kept, min(self.population_sizes) // 2)
        self.report: PlanReport | None = None
        self.device = self.low.device
        self._generators: list[torch.Generator] = []

    @property
    def population_sizes(self) -> list[int]:
        """Sequences per iteration: population · decay^i, and never fewer than twice the elites."""
        config = self.config
        least = min(2 * self.elite_count, config.population)
        return [
            max(least, round(config.population * config.population_decay**i))
            for i in range(config.iterations)
        ]

    def reset(self, seeds: Sequence[int], slots: Sequence[int] | None = None) -> None:
        """Starts episodes: forgets their plans and elites and seeds their noise.

        Args:
            seeds: One seed per episode.
            slots: The slots they take; by default there are as many slots as seeds from now on.
        """
        if slots is None:
            count, dim = len(seeds), len(self.low)
            self._generators = [torch.Generator(self.device) for _ in seeds]
            self._mean = torch.empty(count, self.horizon, dim, device=self.device)
            self._kept = torch.empty(count, self.kept_count, self.horizon, dim, device=self.device)
            self._plan = torch.empty(count, self.horizon, dim)
            self._age = torch.empty(count, dtype=torch.int64)
            slots = range(count)
        for slot, seed in zip(slots, seeds, strict=True):
            self._generators[slot].manual_seed(seed)
            self._age[slot] = -1  # no plan yet

    @torch.no_grad()
    def act(self, states: Tensor, slots: Sequence[int] | None = None) -> Tensor:
        """The next action of each episode; plans where the last plan is used up (`replan_every`).

        Args:
            states: Current states (B, obs), wherever they are.
            slots: The slots of these B episodes, each at most once; by default all.

        Returns:
            Actions (B, act), on the CPU.
        """
        if not self._generators:
            raise CurioplanError("The planner has no episodes: reset it with one seed per episode first.")
        index = torch.arange(len(self._generators)) if slots is None else torch.as_tensor(slots)
        if len(states) != len(index):
            raise CurioplanError(
                f"{len(states)} states for {len(index)} episodes: pass the slots they are of."
            )
        age = self._age[index]
        due = (age < 0) | (age >= self.config.replan_every)
        if due.any():
            self._replan(states[due].to(self.device, torch.float32), index[due])
        age = self._age[index]
        self._age[index] += 1
        return self._plan[index, age]

    def _replan(self, states: Tensor, slots: Tensor) -> None:
        """Plans for the episodes in `slots` and puts the result where `act` finds it."""
        config, generators = self.config, [self._generators[slot] for slot in slots.tolist()]
        mean, std, kept = self._start(slots, generators)
        sizes = self.population_sizes
        for iteration, size in enumerate(sizes):
            last = iteration == len(sizes) - 1
            given = [] if kept is None else [kept]
            if last and config.method != "cem":
                given.append(mean.unsqueeze(1))
            actions = self._sample(mean, std, size - sum(g.shape[1] for g in given), generators)
            actions = torch.cat([*given, actions], 1)
            rollout = self.dynamics.rollout(
                states, actions, generators, disagreement=self.objective.needs_disagreement
            )
            values = self.objective(rollout, actions, slots)
            order = self.rank(values, rollout.spread)
            top = order[:, : self.elite_count]
            elites = _take(actions, top)
            if config.method == "mppi":
                weights = self.weigh(values, rollout.spread, order[:, 0])
                mean = torch.einsum("bp,bpha->bha", weights, actions).clamp_(self.low, self.high)
            else:
                mean = torch.lerp(elites.mean(1), mean, config.momentum)
                std = torch.lerp(elites.std(1, correction=0), std, config.momentum)
            kept = elites[:, : self.kept_count] if self.kept_count else None
            if last:
                self.report = self._describe(slots, rollout, values, top)
        mean = torch.clamp(mean, self.low, self.high)
        self._mean[slots] = mean
        self._plan[slots] = (mean if config.execute == "mean" else elites[:, 0]).cpu()
        self._kept[slots] = elites[:, : self.kept_count]
        self._age[slots] = 0

    def _start(
        self, slots: Tensor, generators: list[torch.Generator]
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Mean, std and kept elites with which a plan starts."""
        std = (self.config.initial_std * (self.high - self.low)).expand(len(slots), self.horizon, -1).clone()
        mean = ((self.low + self.high) / 2).expand_as(std).clone()
        if self.config.method == "cem" or not self.config.warm_start:
            return mean, std, None
        warm, steps = self._age[slots] >= 0, self.config.replan_every
        mean[warm] = shift(self._mean[slots[warm]], steps)
        if not self.kept_count:
            return mean, std, None
        # Fresh samples lend their last actions to the shifted elites, and stand in where there is no past.
        kept = self._sample(mean, std, self.kept_count, generators)
        kept[warm, :, : self.horizon - steps] = self._kept[slots[warm]][:, :, steps:]
        return mean, std, kept

    def _sample(self, mean: Tensor, std: Tensor, count: int, generators: Sequence[torch.Generator]) -> Tensor:
        """Action sequences (B, count, H, act) around the mean, within the bounds."""
        noise = coloured_noise(count, self.horizon, len(self.low), self.config.noise_exponent, generators)
        return torch.addcmul(mean.unsqueeze(1), noise, std.unsqueeze(1)).clamp_(self.low, self.high)

    def rank(self, values: Tensor, spread: Tensor) -> Tensor:
        """Sequences (B, P), best first: by value, then the discarded by spread, then what is not finite."""
        # In float64 there is room below all float32 values for those discarded.
        key = torch.where(spread > self.config.variance_limit, -1e39 * (1 + spread.double()), values.double())
        key = torch.where(torch.isfinite(values) & torch.isfinite(spread), key, -math.inf)
        return key.argsort(dim=1, descending=True, stable=True)

    def weigh(self, values: Tensor, spread: Tensor, best: Tensor) -> Tensor:
        """MPPI's weights (B, P) of sequences, which sum to one; what is discarded or not finite has none.

        Args:
            values: Worth of the sequences (B, P).
            spread: Their spread (B, P).
            best: First in rank (B,), which has all the weight where nothing else has any.
        """
        usable = torch.isfinite(values) & (spread <= self.config.variance_limit)
        some = usable.any(1, keepdim=True)
        usable = torch.where(
            some, usable, torch.arange(values.shape[1], device=values.device) == best[:, None]
        )
        worth = torch.where(usable & some, values.double(), 0.0)
        count = usable.sum(1, keepdim=True)
        mean = worth.sum(1, keepdim=True) / count
        deviation = (torch.where(usable, worth - mean, 0.0).square().sum(1, keepdim=True) / count).sqrt()
        scale = (self.config.temperature * deviation).clamp(min=1e-30)
        scores = torch.where(usable, worth, -math.inf)
        return ((scores - scores.amax(1, keepdim=True)) / scale).softmax(1).float()

    @property
    def plans(self) -> Tensor:
        """The last plan of every slot (slots, H, act), on the CPU."""
        return self._plan

    def _describe(self, slots: Tensor, rollout: Rollout, values: Tensor, top: Tensor) -> PlanReport:
        """The report of a population."""
        states = _take(rollout.states, top)  # (B, E, K, H + 1, obs), a copy
        return PlanReport(
            slots,
            values.gather(1, top),
            torch.where(torch.isfinite(values), values, math.nan).nanmean(1),
            states.mean(2),
            (rollout.spread > self.config.variance_limit).float().mean(1),
        )


def shift(sequence: Tensor, steps: int) -> Tensor:
    """A sequence (..., H, dim) moved `steps` ahead in time, its last entry repeated."""
    length = sequence.shape[-2]
    index = torch.arange(steps, steps + length, device=sequence.device).clamp(max=length - 1)
    return sequence[..., index, :]


def _take(sequences: Tensor, index: Tensor) -> Tensor:
    """Sequences (B, P, …) at (B, E)."""
    return sequences[torch.arange(len(index), device=index.device).unsqueeze(1), index]
