"""Environments, their task descriptions, and how to make them by name.

Importing this package registers ``curioplan/MazeUMaze-v0``, ``curioplan/MazeMedium-v0``,
``curioplan/MazeLarge-v0``, ``curioplan/PinPad-v0``, ``curioplan/FetchPush-v0`` and
``curioplan/Kitchen-v0`` with Gymnasium.
"""

import contextlib
import ctypes
import os
import sys

# Without a choice MuJoCo looks for a screen to draw on; with a library that is absent it fails to import.
if sys.platform == "linux" and "MUJOCO_GL" not in os.environ:
    try:
        ctypes.CDLL("libEGL.so.1")
    except OSError:
        pass
    else:
        os.environ["MUJOCO_GL"] = "egl"

# Gymnasium-Robotics would print advice on environments that are not used here, in the midst of our output.
with contextlib.suppress(ImportError):
    import farama_notifications

    farama_notifications.notifications.pop("gymnasium_robotics", None)

from curioplan.envs.check import Finding, check_env
from curioplan.envs.registry import SHORT_NAMES, make_env, make_task
from curioplan.envs.task import Case, Coverage, FloorPlan, MovableObject, Task, Within

__all__ = [
    "SHORT_NAMES",
    "Case",
    "Coverage",
    "Finding",
    "FloorPlan",
    "MovableObject",
    "Task",
    "Within",
    "check_env",
    "make_env",
    "make_task",
]
