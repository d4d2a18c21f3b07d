"""How good a goal-conditioned value function is: against true times, and against what the data prove.

The reward of 1 comes with the step that reaches the goal, so a goal k steps away is worth γ^(k−1) at best.
The steps that a value V stands for are log_γ V, which is then k − 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from torch import Tensor

from curioplan.data import TrajectoryStore
from curioplan.envs.task import Floats
from curioplan.errors import DataError

ValueFunction = Callable[[Tensor, Tensor], Tensor]
"""V(s; g) from states ``(N, observation)`` and goals ``(N, goal)`` to values ``(N,)``."""
TimeFunction = Callable[[NDArray[Any], NDArray[Any]], Floats]
"""The true steps from states to goals, such as ``MazeTimes(task).steps``."""

NEAR = 50  # steps up to which a goal counts as near
LAGS = (1, 5, 20, 50, 100)  # steps ahead in a trajectory at which values are looked at
SMALLEST = float(np.finfo(np.float32).tiny)  # lower ones, and NaN, stand for as many steps as this one
BATCH = 8192  # pairs valued at once


def evaluate(value: ValueFunction, states: Tensor, goals: Tensor) -> Floats:
    """The values of states for goals (or one goal for all), in batches and without gradients, ``(N,)``."""
    goals = goals.expand(len(states), -1)
    with torch.no_grad():
        batches = zip(states.split(BATCH), goals.split(BATCH), strict=True)
        values = torch.cat([value(*batch) for batch in batches])
    if values.shape != (len(states),):
        shape = tuple(values.shape)
        raise DataError(f"A value function gave shape {shape} for {len(states)} states, not one value each.")
    return values.cpu().numpy().astype(np.float64)


def implied_steps(values: Floats, gamma: float) -> Floats:
    """The steps that values stand for, log_γ V."""
    return np.log(np.fmax(values, SMALLEST)) / np.log(gamma)


def expected_value(steps: NDArray[Any], gamma: float) -> Floats:
    """The value of a goal that is some steps away, γ^(steps − 1), and 1 at the goal itself."""
    return gamma ** np.maximum(np.asarray(steps, np.float64) - 1, 0)


def rank_correlation(
    value: ValueFunction,
    store: TrajectoryStore,
    times: TimeFunction,
    pairs: int,
    generator: torch.Generator,
) -> dict[str, float]:
    """Spearman's correlation of the steps that values stand for with true times, over random pairs.

    States and goals are those of random states of the data. Goals out of reach count as the farthest.

    Returns:
        ``rank`` over all pairs, ``rank_near`` over those of at most ``NEAR`` steps and ``rank_far`` over the
        others, each with its number of ``pairs``. Where values (or times) are all alike they order nothing,
        and the correlation is 0; so it is where there are fewer than two pairs.
    """
    states, goals = _random_pairs(store, pairs, generator)
    # Ranks are those of log_γ V, which falls with V.
    implied, true = -evaluate(value, states, goals), times(states.cpu().numpy(), goals.cpu().numpy())
    near = true <= NEAR
    found = {}
    for name, part in (("", np.ones(pairs, np.bool_)), ("_near", near), ("_far", ~near)):
        found[f"rank{name}"] = _spearman(implied[part], true[part])
        found[f"pairs{name}"] = float(part.sum())
    return found


def calibration(
    value: ValueFunction,
    store: TrajectoryStore,
    gamma: float,
    lags: Sequence[int] = LAGS,
    *,
    pairs: int,
    generator: torch.Generator,
) -> dict[str, float]:
    """Values of what the data reach k steps later, against the least these can truly be worth.

    Args:
        value: The value function.
        store: The data.
        gamma: Its discount factor.
        lags: The k; those longer than all episodes are left out.
        pairs: How many pairs to draw per lag; the cost depends on these alone.
        generator: Draws them.

    Returns:
        For every k, the mean ``value_k``, the median ``steps_k`` it stands for, and ``bound_k`` = γ^(k−1):
        the data got there in k steps, so the true values are no lower. The same of random goals as
        ``value_random`` and ``steps_random``.
    """
    found: dict[str, float] = {}
    for lag in lags:
        values = lagged_values(value, store, lag, pairs, generator)
        if len(values):
            found |= _summary(values, gamma, str(lag))
            found[f"bound_{lag}"] = float(expected_value(np.array(lag), gamma))
    return found | _summary(random_values(value, store, pairs, generator), gamma, "random")


def lagged_values(
    value: ValueFunction, store: TrajectoryStore, lag: int, pairs: int, generator: torch.Generator
) -> Floats:
    """Values of states for what is achieved ``lag`` steps later, of random such pairs; none if none exist."""
    starts = (store.episode_lengths + 1 - lag).clamp(min=0)  # per episode, from which `lag` steps follow
    ends = starts.cumsum(0)
    total = int(ends[-1]) if len(ends) else 0
    if total == 0:
        return np.zeros(0)
    drawn = torch.randint(total, (pairs,), generator=generator, device=generator.device).to(store.device)
    episode = torch.searchsorted(ends, drawn, right=True)
    rows = store.first_rows[episode] + drawn - (ends - starts)[episode]
    return evaluate(value, store.observations[rows], store.achieved_goals[rows + lag])


def random_values(
    value: ValueFunction, store: TrajectoryStore, pairs: int, generator: torch.Generator
) -> Floats:
    """Values of random states for what other random states achieve."""
    return evaluate(value, *_random_pairs(store, pairs, generator))


def along_path(value: ValueFunction, path: Tensor, goal: Tensor, gamma: float) -> tuple[Floats, Floats]:
    """Values along a trajectory that ends in its goal, and what they should be by the steps that remain.

    Args:
        value: The value function.
        path: States, ``(steps + 1, observation)``.
        goal: The goal, ``(goal,)``.
        gamma: Its discount factor.
    """
    return evaluate(value, path, goal), expected_value(np.arange(len(path))[::-1], gamma)


def _random_pairs(store: TrajectoryStore, pairs: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    if not store.states:
        raise DataError("There are no states to value.")
    drawn = torch.randint(store.states, (2, pairs), generator=generator, device=generator.device)
    rows, goal_rows = drawn.to(store.device)
    return store.observations[rows], store.achieved_goals[goal_rows]


def _summary(values: Floats, gamma: float, name: str) -> dict[str, float]:
    steps = implied_steps(values, gamma)
    return {f"value_{name}": float(values.mean()), f"steps_{name}": float(np.median(steps))}


def _spearman(one: Floats, other: Floats) -> float:
    """The correlation of ranks, ties sharing theirs; 0 where either has nothing to rank."""
    if len(one) < 2:
        return 0.0
    ranks = [rankdata(values) for values in (one, other)]
    centred = [rank - rank.mean() for rank in ranks]
    scale = np.sqrt(np.prod([(rank**2).sum() for rank in centred]))
    return float(centred[0] @ centred[1] / scale) if scale > 0 else 0.0
