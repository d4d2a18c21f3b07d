"""The true time to a goal in point-mass mazes, to judge learned values by.

Thrust and top speed hold per axis, so a diagonal takes hardly longer than its longer side. Shortest lengths
therefore come from an 8-connected lattice whose diagonals cost a little more than its sides, that little
being calibrated to what turning costs. Lengths become steps by the motion of a mass that accelerates to its
top speed.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import dijkstra

from curioplan.envs.maze import SUCCESS_RADIUS
from curioplan.envs.task import Floats, Task
from curioplan.errors import EnvError

PER_CELL = 5  # lattice points per cell and axis; the outer ones are the ball's radius away from the walls
SPACING = 1 / PER_CELL
MARGIN = 0.5 - SPACING / 2  # how far from the centre of a cell the ball gets before it touches a wall
DIAGONAL = 1.25  # length of a diagonal in sides: 1 if turning were free, √2 if the top speed held jointly
TOP_SPEED = 0.05226  # cells per step
ACCELERATION = 0.0024  # cells per step²; a cell takes 30 steps from rest
STEP_TIME = 0.01  # seconds, the unit of observed velocities
LOOKAHEAD = 6.0  # steps over which the speed towards the goal is measured
BATCH = 4096  # pairs looked up at once

Indices = NDArray[np.int64]


class MazeTimes:
    """Shortest times between states and goals of a maze whose goals are positions.

    A search over positions and velocities, and the best runs found in the simulator, take 1 to 6 % longer
    in the median and rank states alike (correlation above 0.97).

    Args:
        task: A point-mass maze. The lengths between all points of its map are computed once, and kept.
        radius: A goal is reached within this distance of it; 0 asks for the very position.
    """

    def __init__(self, task: Task, radius: float = SUCCESS_RADIUS) -> None:
        if task.floor_plan is None or task.goal_indices != (0, 1):
            raise EnvError(
                f"True times need a map and goals that are positions, as in maze_large, not {task.name}."
            )
        self.radius = radius
        self._offset = task.floor_plan.offset
        self._free = np.pad(task.floor_plan.free, 1)  # a rim of wall, so that every cell has neighbours
        self._number, self._between = _all_lengths(self._free.tobytes(), *self._free.shape)
        # The nearest free lattice point of each, for positions in walls, as noise and imagination give them.
        self._nearest = np.moveaxis(
            distance_transform_edt(self._number < 0, return_distances=False, return_indices=True), 0, -1
        )

    def steps(self, states: NDArray[Any], goals: NDArray[Any]) -> Floats:
        """The least number of steps from each state to its goal, ``(N,)``; infinite where no way leads.

        Args:
            states: ``(N, observation)``: positions and velocities; positions alone are taken to be at rest.
            goals: Positions, ``(N, 2)``.
        """
        states, goals = np.asarray(states, np.float64), np.asarray(goals, np.float64)
        positions, velocities = states[:, :2], states[:, 2:4] * STEP_TIME
        length = self.lengths(positions, goals)
        if velocities.shape[1] == 0:
            return _time(length, np.zeros_like(length))
        low, high = self._reachable(positions)
        ahead = self.lengths(np.clip(positions + LOOKAHEAD * velocities, low, high), goals)
        known = np.isfinite(length) & np.isfinite(ahead)
        closing = np.subtract(length, ahead, where=known, out=np.zeros_like(length)) / LOOKAHEAD
        return _time(length, np.clip(closing, -TOP_SPEED, TOP_SPEED))

    def lengths(self, positions: NDArray[Any], goals: NDArray[Any]) -> Floats:
        """The length of the shortest way from each position to within the radius of its goal, in cells."""
        batches = [slice(start, start + BATCH) for start in range(0, len(positions), BATCH)]
        return np.concatenate([np.zeros(0), *(self._lengths(positions[b], goals[b]) for b in batches)])

    def _lengths(self, positions: Floats, goals: Floats) -> Floats:
        """The minimum over lattice points by the goal of the way there and what is left from there."""
        positions = np.clip(positions, *self._reachable(positions))
        reach = int(np.ceil(self.radius / SPACING)) + 1
        window = np.array(list(product(range(-reach, reach + 1), repeat=2)))
        ends = np.round(self._on_lattice(goals)).astype(np.int64)[:, None] + window  # (N, window, 2)
        left = self._left((ends - PER_CELL // 2) * SPACING - self._offset - 1, goals[:, None])
        end = self._numbers(ends)
        left[end < 0] = np.inf

        place = self._on_lattice(positions).round(9)  # at a wall, no trace of the point beyond it
        corner = np.floor(place).astype(np.int64)
        share = (place - corner)[:, None]  # (N, 1, 2)
        way = np.zeros(left.shape)
        for side in product((0, 1), repeat=2):  # bilinear between the four lattice points around
            weight = np.where(side, share, 1 - share).prod(-1)
            start = self._numbers(self._snapped(corner + side))[:, None]
            way += np.multiply(weight, self._between[start, end], where=weight > 0, out=np.zeros(left.shape))
        return np.minimum((way + left).min(1), self._left(positions, goals))

    def _left(self, positions: Floats, goals: Floats) -> Floats:
        """The straight way to within the radius of a goal; infinite if longer than to the next point.

        A way to the diagonally next cell could lead through a corner, so there is none either.
        """
        sides = np.abs(positions - goals)
        beyond = 1 - np.minimum(self.radius / np.maximum(np.hypot(sides[..., 0], sides[..., 1]), 1e-12), 1)
        left = beyond * (sides.max(-1) + (DIAGONAL - 1) * sides.min(-1))
        cells = [np.round(place + self._offset) for place in (positions, goals)]
        diagonal = (cells[0] != cells[1]).all(-1) & (left > 0)
        return np.where(diagonal | (left > DIAGONAL * SPACING), np.inf, left)

    def _reachable(self, positions: Floats) -> tuple[Floats, Floats]:
        """Lower and upper bounds of where the ball may be: in its cell and the free ones beside it."""
        cell = self._snapped(np.round(self._on_lattice(positions)).astype(np.int64)) // PER_CELL
        centre = cell.astype(np.float64) - self._offset - 1
        low, high = centre - MARGIN, centre + MARGIN
        for axis, step in enumerate(np.eye(2, dtype=np.int64)):
            low[:, axis] -= self._free[tuple((cell - step).T)]
            high[:, axis] += self._free[tuple((cell + step).T)]
        return low, high

    def _on_lattice(self, positions: Floats) -> Floats:
        """Positions in lattice coordinates, whose whole numbers are points."""
        return (positions + self._offset + 1) * PER_CELL + PER_CELL // 2

    def _snapped(self, points: Indices) -> Indices:
        """The nearest free point of each."""
        points = np.clip(points, 0, np.array(self._number.shape) - 1)
        return self._nearest[points[..., 0], points[..., 1]]

    def _numbers(self, points: Indices) -> Indices:
        """The numbers of points, −1 in walls."""
        points = np.clip(points, 0, np.array(self._number.shape) - 1)
        return self._number[points[..., 0], points[..., 1]]


@lru_cache(maxsize=8)
def _all_lengths(cells: bytes, rows: int, columns: int) -> tuple[Indices, NDArray[np.float32]]:
    """The number of every lattice point (−1 in walls), and the lengths between all numbered ones."""
    free = np.frombuffer(cells, np.bool_).reshape(rows, columns)
    lattice = np.kron(free, np.ones((PER_CELL, PER_CELL), np.bool_))
    count = int(lattice.sum())
    number = np.full(lattice.shape, -1)
    number[lattice] = np.arange(count)
    here, right, below, across = number[:-1, :-1], number[:-1, 1:], number[1:, :-1], number[1:, 1:]
    straight = [_pairs(here, right), _pairs(here, below)]  # the last row and column are walls
    open_square = np.minimum(np.minimum(here, right), np.minimum(below, across)) >= 0
    diagonal = [
        _pairs(here[open_square], across[open_square]),
        _pairs(right[open_square], below[open_square]),
    ]
    starts, stops = np.concatenate(straight + diagonal, axis=1)
    lengths = np.full(len(starts), SPACING)
    lengths[sum(pairs.shape[1] for pairs in straight) :] *= DIAGONAL
    graph = csr_matrix((lengths, (starts, stops)), shape=(count, count))
    return number, dijkstra(graph, directed=False).astype(np.float32)


def _pairs(starts: Indices, stops: Indices) -> Indices:
    """The pairs of which neither is in a wall, ``(2, pairs)``."""
    both = (starts >= 0) & (stops >= 0)
    return np.stack([starts[both], stops[both]])


def _time(length: Floats, closing: Floats) -> Floats:
    """Steps to cover lengths at full thrust, from a speed towards the goal (negative: away from it).

    At speed c the mass is where it would be c/a steps after a start from rest c²/2a further back; moving
    away, it comes to rest that much further away after −c/a steps.
    """
    whole = length + closing**2 / (2 * ACCELERATION)
    run_up = TOP_SPEED**2 / (2 * ACCELERATION)  # over which the top speed is reached
    steps = np.sqrt(2 * np.minimum(whole, run_up) / ACCELERATION) + np.maximum(whole - run_up, 0) / TOP_SPEED
    return np.where(length > 0, np.maximum(steps - closing / ACCELERATION, 0), 0)
