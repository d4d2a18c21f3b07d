"""From a name to an environment and its task: ours, a Gymnasium id, or ``module:callable``."""

from __future__ import annotations

import difflib
import importlib
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym

from curioplan.envs.check import derive_task
from curioplan.envs.task import Task
from curioplan.errors import EnvError

SHORT_NAMES = {
    "maze_umaze": "curioplan/MazeUMaze-v0",
    "maze_medium": "curioplan/MazeMedium-v0",
    "maze_large": "curioplan/MazeLarge-v0",
    "pinpad": "curioplan/PinPad-v0",
    "fetch_push": "curioplan/FetchPush-v0",
    "kitchen": "curioplan/Kitchen-v0",
}


def _register() -> None:
    maze = "curioplan.envs.maze:Maze"
    entries: dict[str, tuple[str, int, dict[str, Any]]] = {
        "maze_umaze": (maze, 300, {"name": "maze_umaze"}),
        "maze_medium": (maze, 600, {"name": "maze_medium"}),
        "maze_large": (maze, 600, {"name": "maze_large"}),
        "pinpad": ("curioplan.envs.pinpad:PinPad", 300, {}),
        "fetch_push": ("curioplan.envs.fetch:FetchPush", 50, {}),
        "kitchen": ("curioplan.envs.kitchen:Kitchen", 280, {}),
    }
    for short, (entry_point, steps, arguments) in entries.items():
        gym.register(SHORT_NAMES[short], entry_point, max_episode_steps=steps, kwargs=arguments)


_register()


def make_env(name: str, render_mode: str | None = None) -> gym.Env:
    """Make an environment from a short name, a Gymnasium id, or ``module:callable``.

    A callable is called without arguments, or with ``render_mode`` when one is asked for, and returns
    the environment. Environments that end by themselves should be wrapped in a ``TimeLimit``.
    """
    factory, arguments = _factory(name), {} if render_mode is None else {"render_mode": render_mode}
    try:
        env = factory(**arguments)
    except Exception as error:
        raise EnvError(f"The environment {name} could not be made: {_one_line(error)}") from error
    if not isinstance(env, gym.Env):
        raise EnvError(f"{name} returned a {type(env).__name__}, not a Gymnasium environment.")
    return env


def make_task(name: str, env: gym.Env | None = None) -> Task:
    """The task description of an environment, made for the purpose unless ``env`` is given.

    An environment may describe itself with an attribute ``task``, as ours do; for any other the
    description is derived from its goal interface.
    """
    made = make_env(name) if env is None else env
    try:
        own = getattr(made.unwrapped, "task", None)
        return own if isinstance(own, Task) else derive_task(made, name)
    finally:
        if env is None:
            made.close()


def _factory(name: str) -> Callable[..., Any]:
    if name in SHORT_NAMES:
        name = SHORT_NAMES[name]
    module_name, _, attribute = name.partition(":")
    if attribute and all(part.isidentifier() for part in attribute.split(".")):
        return _import_callable(name, module_name, attribute)
    if name not in gym.registry and not attribute:
        import gymnasium_robotics

        gym.register_envs(gymnasium_robotics)
    if name not in gym.registry and not attribute:
        known = [*SHORT_NAMES, *gym.registry]
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]}?" if close else "curioplan envs lists ours."
        raise EnvError(f"There is no environment {name}; {hint}")

    def factory(**arguments: Any) -> gym.Env:
        with warnings.catch_warnings():  # Gymnasium's advice on versions and checkers is not for our users
            warnings.simplefilter("ignore")
            return gym.make(name, disable_env_checker=True, **arguments)

    return factory


def _import_callable(name: str, module_name: str, attribute: str) -> Callable[..., Any]:
    try:
        found: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except ModuleNotFoundError as error:
        raise EnvError(
            f"{name} could not be imported: {_one_line(error)}; module:callable needs a module that Python "
            "finds from here."
        ) from error
    except AttributeError:
        raise EnvError(f"The module {module_name} has no {attribute}, so {name} cannot be made.") from None
    except Exception as error:
        raise EnvError(f"Importing {module_name} failed: {_one_line(error)}") from error
    if not callable(found):
        raise EnvError(
            f"{name} is a {type(found).__name__}; a function or class that makes the env is needed."
        )
    return found


def _one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
