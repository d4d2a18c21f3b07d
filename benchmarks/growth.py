"""What a step of exploration costs with few data and with many.

    python benchmarks/growth.py [--env fetch_push] [--sizes 10000 200000] [--episodes 20]

Explorations that hold datasets of different sizes take turns, an episode each, with everything a step takes:
planning, acting, storing, learning and measuring. Only the ratio counts.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace

import numpy as np
import torch

from curioplan.config import ExploreConfig
from curioplan.envs import SHORT_NAMES, make_env, make_task
from curioplan.presets import preset
from curioplan.stages.explore import Explorer


def explorer_with(env: str, transitions: int) -> Explorer:
    """An explorer that already holds this many transitions, of one random episode over and over."""
    task = make_task(env)
    config = replace(preset("cpu", ExploreConfig, env), steps=10**9, warmup_steps=1)
    explorer = Explorer(make_env(env), task, config)
    explorer.episode()  # random
    episode = next(iter(explorer.store))
    rng = np.random.default_rng(0)
    while explorer.store.transitions < transitions:
        noise = rng.normal(scale=1e-3, size=episode.observations.shape)
        explorer.store.add_episode(episode.observations + noise, episode.actions, episode.achieved_goals)
    explorer.updates = int(config.updates_per_step * explorer.store.transitions)
    return explorer


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--env", choices=list(SHORT_NAMES), default="fetch_push")
    parser.add_argument("--sizes", nargs="+", type=int, default=[10_000, 200_000])
    parser.add_argument("--episodes", type=int, default=20)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    explorers = [explorer_with(arguments.env, size) for size in arguments.sizes]
    for explorer in explorers:
        explorer.episode()  # takes in the data there are
    times: list[list[float]] = [[] for _ in explorers]
    for _ in range(arguments.episodes):
        for explorer, taken in zip(explorers, times, strict=True):
            before, started = explorer.store.transitions, time.perf_counter()
            explorer.episode()
            taken.append((time.perf_counter() - started) / (explorer.store.transitions - before))
    first = statistics.median(times[0])
    for size, taken in zip(arguments.sizes, times, strict=True):
        median = statistics.median(taken)
        print(f"{size:>9} transitions: {1e3 * median:7.2f} ms per step, {median / first:5.2f} ×")


if __name__ == "__main__":
    main()
