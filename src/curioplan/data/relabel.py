"""Goals in hindsight: transitions labelled with goals that the data itself achieves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from curioplan.data.trajectories import TrajectoryStore
from curioplan.errors import ConfigError

Success = Callable[[Tensor, Tensor], Tensor]
"""A test on batches of achieved and desired goals, which broadcast."""

_SEVERAL = 16
"""Random states the nearest of which is a near one."""


@dataclass(frozen=True)
class Relabelling:
    """Where the goals of relabelled transitions come from."""

    p_goal: float = 0.75
    """Share of goals from the future of the same trajectory; the others are those of random states."""
    p_geometric: float = 0.2
    """Parameter of the geometric distribution of how many steps ahead a future goal lies; its mean is 1/p."""
    p_near: float = 0.0
    """Share of the other goals that are the nearest of some random ones to what the state achieves: what
    looks near, and need not be."""

    def __post_init__(self) -> None:
        for name in ("p_goal", "p_near"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} is a probability, from 0 to 1, not {getattr(self, name)}.")
        if not 0 < self.p_geometric <= 1:
            raise ConfigError(f"p_geometric is a probability above 0 and up to 1, not {self.p_geometric}.")


@dataclass
class Batch:
    """Relabelled transitions.

    Attributes:
        observations: s_t, ``(batch, observation)``.
        actions: a_t, ``(batch, action)``.
        next_observations: Where targets look ahead to: s_{t+1}, or s_{t+n} with a span n,
            ``(batch, observation)``.
        goals: The goals, ``(batch, goal)``.
        rewards: 1 where the goal is reached there, else 0, ``(batch,)``.
        terminals: Where the episode ends for this goal: as the rewards.
        goal_rows: The rows of the store whose achieved goals these are, ``(batch,)``.
        steps: How many steps after s_t the same trajectory is known to reach the goal, −1 where it is not,
            ``(batch,)``; none for transitions that are of no trajectory.
        next_actions: What the trajectory did there, and zeros where it ended, ``(batch, action)``; none for
            transitions that are of no trajectory.
        span: How many steps lie between, ``(batch,)``; none where it is always one.
        whole: Which goals are whole states, ``(batch,)``; none where no goals are.
    """

    observations: Tensor
    actions: Tensor
    next_observations: Tensor
    goals: Tensor
    rewards: Tensor
    terminals: Tensor
    goal_rows: Tensor
    steps: Tensor | None = None
    next_actions: Tensor | None = None
    span: Tensor | None = None
    whole: Tensor | None = None

    def tensors(self) -> dict[str, Tensor]:
        """What there is, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}


def sample_batch(
    store: TrajectoryStore,
    batch_size: int,
    relabelling: Relabelling,
    generator: torch.Generator,
    among: Tensor | None = None,
    success: Success | None = None,
    lookahead: int = 1,
    p_whole: float = 0.0,
) -> Batch:
    """Uniformly random transitions with relabelled goals.

    The goal g of (s_t, a_t, s_{t+1}) is that of s_{min(t+τ, T)}, τ ~ Geometric(p) ≥ 1, with probability
    p_goal, and else that of a uniformly random state, or of the nearest of several such; reward and
    termination are 1 when g is the goal of the very state s_{t+1}, by its row, and 0 otherwise. A batch
    depends on the store and the generator's state alone, so a run that restores both goes on with the batches
    it would have drawn. A generator of another device draws there, and what it has drawn is moved to where
    the data are.

    Args:
        store: The trajectories.
        batch_size: How many.
        relabelling: Where goals come from.
        generator: Source of randomness.
        among: Rows of transitions among which to draw, such as a bootstrap; random goals are then those of
            the states they lead to.
        success: A test on achieved and desired goals: reward and termination are also 1 wherever it passes.
        lookahead: With more than 1, s_{t+n} takes the place of s_{t+1}, uniformly many steps on up to this
            number, or as many as the trajectory takes to its end or, if that is sooner, to the goal.
        p_whole: Share of goals that are whole states, which only the very state reaches.
    """
    if among is None:
        rows = store.sample_rows(batch_size, generator)
    else:
        drawn = torch.randint(len(among), (batch_size,), generator=generator, device=generator.device)
        rows = among[drawn.to(among.device)]
    goal_rows = sample_goal_rows(store, rows, relabelling, generator, among)
    last = store.last_rows.index_select(0, store.episode_of.index_select(0, rows))
    ahead = (goal_rows > rows) & (goal_rows <= last)
    steps = torch.where(ahead, goal_rows - rows, -1)
    span, whole = torch.ones_like(rows), None
    if lookahead > 1:
        drawn = torch.randint(1, lookahead + 1, rows.shape, generator=generator, device=generator.device)
        span = torch.minimum(drawn.to(rows.device), last - rows)
    if p_whole > 0:
        whole = torch.rand(rows.shape, generator=generator, device=generator.device) < p_whole
        whole = whole.to(rows.device)
    window = torch.minimum(rows + torch.arange(1, lookahead + 1, device=rows.device)[:, None], last)
    reached = _reached(store, window, goal_rows, success, whole)  # (lookahead, batch)
    sooner, first = reached.max(0)
    first = torch.where(sooner, first + 1, lookahead + 1)
    span = torch.minimum(span, first)
    if lookahead > 1:
        steps = torch.where(sooner, first, steps)
    rewards = (first == span).float()
    following = rows + span
    return Batch(
        observations=store.observations.index_select(0, rows),
        actions=store.actions.index_select(0, rows),
        next_observations=store.observations.index_select(0, following),
        goals=store.achieved_goals.index_select(0, goal_rows),
        rewards=rewards,
        terminals=rewards.clone(),
        goal_rows=goal_rows,
        steps=steps.float(),
        next_actions=store.actions.index_select(0, following),
        span=span.float() if lookahead > 1 else None,
        whole=whole,
    )


