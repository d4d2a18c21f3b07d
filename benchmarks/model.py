"""How well the dynamics ensemble predicts on explored data, with β-NLL and with plain likelihood.

    python benchmarks/model.py RUN [--updates 10000] [--reach]

Nine of ten episodes of a finished exploration train an ensemble of the run's size from scratch; the tenth
judges it, one step and many steps ahead, against predicting no change (whose error is 1) and against the best
linear predictor. With --reach (fetch_push) the run's own model and these are used to plan on the distance of
the last imagined state from the goal, over the 24 evaluation cases.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from curioplan.analysis.model_error import model_error
from curioplan.config import ExploreConfig, ModelConfig, PlannerConfig, from_dict
from curioplan.data import TrajectoryStore, load
from curioplan.envs import Task, make_env, make_task
from curioplan.models import GaussianEnsemble
from curioplan.planning import Distance, ModelRollout, Planner
from curioplan.runs import read_run
from curioplan.storage import load_tree


def split(store: TrajectoryStore, share: float) -> tuple[TrajectoryStore, TrajectoryStore]:
    """Most episodes, and every so many-th of them apart."""
    parts = [TrajectoryStore(store.observation_dim, store.goal_dim, store.action_dim) for _ in range(2)]
    every = round(1 / share)
    for number, episode in enumerate(store):
        parts[number % every == every - 1].add_episode(*episode)
    return parts[0], parts[1]


def train(store: TrajectoryStore, config: ModelConfig, updates: int) -> GaussianEnsemble:
    model = GaussianEnsemble(store.observation_dim, store.action_dim, config, seed=0)
    model.add(store.observations, store.actions, store.transition_rows)
    model.update(store.observations, store.actions, updates)
    model.select_elites(store.observations, store.actions)
    return model


def reach(model: GaussianEnsemble, task: Task, planner: PlannerConfig) -> tuple[int, int]:
    """Cases solved by planning on the distance to the goal, all planned in one batch."""
    envs = [make_env(task.env) for _ in task.cases]
    observations = [
        env.reset(seed=0, options=case.options(np.random.default_rng(0)))[0]
        for env, case in zip(envs, task.cases, strict=True)
    ]
    goals = torch.tensor(np.array([row["desired_goal"] for row in observations]), dtype=torch.float32)
    assert task.goal_indices is not None
    bounds = torch.tensor(task.action_low), torch.tensor(task.action_high)
    plan = Planner(
        planner,
        task.reach_horizon,
        *bounds,
        ModelRollout(model, planner.propagation, planner.particles),
        Distance(goals, task.goal_indices, final=True),
    )
    plan.reset(list(range(len(envs))))
    solved = np.zeros(len(envs), bool)
    for _ in range(task.episode_length):
        states = torch.tensor(np.array([row["observation"] for row in observations]), dtype=torch.float32)
        actions = plan.act(states).numpy()
        stepped = [env.step(action) for env, action in zip(envs, actions, strict=True)]
        observations = [step[0] for step in stepped]
        solved |= np.array([step[4]["is_success"] for step in stepped])
    return int(solved.sum()), len(envs)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--updates", type=int, default=10_000)
    parser.add_argument("--transitions", type=int, default=0, help="use only the first so many; 0 uses all")
    parser.add_argument("--reach", action="store_true")
    arguments = parser.parse_args()
    task = make_task(read_run(arguments.run)["env"])
    store = load(arguments.run / "explore" / "data", task)
    if arguments.transitions:
        first = TrajectoryStore(store.observation_dim, store.goal_dim, store.action_dim)
        for episode in store:
            if first.transitions < arguments.transitions:
                first.add_episode(*episode)
        store = first
    settings = json.loads((arguments.run / "explore" / "config.json").read_text())["settings"]
    config = from_dict(ExploreConfig, settings)
    known, unseen = split(store, 0.1)
    objects = [index for thing in task.objects for index in thing.indices]
    print(f"{task.name}: {known.transitions} transitions train, {unseen.transitions} test")
    planner = replace(config.planner, population=64, iterations=3, replan_every=1, propagation="mean")
    if arguments.reach:
        own = GaussianEnsemble(store.observation_dim, store.action_dim, config.model)
        own.load(load_tree(arguments.run / "explore" / "model.safetensors"))
        print("the run's model, distance cost: {} of {} cases".format(*reach(own, task, planner)))
    print("error relative to predicting no change, after 1, 5, 15, 30 steps")
    for name, beta in (("beta-NLL", 0.5), ("plain likelihood", 0.0)):
        model = train(known, replace(config.model, beta=beta), arguments.updates)
        for what, dims in (("all dimensions", None), ("objects", objects)):
            if dims == []:
                continue
            found = model_error(model, known, unseen, dims=dims)
            print(f"  {name:<17} {what:<15}" + "".join(f"{error.model:9.3f}" for error in found))
        if arguments.reach:
            print(f"  {name:<17} distance cost   {'{} of {} cases'.format(*reach(model, task, planner))}")
    for what, dims in (("all dimensions", None), ("objects", objects)):
        if dims != []:
            found = model_error(model, known, unseen, dims=dims)
            print(f"  {'linear':<17} {what:<15}" + "".join(f"{error.linear:9.3f}" for error in found))


if __name__ == "__main__":
    main()
