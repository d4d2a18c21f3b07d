"""What exploration reaches and how fast: curiosity against random actions, β-NLL against plain likelihood.

    python benchmarks/exploration.py --out runs/exploration --envs maze_large --seeds 0 1 2 --steps 60000

Runs what is not there yet, one after the other on one thread each (start it twice, with other environments,
to use two cores), continues what was interrupted, and prints a table of everything in the folder.
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

from curioplan.config import ExploreConfig, preset
from curioplan.data import TrajectoryStore, displacements, load
from curioplan.envs import SHORT_NAMES, Task, make_task
from curioplan.stages.explore import explore
from curioplan.storage import write_json

MARKS = (5_000, 10_000, 20_000, 40_000, 60_000, 100_000, 200_000)
MOVED = 1e-3  # metres per step above which the block moves


def variant_config(variant: str, steps: int, seed: int) -> ExploreConfig:
    config = replace(preset("cpu", ExploreConfig), steps=steps, seed=seed)
    if variant == "random":
        return replace(config, explorer="random")
    if variant == "plain":
        return replace(config, model=replace(config.model, beta=0.0))
    return config


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
            row[task.coverage.unit] = len(set(task.coverage.index(observations[:states]).tolist()) - {-1})
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
    parser.add_argument("--variants", nargs="+", choices=["curious", "plain", "random"], default=["curious"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--steps", type=int, default=60_000)
    arguments = parser.parse_args()
    for env in arguments.envs:
        for variant in arguments.variants:
            for seed in arguments.seeds:
                run = arguments.out / f"{env}-{variant}-{seed}"
                started = time.perf_counter()
                explore(env, run, variant_config(variant, arguments.steps, seed))
                seconds = time.perf_counter() - started
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
    for path in sorted(folder.glob("*/result.json")):
        result = json.loads(path.read_text())
        print(f"{path.parent.name}: {result['steps']} steps, {result['steps_per_second']:.0f} per second")
        for mark, row in result["measured"].items():
            values = ", ".join(f"{name} {value:.3g}" for name, value in row.items())
            print(f"  {int(mark):>7} steps: {values}")


if __name__ == "__main__":
    main()
