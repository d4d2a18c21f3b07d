"""How fast relabelled batches are drawn, against the time it takes to gather their memory alone.

Run ``python benchmarks/relabel.py`` on an idle machine: two threads that wait for each other on cores they
have to share are slower than one. The dataset has 200 000 transitions, the size of the paper's.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable

import numpy as np
import torch

from curioplan.data import Relabelling, TrajectoryStore, sample_batch

TRANSITIONS = 200_000
SHAPES = {  # observation, goal and action dimension, episode length
    "maze_large": (4, 2, 2, 600),
    "fetch_push": (25, 3, 4, 50),
    "kitchen": (30, 17, 8, 280),
}
BATCH_SIZES = (512, 4096, 32768)


def filled(
    observation_dim: int, goal_dim: int, action_dim: int, length: int
) -> tuple[TrajectoryStore, float]:
    """A full store, and the seconds that one of its steps took."""
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(length + 1, observation_dim))
    actions = rng.uniform(-1, 1, (length, action_dim))
    store = TrajectoryStore(observation_dim, goal_dim, action_dim)
    goals = rng.normal(size=(length + 1, goal_dim))
    start = time.perf_counter()
    for _ in range(TRANSITIONS // length):
        store.begin(observations[0], goals[0])
        for step in range(length):
            store.step(actions[step], observations[step + 1], goals[step + 1])
    return store, (time.perf_counter() - start) / store.transitions


def gathers(store: TrajectoryStore, batch_size: int, generator: torch.Generator) -> Callable[[], object]:
    """Moves what any batch has to: two observations, an action and a goal per transition, at known rows."""
    drawn = itertools.cycle(
        [
            (store.sample_rows(batch_size, generator), torch.randint(store.states, (batch_size,)))
            for _ in range(1 + TRANSITIONS // batch_size)  # as many as make the whole dataset pass the cache
        ]
    )

    def move() -> object:
        rows, goal_rows = next(drawn)
        return store.transitions_at(rows), store.achieved_goals.index_select(0, goal_rows)

    return move


def rate(draw: Callable[[], object], batch_size: int, seconds: float = 0.2, rounds: int = 4) -> float:
    """Transitions per second: the best of some rounds, since other programs only ever slow one down."""
    best = 0.0
    for _ in range(rounds):
        start, count = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            draw()
            count += 1
        best = max(best, count * batch_size / (time.perf_counter() - start))
    return best


def main() -> None:
    generator, relabelling = torch.Generator().manual_seed(0), Relabelling()
    print("task         obs   batch  threads   relabelled/s   gathers alone/s   share      step")
    for name, shape in SHAPES.items():
        store, step = filled(*shape)
        for batch_size, threads in itertools.product(BATCH_SIZES, (1, 2)):
            torch.set_num_threads(threads)
            draw = functools.partial(sample_batch, store, batch_size, relabelling, generator)
            relabelled = rate(draw, batch_size)
            moved = rate(gathers(store, batch_size, generator), batch_size)
            print(
                f"{name:<12}{shape[0]:>4}{batch_size:>8}{threads:>9}{relabelled / 1e6:>13.2f} M"
                f"{moved / 1e6:>16.2f} M{relabelled / moved:>8.0%}{step * 1e6:>7.1f} µs"
            )


if __name__ == "__main__":
    main()
