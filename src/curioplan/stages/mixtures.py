"""Data that exploration would not make: a scripted expert's, and runs whose data are a mixture."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import torch

from curioplan.config import ExploreConfig, from_dict
from curioplan.data import TrajectoryStore, load, save_minari
from curioplan.data.mixing import mix
from curioplan.envs import make_env, make_task
from curioplan.envs.experts import expert_for
from curioplan.errors import ConfigError, RunError
from curioplan.runs import open_stage, read_run
from curioplan.seeding import seed_for
from curioplan.stages.explore import STAGE
from curioplan.stages.train_model import find_model
from curioplan.storage import read_json, write_atomic

NOISE = (
    0.1  # of an expert's actions, as a share of half their range: without it there is but one way to a goal
)


def make_expert_data(
    env: str, out: str | Path, steps: int, seed: int = 0, *, overwrite: bool = False
) -> Path:
    """Have the scripted expert of a task pursue the goals of its cases, one after the other.

    Args:
        env: The environment.
        out: Where the dataset goes, a Minari folder.
        steps: Transitions.
        seed: Seed of everything random.
        overwrite: Whether a dataset that is there is replaced.

    Returns:
        The folder.
    """
    if steps < 1:
        raise ConfigError(f"steps must be at least 1, not {steps}.")
    with closing(make_env(env)) as world:
        task = make_task(env, world)
        expert = expert_for(task)
        goals = np.array([case.goal for case in task.cases if case.goal is not None])
        low, high = np.array(task.action_low), np.array(task.action_high)
        store = TrajectoryStore(task.observation_dim, task.goal_dim, task.action_dim)
        while store.transitions < steps:
            rng = np.random.default_rng(seed_for(seed, "expert", store.episodes))
            seen, _ = world.reset(seed=seed_for(seed, "environment", store.episodes) % 2**31)
            store.begin(seen["observation"], seen["achieved_goal"])
            goal, done = rng.choice(goals), False
            while not done and store.transitions < steps:
                if bool(task.success(np.asarray(seen["achieved_goal"]), goal)):
                    goal = rng.choice(goals)
                noise = NOISE * rng.standard_normal(len(low)) * (high - low) / 2
                action = np.clip(expert.act(seen["observation"], goal) + noise, low, high).astype(np.float32)
                seen, _, terminated, truncated, _ = world.step(action)
                done = terminated or truncated
                store.step(action, seen["observation"], seen["achieved_goal"])
    save_minari(store, Path(out), task=task, overwrite=overwrite)
    return Path(out)


def mix_run(
    run: str | Path, other: str | Path, share: float, out: str | Path, *, env: str, seed: int = 0
) -> Path:
    """Make a run of an exploration in which a share of the trajectories is replaced by others.

    It has the model of the exploration, and whatever is learned from its data learns from the mixture.

    Args:
        run: The run of the exploration.
        other: A dataset, or a run for its exploration data.
        share: The share of transitions from there, of as many as the exploration has.
        out: The new run folder.
        env: The environment.
        seed: Chooses the trajectories.

    Returns:
        The folder of the new run's exploration.
    """
    run, other, out = Path(run), Path(other), Path(out)
    model, task = find_model(run), make_task(env)
    if read_run(run)["env"] != env:
        raise ConfigError(f"{run} is a run on {read_run(run)['env']}, not on {env}.")
    saved = read_json(model.parent / "config.json")
    try:
        config = from_dict(ExploreConfig, saved["settings"])
    except (KeyError, TypeError):
        raise RunError(f"{model.parent / 'config.json'} does not hold settings of an exploration.") from None
    own = load(model.parent / "data", task)
    data = other / STAGE / "data" if (other / "run.json").exists() else other
    generator = torch.Generator().manual_seed(seed_for(seed, "mixture"))
    store = mix([own, load(data, task)], [1 - share, share], own.transitions, generator)
    with open_stage(out, STAGE, env, config) as stage:
        save_minari(store, stage.folder / "data", task=task, overwrite=True)
        write_atomic(stage.folder / model.name, model.read_bytes())
        return stage.folder
