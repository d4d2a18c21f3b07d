"""How long stages take on one core, before anything has been measured.

For ``cpu`` and ``smoke`` the figures were measured on one of two busy x86-64 cores without AVX-512; for
``paper`` they are the authors', on an RTX 3060. Finished jobs correct them
(:class:`~curioplan.studies.schedule.Pace`).
"""

from __future__ import annotations

from functools import cache

from curioplan.config import DiagnoseConfig, ExploreConfig, LearnConfig, TrainModelConfig
from curioplan.envs import Task, make_task

START = 6.0
"""Seconds until a process has imported what it needs, and for its figures at the end."""
EXPLORE = {"paper": 1.4, "cpu": 50.0, "smoke": 130.0}
"""Environment steps per second in mazes."""
STEPS_COST = {"maze_large": 0.75, "fetch_push": 1.3, "pinpad": 1.6, "kitchen": 1.7}
"""What a step costs in environments whose states, simulators, plans or updates differ: 1 elsewhere."""
POLO = {"on-policy": 1.5, "mppi": 3.0}
"""How much longer value-driven exploration takes, by its targets."""
MODEL = {"paper": 30.0, "cpu": 100.0, "smoke": 200.0}
"""Updates per second of a model, once exploration is over."""
EXPERT, MIX = 400.0, 20_000.0
"""Transitions per second of a scripted expert, and of mixing data."""
LEARN = {"paper": 18.6, "cpu": 36.0, "smoke": 200.0}
"""Updates per second of TD3."""
COSTLIER = {"sac": 1.4, "crr": 1.6, "mbpo": 1.1, "mopo": 1.1, "iql": 1.4, "lapo": 2.3}
"""Learners whose updates take longer."""
CONTROL = {
    "actor": {"paper": 100.0, "cpu": 1000.0, "smoke": 1000.0},
    "mbp": {"paper": 3.0, "cpu": 60.0, "smoke": 80.0},
    "mbp+graph": {"paper": 0.3, "cpu": 45.0, "smoke": 40.0},
}
"""Actions per second by controller, of all cases together; others are taken to be as fast as ``mbp``."""
LOOK = {"paper": 10_000.0, "cpu": 40_000.0, "smoke": 200_000.0}
"""States reached from another per second, with their values, where T-local optima are looked for."""
LOOKED = 3
"""Steps after which most states have a better one, and cost no more."""


def exploring(env: str, preset: str, config: ExploreConfig) -> float:
    """Seconds of an exploration, until its model has settled."""
    steps = config.steps * STEPS_COST.get(env, 1.0)
    return START + steps / EXPLORE[preset] + config.settle / MODEL[preset]


def modelling(preset: str, config: TrainModelConfig) -> float:
    """Seconds of the training of a model."""
    return START + config.updates / MODEL[preset]


def learning(algo: str, preset: str, config: LearnConfig, transitions: int) -> float:
    """Seconds of a training."""
    updates = config.updates or config.epochs * transitions / config.batch_size
    return START + updates * COSTLIER.get(algo, 1.0) / LEARN[preset]


def evaluating(env: str, controller: str, preset: str) -> float:
    """Seconds of an evaluation whose cases all take the whole episode."""
    task = task_of(env)
    rates = CONTROL["mbp+graph" if controller.startswith("mbp+graph") else controller.split("+")[0]]
    return START + max(1, len(task.cases)) * task.episode_length / rates[preset]


def diagnosing(env: str, preset: str, config: DiagnoseConfig, functions: int) -> float:
    """Seconds to look for T-local optima along what some value functions did, each on all trajectories."""
    task = task_of(env)
    states = functions * max(1, len(task.cases)) * (1 + task.episode_length // config.stride)
    return START + states * config.sequences * LOOKED * functions / LOOK[preset]


@cache
def task_of(env: str) -> Task:
    """The task of an environment, made once."""
    return make_task(env)
