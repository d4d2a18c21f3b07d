"""Scripted experts: what knows the answer in some tasks, to make data that exploration would not."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from curioplan.envs.pinpad import zones
from curioplan.envs.task import Floats, Task
from curioplan.envs.waypoints import WaypointController
from curioplan.errors import EnvError


class Expert(Protocol):
    """A policy for any goal of a task."""

    def act(self, observation: Floats, goal: Floats) -> NDArray[np.float32]:
        """The action in a state."""
        ...


class ButtonPresser:
    """Presses the buttons of the pinpad that are missing, and crosses the room through its middle."""

    CENTRE = np.array([1.8, 1.8])
    BUTTONS = {1: (0.8, 0.8), 2: (0.8, 2.8), 3: (2.8, 2.8), 4: (2.8, 0.8)}  # noqa: RUF012

    def act(self, observation: Floats, goal: Floats) -> NDArray[np.float32]:
        """See `Expert`."""
        position, velocity = observation[:2], observation[2:4]
        target = np.array(self.BUTTONS[self._next(observation[4:7], goal)])
        here = int(zones(position))
        opposite = here and np.abs(target - self.BUTTONS[here]).min() > 1
        if opposite and np.abs(position - self.CENTRE).max() > 0.5:  # else it would press one on the way
            target = self.CENTRE
        return np.clip(4 * (target - position) - velocity, -1, 1).astype(np.float32)

    @staticmethod
    def _next(history: Floats, goal: Floats) -> int:
        """The button to press, given how much of the goal the last presses are the beginning of."""
        pressed, wanted = (np.round(each).astype(int).tolist() for each in (history, goal))
        done = max(k for k in range(3) if pressed[3 - k :] == wanted[:k])
        return int(wanted[done])


class Pusher:
    """Pushes the block of FetchPush: over it, down behind it as seen from the goal, then straight ahead."""

    BEHIND = 0.075  # distance from the block's centre at which the gripper comes down
    OFF_LINE = 0.015  # how far off the line to the goal it may push from
    CLEAR = 0.07  # height above the block at which it travels
    GAIN = 12.0  # actions per metre

    def act(self, observation: Floats, goal: Floats) -> NDArray[np.float32]:
        """See `Expert`."""
        gripper, block = observation[:3], observation[3:6]
        way = goal[:2] - block[:2]
        left = float(np.linalg.norm(way))
        ahead = way / max(left, 1e-6)
        offset = block[:2] - gripper[:2]
        along = float(offset @ ahead)
        across = float(np.linalg.norm(offset - along * ahead))
        behind = block[:2] - self.BEHIND * ahead
        low, above = gripper[2] < block[2] + 0.02, gripper[2] > block[2] + self.CLEAR - 0.02
        if left < 0.02:
            target = np.array([*gripper[:2], gripper[2]])
        elif low and across < self.OFF_LINE and along > 0:
            target = np.array([*gripper[:2] + min(left, 0.06) * ahead + (offset - along * ahead), block[2]])
        elif np.linalg.norm(gripper[:2] - behind) < self.OFF_LINE:
            target = np.array([*behind, block[2]])
        else:
            target = np.array([*(behind if above else gripper[:2]), block[2] + self.CLEAR])
        return np.array([*np.clip(self.GAIN * (target - gripper), -1, 1), 0.0], np.float32)


def expert_for(task: Task) -> Expert:
    """The expert of a task.

    Raises:
        EnvError: There is none.
    """
    if task.name == "fetch_push":
        return Pusher()
    if task.name == "pinpad":
        return ButtonPresser()
    if task.floor_plan is not None and task.goal_dim == 2:
        return WaypointController(task.floor_plan.free)
    raise EnvError(
        f"There is no scripted expert for {task.name}: there are for mazes, pinpad and fetch_push."
    )
