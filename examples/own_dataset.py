"""Values and plans from trajectories that somebody else recorded, through Minari: nothing is explored.

    python examples/own_dataset.py --out runs/recorded

A player who changes direction now and then is recorded with Minari's own functions, as a stand-in for data
of yours. Its rewards are never looked at: what the player reached by chance are the goals, in hindsight. A
model and values are learned from the recording, by its Minari id, and goals are pursued with them.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import minari
import numpy as np
from minari.data_collector import EpisodeBuffer

import curioplan
from curioplan.storage import read_json

ENV = "maze_umaze"
DATASET = "umaze/wandering-v0"


def play(env: gym.Env, rng: np.random.Generator, seed: int) -> EpisodeBuffer:
    """An episode of a player who keeps a random direction for up to 40 steps."""
    observation, _ = env.reset(seed=seed)
    observations, actions, rewards = [observation], [], []
    truncated, left = False, 0
    while not truncated:
        if left == 0:
            action, left = rng.uniform(-1, 1, 2).astype(np.float32), int(rng.integers(1, 40))
        observation, reward, _, truncated, _ = env.step(action)
        observations.append(observation)
        actions.append(action)
        rewards.append(float(reward))
        left -= 1
    ends = [False] * (len(actions) - 1) + [True]
    return EpisodeBuffer(
        observations={key: np.array([each[key] for each in observations]) for key in observations[0]},
        actions=np.array(actions),
        rewards=rewards,
        terminations=[False] * len(actions),
        truncations=ends,
    )


def record(episodes: int) -> None:
    """Record some episodes as a Minari dataset."""
    env, rng = curioplan.make_env(ENV), np.random.default_rng(0)
    recorded = [play(env, rng, seed) for seed in range(episodes)]
    with warnings.catch_warnings():  # Minari asks for author and code, which matter to those who publish
        warnings.simplefilter("ignore")
        minari.create_dataset_from_buffers(
            DATASET,
            recorded,
            env=env,
            algorithm_name="wandering",
            description="A wandering player.",
        )
    env.close()


def main(words: Sequence[str] | None = None) -> None:
    """Record, learn from the recording alone, and try to reach the goals of the maze."""
    parser = argparse.ArgumentParser(description="Values and plans from a recording, through Minari.")
    parser.add_argument("--out", type=Path, default=Path("runs/recorded"), help="the run folder, a new one")
    parser.add_argument("--preset", default="cpu", choices=["paper", "cpu", "smoke"])
    parser.add_argument("--episodes", type=int, default=60, help="to record, of 300 steps")
    parser.add_argument("--updates", type=int, default=10_000, help="of values and of the model")
    given = parser.parse_args(words)

    os.environ.setdefault("MINARI_DATASETS_PATH", str(given.out.resolve() / "recordings"))
    if DATASET not in minari.list_local_datasets():
        record(given.episodes)
    store = curioplan.load_data(DATASET, curioplan.make_task(ENV))
    print(f"{DATASET}: {store.transitions} transitions in {store.episodes} episodes")

    modelling = curioplan.preset(given.preset, curioplan.TrainModelConfig, ENV)
    modelling = replace(modelling, data=DATASET, updates=given.updates)
    curioplan.train_model(given.out, modelling, env=ENV, name="recorded")
    learning = curioplan.learner_config("td3", given.preset, ENV)
    curioplan.train(given.out, "td3", replace(learning, data=DATASET, updates=given.updates), env=ENV)

    reaching = curioplan.preset(given.preset, curioplan.ReachConfig, ENV)
    for controller in ("actor", "mbp+graph"):
        folder = curioplan.evaluate(given.out, controller, model="recorded", config=reaching)
        print(f"{controller}: {read_json(folder / 'result.json')['success']:.0%} of the goals reached")


if __name__ == "__main__":
    main()
