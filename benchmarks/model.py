"""How well ensembles trained offline on explored data predict, and what plans they allow.

    python benchmarks/model.py RUN --out OUT [--updates 20000] [--seeds 0 1] [--reach] [--planner-seeds 0 1]

In the run folder OUT, ensembles are trained on the data of the exploration RUN, with β-NLL and with plain
likelihood, all but a tenth of the episodes. On that tenth their errors are measured, one step and many steps
ahead: 1 is the error of predicting no change. With --reach (fetch_push), the model that RUN itself left plans
on the distance of the last imagined state from the goal, over the evaluation cases.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from curioplan.config import PlannerConfig, ReachConfig, TrainModelConfig
from curioplan.envs import Task, make_env, make_task
from curioplan.models import GaussianEnsemble
from curioplan.planning import Distance, ModelRollout, Planner
from curioplan.presets import preset
from curioplan.runs import read_run
from curioplan.seeding import seed_for
from curioplan.stages.train_model import load_model, train_model

SHOWN = (1, 5, 15, 30)  # steps ahead
PLANNER = replace(
    preset("cpu", ReachConfig).planner, replan_every=1, initial_std=0.4, iterations=4, population=128
)
HORIZON = 20


def reach(model: GaussianEnsemble, task: Task, planner: PlannerConfig, seed: int) -> list[int]:
    """The cases solved by planning on the distance to the goal, all planned in one batch."""
    assert task.goal_indices is not None
    envs = [make_env(task.env) for _ in task.cases]
    observations = [
        env.reset(seed=0, options=case.options(np.random.default_rng(0)))[0]
        for env, case in zip(envs, task.cases, strict=True)
    ]
    goals = torch.tensor(np.array([row["desired_goal"] for row in observations]), dtype=torch.float32)
    plan = Planner(
        planner,
        HORIZON,
        torch.tensor(task.action_low),
        torch.tensor(task.action_high),
        ModelRollout(model, planner.propagation, planner.particles),
        Distance(goals, task.goal_indices, final=True),
    )
    plan.reset([seed_for(seed, "planner", case) for case in range(len(envs))])
    solved = np.zeros(len(envs), bool)
    for _ in range(task.episode_length):
        states = torch.tensor(np.array([row["observation"] for row in observations]), dtype=torch.float32)
        stepped = [env.step(action) for env, action in zip(envs, plan.act(states).numpy(), strict=True)]
        observations = [step[0] for step in stepped]
        solved |= np.array([step[4]["is_success"] for step in stepped])
    for env in envs:
        env.close()
    return np.flatnonzero(solved).tolist()


def print_errors(folders: dict[str, Path]) -> None:
    """Errors relative to predicting no change, of each model and of the linear predictor."""
    print(f"errors after {', '.join(map(str, SHOWN))} steps, 1 is predicting no change")
    for name, folder in folders.items():
        errors = json.loads((folder / "errors.json").read_text())["errors"]
        for what, rows in errors.items():
            shown = {row["steps"]: row for row in rows if row["steps"] in SHOWN}
            for kind in ("model", "linear"):
                label = name if kind == "model" else "linear"
                values = "".join(f"{row[kind]:10.3f}" for row in shown.values())
                print(f"  {label:<20} {what:<15}{values}")


def print_reach(model: GaussianEnsemble, task: Task, seeds: Sequence[int]) -> None:
    """Cases solved with each seed of the planner, and those that failed."""
    for seed in seeds:
        solved = reach(model, task, PLANNER, seed)
        failed = sorted(set(range(len(task.cases))) - set(solved))
        print(f"  planner seed {seed}: {len(solved)} of {len(task.cases)} cases, not {failed}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--updates", type=int, default=0, help="0 takes those of preset cpu")
    parser.add_argument("--transitions", type=int, default=0, help="use only the first so many; 0 uses all")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="of the trainings")
    parser.add_argument("--planner-seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--reach", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    env = read_run(arguments.run)["env"]
    task, default = make_task(env), preset("cpu", TrainModelConfig, env)
    folders = {}
    for seed in arguments.seeds:
        for name, beta in (("beta-nll", default.model.beta), ("plain", 0.0)):
            config = replace(
                default,
                seed=seed,
                data=str(arguments.run),
                size=arguments.transitions,
                updates=arguments.updates or default.updates,
                held_out_episodes=0.1,
                model=replace(default.model, beta=beta),
            )
            name = f"{name}-{seed}"
            folders[name] = train_model(arguments.out, config, env=env, name=name)
    print_errors(folders)
    if arguments.reach:
        print("planning on the distance to the goal")
        print_reach(load_model(arguments.run), task, arguments.planner_seeds)


if __name__ == "__main__":
    main()
