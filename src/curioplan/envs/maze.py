"""Point-mass mazes: the ``maze_large`` of the paper and two smaller maps of its family."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import ImageDraw

from curioplan.envs.point_mass import GOAL, OFFSET, PointMassEnv, parse_map
from curioplan.envs.task import Case, Coverage, Floats, FloorPlan, Task, Within

START = (1.0, 1.0)
SUCCESS_RADIUS = 0.5

MAPS = {
    "maze_umaze": """
        #####
        #OOO#
        ###O#
        #OOO#
        #####""",
    "maze_medium": """
        ########
        #OO##OO#
        #OO#OOO#
        ##OOO###
        #OO#OOO#
        #O#OO#O#
        #OOO#OO#
        ########""",
    "maze_large": """
        ############
        #OOOO#OOOOO#
        #O##O#O#O#O#
        #OOOOOO#OOO#
        #O####O###O#
        #OO#O#OOOOO#
        ##O#O#O#O###
        #OO#OOO#OOO#
        ############""",
}


def cells(free: NDArray[np.bool_]) -> Coverage:
    """Coverage of a map by the cell that holds the ball."""
    number = np.full(free.shape, -1)
    number[free] = np.arange(free.sum())

    def index(observations: NDArray[Any]) -> NDArray[np.int64]:
        cell = np.round(observations[..., :2] + OFFSET).astype(np.int64)
        cell = np.clip(cell, 0, np.array(free.shape) - 1)
        return number[cell[..., 0], cell[..., 1]]

    return Coverage("cells", int(free.sum()), index)


def _task(
    name: str, env: str, goals: tuple[tuple[float, float], ...], episode_length: int, vertices: int
) -> Task:
    return Task(
        name=name,
        env=env,
        observation_dim=4,
        goal_dim=2,
        action_low=(-1.0, -1.0),
        action_high=(1.0, 1.0),
        episode_length=episode_length,
        success=Within(SUCCESS_RADIUS),
        graph_vertices=vertices,
        goal_indices=(0, 1),
        cases=tuple(Case(f"({x:g}, {y:g})", (x, y)) for x, y in goals),
        coverage=cells(parse_map(MAPS[name])),
        floor_plan=FloorPlan(parse_map(MAPS[name]), OFFSET),
    )


TASKS = {
    "maze_umaze": _task("maze_umaze", "curioplan/MazeUMaze-v0", ((1, 3), (3, 3), (3, 1)), 300, 100),
    "maze_medium": _task("maze_medium", "curioplan/MazeMedium-v0", ((1, 6), (6, 1), (6, 6)), 600, 500),
    "maze_large": _task("maze_large", "curioplan/MazeLarge-v0", ((1, 10), (7, 1), (5, 4)), 600, 1000),
}


class Maze(PointMassEnv):
    """Reach a position in a maze from its upper left corner; observes position and velocity."""

    def __init__(self, name: str, render_mode: str | None = None) -> None:
        super().__init__(TASKS[name], parse_map(MAPS[name]), render_mode)

    def _draw_start(self) -> Floats:
        position = np.array(START) + self.np_random.uniform(-0.1, 0.1, 2)
        return np.concatenate([position, 0.1 * self.np_random.standard_normal(2)])

    def _decorate(self, draw: ImageDraw.ImageDraw, scale: int) -> None:
        self._disc(draw, scale, self._goal, SUCCESS_RADIUS, tuple(200 + (c - 200) // 3 for c in GOAL))
        self._disc(draw, scale, self._goal, 0.12, GOAL)
