"""A scripted expert for point-mass mazes: follow the shortest path from cell to cell."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from curioplan.envs.point_mass import MAX_SPEED, OFFSET
from curioplan.envs.task import Floats
from curioplan.errors import EnvError

Cell = tuple[int, int]


def shortest_path(free: NDArray[np.bool_], start: Cell, goal: Cell) -> list[Cell]:
    """The cells of a shortest path from ``start`` to ``goal``, both included."""
    parent: dict[Cell, Cell] = {goal: goal}
    queue = deque([goal])
    while queue and start not in parent:
        i, j = queue.popleft()
        for cell in ((i + 1, j), (i - 1, j), (i, j + 1), (i, j - 1)):
            if free[cell] and cell not in parent:
                parent[cell] = (i, j)
                queue.append(cell)
    if start not in parent:
        raise EnvError(f"No free path leads from cell {start} to cell {goal}.")
    path = [start]
    while path[-1] != goal:
        path.append(parent[path[-1]])
    return path


class WaypointController:
    """Steers along the shortest path and cuts its corners at speed.

    It takes about 224, 124 and 252 steps to the three goals of ``maze_large``.
    """

    CORNER_SPEED = 4.0  # speed at which a corner is passed
    INSET = 0.3  # how far from a corner cell's centre, towards the inside of the turn
    BRAKING = 12.0  # planned deceleration, half of what full thrust gives
    GAIN = 4.0  # thrust per unit of missing velocity

    def __init__(self, free: NDArray[np.bool_]) -> None:
        self.free = free

    def act(self, observation: Floats, goal: Floats) -> NDArray[np.float32]:
        """The force towards ``goal`` (a joint position) from an observation (position, velocity)."""
        position, velocity = observation[:2], observation[2:4]
        target, passing = self._target(shortest_path(self.free, self._cell(position), self._cell(goal)), goal)
        offset = target - position
        end_speed = self.CORNER_SPEED if passing else 0.0
        allowed = np.sqrt(end_speed**2 + 2 * self.BRAKING * np.linalg.norm(offset))
        # The speed limit holds per axis, so diagonals may be faster.
        wanted = offset / max(float(abs(offset).max()), 1e-6) * min(allowed, MAX_SPEED + 1.0)
        return np.clip(self.GAIN * (wanted - velocity), -1.0, 1.0).astype(np.float32)

    def _target(self, path: list[Cell], goal: Floats) -> tuple[Floats, bool]:
        """Where the straight part of the path ends, and whether the path goes on after it."""
        steps = [np.subtract(b, a) for a, b in pairwise(path)]
        corner = next((k for k in range(1, len(steps)) if (steps[k] != steps[k - 1]).any()), None)
        if corner is None:
            return goal, False
        inside = steps[corner] - steps[corner - 1]
        return np.array(path[corner]) - OFFSET + self.INSET * inside, True

    @staticmethod
    def _cell(position: Floats) -> Cell:
        i, j = np.round(np.asarray(position) + OFFSET).astype(int)
        return int(i), int(j)