def _reached(
    store: TrajectoryStore, rows: Tensor, goal_rows: Tensor, success: Success | None, whole: Tensor | None
) -> Tensor:
    """Whether states (n, batch) reach the goals (batch,): by their rows or, unless whole, by the test."""
    reached = rows == goal_rows
    if success is None:
        return reached
    achieved, goals = store.achieved_goals[rows], store.achieved_goals.index_select(0, goal_rows)
    passed = success(achieved, goals)
    return reached | (passed if whole is None else passed & ~whole)


def stack_batches(batches: Sequence[Batch]) -> Batch:
    """Batches of one size as one of shapes ``(batches, batch, ·)``."""
    if len(batches) == 1:  # no copies
        return Batch(**{name: value[None] for name, value in batches[0].tensors().items()})
    columns = {name: [getattr(batch, name) for batch in batches] for name in batches[0].tensors()}
    return Batch(**{name: torch.stack(column) for name, column in columns.items()})


def sample_goal_rows(
    store: TrajectoryStore,
    rows: Tensor,
    relabelling: Relabelling,
    generator: torch.Generator,
    among: Tensor | None = None,
) -> Tensor:
    """The rows of one relabelled goal for each of ``rows``, which must not be final states."""
    shape, device, p = rows.shape, generator.device, relabelling.p_geometric
    future = torch.rand(shape, generator=generator, device=device) < relabelling.p_goal
    anywhere = _random_rows(store, shape, generator, among)
    if relabelling.p_near > 0:
        near = torch.rand(shape, generator=generator, device=device) < relabelling.p_near
        several = _random_rows(store, (*shape, _SEVERAL), generator, among)
        nearest = _nearest(store.achieved_goals, rows, several)
        anywhere = torch.where(near.to(rows.device), nearest, anywhere)
    # One number at a time on a CPU, and yet faster than logarithms: those start threads for small batches,
    # which stalls where other processes want the cores.
    ahead = torch.ones(shape, dtype=torch.float64, device=device)
    if p < 1:
        ahead.geometric_(p, generator=generator).clamp_(max=store.states)
    last = store.last_rows.index_select(0, store.episode_of.index_select(0, rows))
    later = torch.minimum(rows + ahead.long().to(rows.device), last)
    return torch.where(future.to(rows.device), later, anywhere)


def _random_rows(
    store: TrajectoryStore, shape: tuple[int, ...], generator: torch.Generator, among: Tensor | None
) -> Tensor:
    """Rows of random states, or of those that transitions ``among`` lead to."""
    count = store.states if among is None else len(among)
    drawn = torch.randint(count, shape, generator=generator, device=generator.device).to(store.device)
    return drawn if among is None else among[drawn] + 1


def _nearest(goals: Tensor, rows: Tensor, several: Tensor) -> Tensor:
    """Which of several rows (batch, n) achieves what is nearest to a row's own, in standard deviations."""
    candidates = goals[several]
    scale = candidates.flatten(0, 1).std(0).clamp_(min=1e-6)
    distances = ((candidates - goals[rows].unsqueeze(1)) / scale).square_().sum(-1)
    return several.gather(1, distances.argmin(1, keepdim=True))[:, 0]
