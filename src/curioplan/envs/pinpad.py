"""The pinpad: a ball in a room with a button in each corner, to be pressed in a given order."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import ImageDraw

from curioplan.envs.point_mass import BALL, GOAL, OFFSET, PointMassEnv, parse_map
from curioplan.envs.task import Case, Coverage, Floats, FloorPlan, Task, Within
from curioplan.errors import EnvError

ROOM = "##### #OOO# #OOO# #OOO# #####"
LOW, HIGH = 1.3, 2.3  # a button's zone lies below LOW or above HIGH in both coordinates
NOISE = 0.05  # standard deviation of the noise on the observed history
BUTTONS = (1, 2, 3, 4)
NEAR_WALL, FAR_WALL = 0.5 - OFFSET, 3.5 - OFFSET
ZONES = {  # lowest x and y, highest x and y
    "1": (NEAR_WALL, NEAR_WALL, LOW, LOW),
    "2": (NEAR_WALL, HIGH, LOW, FAR_WALL),
    "3": (HIGH, HIGH, FAR_WALL, FAR_WALL),
    "4": (HIGH, NEAR_WALL, FAR_WALL, LOW),
}


def zones(positions: NDArray[Any]) -> NDArray[np.int64]:
    """The button under each position ``(..., 2)``, 0 where there is none."""
    x, y = positions[..., 0], positions[..., 1]
    low_x, high_x, low_y, high_y = x < LOW, x > HIGH, y < LOW, y > HIGH
    return np.select([low_x & low_y, low_x & high_y, high_x & high_y, high_x & low_y], BUTTONS, 0)


def triples(observations: NDArray[Any]) -> NDArray[np.int64]:
    """The number (0–35) of the button history of each observation, −1 where it is no valid one."""
    a, b, c = np.moveaxis(np.round(observations[..., 4:7]).astype(np.int64), -1, 0)
    # Histories never repeat a button, so the second and third press each have three choices.
    index = (a - 1) * 9 + ((b - a) % 4 - 1) * 3 + (c - b) % 4 - 1
    in_range = (np.minimum(np.minimum(a, b), c) >= 1) & (np.maximum(np.maximum(a, b), c) <= 4)
    return np.where(in_range & (a != b) & (b != c), index, -1)


TASK = Task(
    name="pinpad",
    env="curioplan/PinPad-v0",
    observation_dim=7,
    goal_dim=3,
    action_low=(-1.0, -1.0),
    action_high=(1.0, 1.0),
    episode_length=300,
    success=Within(0.5, order=1),
    reach_horizon=10,
    graph_vertices=100,
    goal_indices=(4, 5, 6),
    cases=tuple(
        Case(
            f"{a}-{b}-{a}",
            goal=(a, b, a),
            state=(1.8, 1.8, 0.0, 0.0, 2.0, 3.0, 4.0),
            jitter=(0.1, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0),
        )
        for a in BUTTONS
        for b in BUTTONS
        if a != b
    ),
    coverage=Coverage("button triples", 36, triples),
    floor_plan=FloorPlan(parse_map(ROOM), OFFSET, ZONES),
)


class PinPad(PointMassEnv):
    """Observes position, velocity and the last three presses, the latter with fresh noise."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(TASK, parse_map(ROOM), render_mode)
        self._history: list[int] = []
        self._zone = 0

    def _draw_start(self) -> Floats:
        centre = self.np_random.integers(1, 4, 2) - OFFSET
        position = centre + self.np_random.uniform(-0.1, 0.1, 2)
        velocity = 0.1 * self.np_random.standard_normal(2)
        history = [int(self.np_random.integers(1, 5))]
        while len(history) < 3:
            history.append((history[-1] + int(self.np_random.integers(3))) % 4 + 1)
        return np.concatenate([position, velocity, history])

    def _begin(self, state: Floats) -> None:
        if triples(state) < 0:
            raise EnvError(
                f"The button history given to reset, {np.round(state[4:], 2).tolist()}, is not one of three "
                "buttons from 1 to 4 without consecutive repeats, as [2, 3, 4]."
            )
        self._history = [int(button) for button in np.round(state[4:])]
        self._zone = int(zones(state[:2]))

    def _moved(self) -> None:
        zone = int(zones(self._data.qpos))
        if zone not in (0, self._zone, self._history[-1]):
            self._history = [*self._history[1:], zone]
        self._zone = zone

    def _sense(self) -> Floats:
        noise = NOISE * self.np_random.standard_normal(3)
        return np.concatenate([self._data.qpos, self._data.qvel, self._history + noise])

    def _decorate(self, draw: ImageDraw.ImageDraw, scale: int) -> None:
        near, far = (LOW + OFFSET + 0.5) * scale, (HIGH + OFFSET + 0.5) * scale
        start, stop = scale, 4 * scale - 1
        squares = (
            (start, start, near, near),
            (far, start, stop, near),
            (far, far, stop, stop),
            (start, far, near, stop),
        )
        for button, (left, top, right, bottom) in zip(BUTTONS, squares, strict=True):
            lit = button == self._history[-1]
            draw.rectangle((left, top, right, bottom), fill=(240, 200, 90) if lit else (216, 222, 226))
            draw.text(
                ((left + right) / 2, (top + bottom) / 2), str(button), (60, 60, 60), font_size=scale // 3
            )
        labels = (
            ("pressed", self._history, BALL, 0.3),
            ("goal", np.round(self._goal).astype(int), GOAL, 4.3),
        )
        for label, buttons, colour, row in labels:
            text = f"{label}  " + " ".join(str(button) for button in buttons)
            draw.text(
                (scale * 1.1, row * scale), text, tuple(120 + c // 2 for c in colour), font_size=scale // 3
            )
