"""A force-driven ball between walls: the body shared by the mazes and the pinpad.

The physics is that of D4RL's ``maze2d``: one MuJoCo step of 0.01 s per action, no gravity, a sphere of
radius 0.1 and mass 4.189 on two damped slide joints, velocities clipped to ±5 before each step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from curioplan.envs.task import Floats, Observation, Task
from curioplan.errors import EnvError

RADIUS = 0.1
MAX_SPEED = 5.0
OFFSET = 0.2  # the centre of cell (i, j) is at joint position (i − OFFSET, j − OFFSET)
PIXELS = 40  # per cell, in rendered frames
SMOOTH = 3  # frames are drawn this much larger and reduced

WALL, FLOOR, BALL, GOAL = (62, 70, 84), (244, 244, 240), (0, 114, 178), (213, 94, 0)


def parse_map(text: str) -> NDArray[np.bool_]:
    """The free cells of a map of ``#`` and ``O``, as booleans (rows, columns)."""
    return np.array([[character == "O" for character in row] for row in text.split()])


def build_model(free: NDArray[np.bool_]) -> mujoco.MjModel:
    """The MuJoCo model of a ball among the walls of a map."""
    walls = "".join(
        f'<geom type="box" size="0.5 0.5 0.2" pos="{i + 1} {j + 1} 0"/>' for i, j in np.argwhere(~free)
    )
    joint = '<joint name="{0}" type="slide" axis="{1}" damping="1"/>'
    motor = '<motor joint="{0}" gear="100" ctrllimited="true" ctrlrange="-1 1"/>'
    return mujoco.MjModel.from_xml_string(
        f"""<mujoco>
          <option timestep="0.01" gravity="0 0 0" integrator="Euler"/>
          <default><geom density="1000" condim="1" margin="0.002"/></default>
          <worldbody>
            {walls}
            <body pos="1.2 1.2 0">
              {joint.format("x", "1 0 0")}{joint.format("y", "0 1 0")}
              <geom type="sphere" size="{RADIUS}"/>
            </body>
          </worldbody>
          <actuator>{motor.format("x")}{motor.format("y")}</actuator>
        </mujoco>"""
    )


class PointMassEnv(gym.Env, ABC):
    """Goal environment of a ball on a map; subclasses say what is observed, achieved and drawn."""

    metadata: dict[str, Any] = {  # noqa: RUF012
        "render_modes": ["rgb_array"],
        "render_fps": 50,
    }
    task: Task

    def __init__(self, task: Task, free: NDArray[np.bool_], render_mode: str | None = None) -> None:
        self.task = task
        self.free = free
        self.render_mode = render_mode
        self._model = build_model(free)
        self._data = mujoco.MjData(self._model)
        self._goal: Floats = np.zeros(task.goal_dim)
        self._observation: Floats = np.zeros(task.observation_dim)

        def box(size: int) -> spaces.Box:
            return spaces.Box(-np.inf, np.inf, (size,), np.float64)

        self.observation_space = spaces.Dict(
            observation=box(task.observation_dim),
            achieved_goal=box(task.goal_dim),
            desired_goal=box(task.goal_dim),
        )
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode, at ``options["state"]`` and towards ``options["goal"]`` where they are given."""
        super().reset(seed=seed)
        state, goal = self.task.read_options(options)
        if state is None:
            state = self._draw_start()
        if not self.is_free(state[:2]):
            raise EnvError(
                f"The state given to reset puts the ball at ({state[0]:g}, {state[1]:g}), inside a wall of "
                f"{self.task.name}; its free cells have their centres at (row − 0.2, column − 0.2)."
            )
        if goal is None:
            case = self.task.cases[self.np_random.integers(len(self.task.cases))]
            goal = np.array(case.goal, dtype=np.float64)
        self._goal = goal
        mujoco.mj_resetData(self._model, self._data)
        self._data.qpos[:] = state[:2]
        self._data.qvel[:] = state[2:4]
        self._begin(state)
        return self._observe()

    def step(self, action: NDArray[np.float32]) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Push the ball for one simulation step; episodes never terminate."""
        self._data.qvel[:] = np.clip(self._data.qvel, -MAX_SPEED, MAX_SPEED)
        self._data.ctrl[:] = np.clip(action, -1.0, 1.0)
        mujoco.mj_step(self._model, self._data)
        self._moved()
        observation, info = self._observe()
        return observation, float(info["is_success"]), False, False, info

    def compute_reward(self, achieved_goal: Floats, desired_goal: Floats, info: Any) -> Any:
        """1 where the achieved goal meets the desired one, else 0; works on batches."""
        return self.task.success(np.asarray(achieved_goal), np.asarray(desired_goal)).astype(np.float64)

    def is_free(self, position: Floats) -> bool:
        """Whether the centre of the ball may be at a joint position."""
        cell = np.round(position + OFFSET).astype(int)
        inside = (cell >= 0).all() and (cell < self.free.shape).all()
        return bool(inside and self.free[tuple(cell)])

    def render(self) -> NDArray[np.uint8] | None:
        """The map from above, rows downwards, as ``(height, width, 3)`` bytes; no graphics driver needed."""
        if self.render_mode is None:
            return None
        scale = PIXELS * SMOOTH
        rows, columns = self.free.shape
        image = Image.new("RGB", (columns * scale, rows * scale), WALL)
        draw = ImageDraw.Draw(image)
        for i, j in np.argwhere(self.free):
            draw.rectangle((j * scale, i * scale, (j + 1) * scale - 1, (i + 1) * scale - 1), fill=FLOOR)
        self._decorate(draw, scale)
        self._disc(draw, scale, self._data.qpos, RADIUS * 1.6, BALL)
        return np.asarray(image.reduce(SMOOTH))

    def _disc(
        self, draw: ImageDraw.ImageDraw, scale: int, centre: Floats, radius: float, colour: tuple[int, ...]
    ) -> None:
        x, y = (np.asarray(centre) + OFFSET + 0.5) * scale
        r = radius * scale
        draw.ellipse((y - r, x - r, y + r, x + r), fill=colour)

    def _observe(self) -> tuple[Observation, dict[str, Any]]:
        self._observation = self._sense()
        achieved = self.task.goal_of(self._observation)
        observation = {
            "observation": self._observation.copy(),
            "achieved_goal": achieved,
            "desired_goal": self._goal.copy(),
        }
        return observation, {"is_success": bool(self.task.success(achieved, self._goal))}

    @abstractmethod
    def _draw_start(self) -> Floats:
        """A start of the environment's own distribution, as an observation."""

    def _sense(self) -> Floats:
        """The observation of the current simulator state."""
        return np.concatenate([self._data.qpos, self._data.qvel])

    def _begin(self, state: Floats) -> None:
        """Set what a subclass keeps beside the ball."""

    def _moved(self) -> None:
        """Update what a subclass keeps beside the ball."""

    def _decorate(self, draw: ImageDraw.ImageDraw, scale: int) -> None:
        """Draw what a subclass shows beneath the ball."""
