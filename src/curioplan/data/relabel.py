"""Goals in hindsight: transitions labelled with goals that the data itself achieves."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from curioplan.data.trajectories import TrajectoryStore
from curioplan.errors import ConfigError


@dataclass(frozen=True)
class Relabelling:
    """Where the goals of relabelled transitions come from."""

    p_goal: float = 0.75
    """Share of goals from the future of the same trajectory; the others are those of random states."""
    p_geometric: float = 0.2
    """Parameter of the geometric distribution of how many steps ahead a future goal lies; its mean is 1/p."""

    def __post_init__(self) -> None:
        if not 0 <= self.p_goal <= 1:
            raise ConfigError(f"p_goal is a probability, from 0 to 1, not {self.p_goal}.")
        if not 0 < self.p_geometric <= 1:
            raise ConfigError(f"p_geometric is a probability above 0 and up to 1, not {self.p_geometric}.")


@dataclass
class Batch:
    """Relabelled transitions.

    Attributes:
        observations: s_t, ``(batch, observation)``.
        actions: a_t, ``(batch, action)``.
        next_observations: s_{t+1}, ``(batch, observation)``.
        goals: The goals, ``(batch, goal)``.
        rewards: 1 where the goal is s_{t+1} itself, else 0, ``(batch,)``.
        terminals: Where the episode ends for this goal: as the rewards.
        goal_rows: The rows of the store whose achieved goals these are, ``(batch,)``.
    """

    observations: Tensor
    actions: Tensor
    next_observations: Tensor
    goals: Tensor
    rewards: Tensor
    terminals: Tensor
    goal_rows: Tensor


def sample_batch(
    store: TrajectoryStore, batch_size: int, relabelling: Relabelling, generator: torch.Generator
) -> Batch:
    """Uniformly random transitions with relabelled goals.

    The goal g of (s_t, a_t, s_{t+1}) is that of s_{min(t+τ, T)}, τ ~ Geometric(p) ≥ 1, with probability
    p_goal, and else that of a uniformly random state; reward and termination are 1 when g is the goal of the
    very state s_{t+1}, by its row, and 0 otherwise. A batch depends on the store and the generator's state
    alone, so a run that restores both goes on with the batches it would have drawn.
    """
    rows = store.sample_rows(batch_size, generator)
    goal_rows = sample_goal_rows(store, rows, relabelling, generator)
    observations, actions, next_observations = store.transitions_at(rows)
    rewards = (goal_rows == rows + 1).float()
    return Batch(
        observations=observations,
        actions=actions,
        next_observations=next_observations,
        goals=store.achieved_goals.index_select(0, goal_rows),
        rewards=rewards,
        terminals=rewards.clone(),
        goal_rows=goal_rows,
    )


def sample_goal_rows(
    store: TrajectoryStore, rows: Tensor, relabelling: Relabelling, generator: torch.Generator
) -> Tensor:
    """The rows of one relabelled goal for each of ``rows``, which must not be final states."""
    shape, device, p = rows.shape, rows.device, relabelling.p_geometric
    future = torch.rand(shape, generator=generator, device=device) < relabelling.p_goal
    anywhere = torch.randint(store.states, shape, generator=generator, device=device)
    # One number at a time on a CPU, and yet faster than logarithms: those start threads for small batches,
    # which stalls where other processes want the cores.
    ahead = torch.ones(shape, dtype=torch.float64, device=device)
    if p < 1:
        ahead.geometric_(p, generator=generator).clamp_(max=store.states)
    last = store.last_rows.index_select(0, store.episode_of.index_select(0, rows))
    return torch.where(future, torch.minimum(rows + ahead.long(), last), anywhere)
