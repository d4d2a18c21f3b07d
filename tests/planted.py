"""How often T-local optima are found that are none, missed, or taken for deeper than they are."""

from dataclasses import dataclass

import numpy as np
import torch

from curioplan.analysis.optima import RandomReach, best_values, find_optima, stacked

OPEN = "\n".join(["." * 18] * 18)
ROOMS = """
....................#...
....................#...
....#########.......#...
....#...................
....#.......#.......#...
....#.......#.......#...
..........###########...
....#.......#...........
....#.......#...........
....#.......#....#######
"""


@dataclass(frozen=True)
class Rates:
    """Errors of the estimator, as shares of the cases in which they could occur."""

    false: float  # of the states that are none, those taken for optima
    missed: float  # of the optima, those not found
    too_deep: float  # of the optima found, those taken for deeper than they are
    too_shallow: float  # and for less deep
    excess: float  # steps by which those found are too deep, on average, up to the horizon


def problems(grid, depth, count, seed=0):
    """Goals, cells and tables of optimal values with an optimum of this depth planted there."""
    rng = np.random.default_rng(seed)
    found = []
    while len(found) < count:
        goal = int(rng.integers(len(grid)))
        far = np.flatnonzero(grid.distances[:, goal] >= depth + 2)
        if len(far):
            cell = int(rng.choice(far))
            found.append((goal, cell, grid.planted(grid.optimal, goal, cell, depth)))
    return found


def error_rates(grid, depth, *, sequences, horizon, pool=None, count=50, others=20, seed=0):
    """Rates over `count` planted optima and some other states beside each.

    Args:
        grid: The world.
        depth: Of the planted optima.
        sequences: Action sequences per state.
        horizon: Their length.
        pool: Random states among which the best is the best there is; all of them if none.
        count: Problems.
        others: Random states per problem that are no optima.
        seed: Seed of all this.
    """
    generator, rng = torch.Generator().manual_seed(seed), np.random.default_rng(seed + 1)
    reach = RandomReach(grid, grid.low, grid.high, horizon, sequences)
    depths = []
    for goal, cell, table in problems(grid, depth, count, seed):
        value, target = stacked([grid.value(table)]), grid.states[goal]
        known = grid.states if pool is None else grid.states[rng.integers(len(grid), size=pool)]
        beside = rng.choice(np.delete(np.arange(len(grid)), cell), others)
        states = grid.states[np.append(beside, cell)]
        best = best_values(value, known, target[None])
        depths.append(find_optima(value, states, target, best, reach, generator).depth[0])
    depths = np.stack(depths)
    found = depths[:, -1][depths[:, -1] > 0] - min(depth, horizon)
    return Rates(
        false=(depths[:, :-1] > 0).mean() if others else np.nan,
        missed=1 - len(found) / count,
        too_deep=(found > 0).mean() if len(found) else np.nan,
        too_shallow=(found < 0).mean() if len(found) else np.nan,
        excess=found.mean() if len(found) else np.nan,
    )
