"""What exploration reaches and how fast: curiosity against random actions, β-NLL against plain likelihood.

    python benchmarks/exploration.py --out runs/exploration --envs maze_large --seeds 0 1 2 --steps 60000
    python benchmarks/exploration.py --out runs/sweep --steps 10000 --variants sweep --no-settle

Variants named after a setting change that one in preset cpu, to show what it buys; `sweep` is all of them but
those that it has anyway. Runs what is not there yet, one after the other on one thread each (start it twice,
with other environments, to use two cores), continues what was interrupted, and prints a table of everything
in the folder.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from curioplan.config import ExploreConfig
from curioplan.data import TrajectoryStore, displacements, load
from curioplan.envs import SHORT_NAMES, Task, make_task
from curioplan.presets import preset
from curioplan.stages.explore import explore
from curioplan.storage import write_json

MARKS = (5_000, 10_000, 20_000, 40_000, 60_000, 100_000, 200_000)
MOVED = 1e-3  # metres per step above which the block moves


PLANNER: dict[str, dict[str, Any]] = {
    "population-50": {"population": 50},
    "population-200": {"population": 200},
    "iterations-1": {"iterations": 1},
    "iterations-3": {"iterations": 3},
    "replan-3": {"replan_every": 3},
    "replan-5": {"replan_every": 5},
    "replan-10": {"replan_every": 10},
    "replan-20": {"replan_every": 20},
    "mean": {"propagation": "mean"},
    "ts1": {"propagation": "ts1", "particles": 5},
}
MODEL: dict[str, dict[str, Any]] = {
    "plain": {"beta": 0.0},
    "units-64": {"units": 64},
    "units-200": {"units": 200, "layers": 4},
    "members-3": {"members": 3, "elites": 3},
}
STAGE: dict[str, dict[str, Any]] = {
    "updates-0.25": {"updates_per_step": 0.25},
    "updates-1": {"updates_per_step": 1.0},
    "updates-0.5": {"updates_per_step": 0.5},
    "warmup-1200": {"warmup_steps": 1200},
    "warmup-3000": {"warmup_steps": 3000},
    "horizon-30": {"horizon": 30},
    "horizon-50": {"horizon": 50},
    "horizon-80": {"horizon": 80},
    "foresight-0": {"foresight": 0.0},
    "foresight-0.99": {"foresight": 0.99},
    "whims-0": {"whims": 0.0},
    "whims-0.1": {"whims": 0.1},
    "whims-0.2": {"whims": 0.2},
    "whims-1": {"whims": 1.0},
    "novelty": {"explorer": "novelty"},
}
VARIANTS = ["random", "curious", *PLANNER, *MODEL, *STAGE]


def variant_config(env: str, variant: str, steps: int, seed: int, settle: bool) -> ExploreConfig:
    config = replace(preset("cpu", ExploreConfig, env), steps=steps, seed=seed)
    config = config if settle else replace(config, settle=0)
    if variant == "random":
        return replace(config, explorer="random")
    return replace(
        config,
        planner=replace(config.planner, **PLANNER.get(variant, {})),
        model=replace(config.model, **MODEL.get(variant, {})),
        **STAGE.get(variant, {}),
    )


def sweep(env: str) -> list[str]:
    """Preset cpu, and the variants that differ from it in an environment."""

    def settings(variant: str) -> ExploreConfig:
        config = variant_config(env, variant, steps=1, seed=0, settle=False)
        return replace(config, horizon=config.horizon or make_task(env).explore_horizon)

    return ["curious", *(name for name in VARIANTS if settings(name) != settings("curious"))]


def measure(store: TrajectoryStore, task: Task) -> dict[str, Any]:
    """Coverage, presses and displacements by numbers of steps."""
    found: dict[str, Any] = {}
    ends = np.cumsum(store.episode_lengths.numpy())
    observations = store.observations.numpy()
    for mark in MARKS:
        if mark > store.transitions:
            break
        row = found[str(mark)] = {}
        episodes = int(np.searchsorted(ends, mark))
        states = mark + episodes
        if task.coverage is not None:
            places = task.coverage.index(observations[:states])
            shares = np.bincount(places[places >= 0]) / np.sum(places >= 0)
            shares = shares[shares > 0]
            row[task.coverage.unit] = len(shares)
            # As many, visited equally often, would have the same entropy: falls where one is hardly left.
            row[f"effective {task.coverage.unit}"] = float(np.exp(-np.sum(shares * np.log(shares))))
        if task.name == "pinpad":
            history = np.round(observations[:states, 4:7])
            within = np.diff(store.episode_of.numpy()[:states]) == 0
            presses = (np.diff(history, axis=0) != 0).any(1) & within
            row["presses per episode"] = float(presses.sum() / max(episodes, 1))
        recent = slice(max(0, episodes - 100), episodes + 1)
        for thing in task.objects:
            moved = displacements(store, thing)[recent] > thing.threshold
            row[f"{thing.name}: episodes displaced"] = float(moved.mean())
        if task.name == "fetch_push":
            paths = [episode.observations[:, 3:6] for episode in store][recent]
            steps = [np.linalg.norm(np.diff(path, axis=0), axis=1) > MOVED for path in paths]
            row["episodes moving the block"] = float(np.mean([step.any() for step in steps]))
            row["steps moving the block"] = float(np.mean(np.concatenate(steps)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--envs", nargs="+", choices=list(SHORT_NAMES), default=["maze_large"])
    parser.add_argument("--variants", nargs="+", choices=["sweep", *VARIANTS], default=["curious"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--steps", type=int, default=60_000)
    parser.add_argument("--no-settle", action="store_true", help="where only what is reached counts")
    arguments = parser.parse_args()
    for env in arguments.envs:
        for variant in sweep(env) if "sweep" in arguments.variants else arguments.variants:
            for seed in arguments.seeds:
                run = arguments.out / f"{env}-{variant}-{seed}"
                started = time.process_time()  # one thread: free of what other programs take
                config = variant_config(env, variant, arguments.steps, seed, not arguments.no_settle)
                explore(env, run, config)
                seconds = time.process_time() - started
                task = make_task(env)
                store = load(run / "explore" / "data", task)
                result = {
                    "env": env,
                    "variant": variant,
                    "seed": seed,
                    "steps": store.transitions,
                    "steps_per_second": store.transitions / seconds,
                    "machine": f"{platform.machine()}, one thread",
                    "measured": measure(store, task),
                }
                if not (run / "result.json").exists():  # a continued run would show too high a rate
                    write_json(run / "result.json", result)
    print_table(arguments.out)


def print_table(folder: Path) -> None:
    """A row for each run in a folder and each number of steps at which it was measured, as Markdown."""
    results = [json.loads(path.read_text()) for path in sorted(folder.glob("*/result.json"))]
    for env in dict.fromkeys(result["env"] for result in results):
        rows = [result for result in results if result["env"] == env]
        names = list(rows[0]["measured"][min(rows[0]["measured"], key=int)])
        print(f"\n| {env} | seed | steps | per second | {' | '.join(names)} |")
        print("|---" * (4 + len(names)) + "|")
        for result in rows:
            for mark, measured in result["measured"].items():
                values = " | ".join(f"{measured[name]:.3g}" for name in names)
                about = f"{result['variant']} | {result['seed']} | {mark} | {result['steps_per_second']:.0f}"
                print(f"| {about} | {values} |")


if __name__ == "__main__":
    main()
