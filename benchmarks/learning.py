"""TD3 against the time of its matrix products alone, against other libraries, and many learners against one.

    python benchmarks/learning.py [--quick] [--threads 2]

Every row compares two or more programs that take turns in one run and prints medians, so that other load on
the machine falls on all of them alike; one thread by default, since two that wait for each other measure
that load instead. Our updates include drawing and relabelling their batches. The comparison with d3rlpy and
Stable-Baselines3 runs if they can be imported; d3rlpy pins another version of Gymnasium but runs with ours,
and both leave out what we do not need of their dependencies (`make bench` installs them like this):

    pip install '.[bench]'
    pip install --no-deps stable-baselines3==2.9.2 d3rlpy==2.8.1
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import math
import os
import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

# As the command line does: threads that wait for each other spin a while, then sleep.
os.environ.setdefault("GOMP_SPINCOUNT", "30000")

import numpy as np
import torch
from torch import Tensor

from curioplan.data import Relabelling, TrajectoryStore, sample_batch
from curioplan.data.relabel import stack_batches
from curioplan.models import Normaliser
from curioplan.stages.runtime import keep_memory
from curioplan.values.problem import Problem
from curioplan.values.td3 import TD3, TD3Config
from planning import race, report

TRANSITIONS, UPDATES = 200_000, 10
CONFIG = TD3Config()
TERMINAL = CONFIG.p_goal * CONFIG.p_geometric
"""Share of the transitions whose goal is the next state."""


class Shape(NamedTuple):
    """Dimensions of a task."""

    observation: int
    goal: int
    action: int
    episode: int


TASKS = {"fetch_push": Shape(25, 3, 4, 50), "maze_large": Shape(4, 2, 2, 600)}


def made_up(shape: Shape) -> TrajectoryStore:
    """Trajectories of noise."""
    generator = torch.Generator().manual_seed(0)
    rows = TRANSITIONS // shape.episode * (shape.episode + 1)
    store = TrajectoryStore(shape.observation, shape.goal, shape.action, capacity=rows)
    store.append_rows(
        {
            "observations": torch.randn(rows, shape.observation, generator=generator),
            "achieved_goals": torch.randn(rows, shape.goal, generator=generator),
            "actions": torch.rand(rows, shape.action, generator=generator) * 2 - 1,
            "first": torch.arange(rows) % (shape.episode + 1) == 0,
        }
    )
    return store


def learners(store: TrajectoryStore, seeds: list[int], updates: int = UPDATES) -> Callable[[], None]:
    """Some updates of our TD3, one learner per seed."""
    states, goals = Normaliser(store.observation_dim), Normaliser(store.goal_dim)
    states.update(store.observations)
    goals.update(store.achieved_goals)
    middle, half = torch.zeros(store.action_dim), torch.ones(store.action_dim)
    dims = store.observation_dim, store.goal_dim, store.action_dim
    learner = TD3(Problem(*dims, 0.99, middle, half, states, goals), CONFIG, seeds)
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    relabelling = Relabelling()

    def run() -> None:
        for _ in range(updates):
            batches = [sample_batch(store, CONFIG.batch_size, relabelling, each) for each in generators]
            learner.update(stack_batches(batches))

    return run


class Products:
    """The matrix products of some networks of one shape, forwards and backwards, and nothing else."""

    def __init__(self, members: int, inputs: int, outputs: int, rows: int = CONFIG.batch_size) -> None:
        widths = [inputs, *[CONFIG.units] * CONFIG.layers, outputs]
        self.weights = [torch.randn(members, i, o) / math.sqrt(i) for i, o in pairwise(widths)]
        self.x = [torch.randn(members, rows, width) for width in widths]
        self.y = [torch.empty_like(x) for x in self.x]
        self.slopes = [torch.empty_like(weight) for weight in self.weights]

    def forward(self) -> None:
        """From the inputs to the outputs."""
        for k, weight in enumerate(self.weights):
            torch.bmm(self.x[k], weight, out=self.y[k + 1])

    def backward_to_weights(self) -> None:
        """The gradients of all weights."""
        for k, slopes in enumerate(self.slopes):
            torch.bmm(self.x[k].transpose(1, 2), self.x[k + 1], out=slopes)

    def backward_to_hidden(self) -> None:
        """From the outputs to the first hidden layer."""
        for k in reversed(range(1, len(self.weights))):
            torch.bmm(self.x[k + 1], self.weights[k].transpose(1, 2), out=self.y[k])

    def backward_to_inputs(self, columns: slice, out: Tensor) -> None:
        """From the first hidden layer to some of the inputs."""
        torch.bmm(self.x[1], self.weights[0][:, columns].transpose(1, 2), out=out)


def products(shape: Shape, seeds: int, updates: int = UPDATES) -> Callable[[], None]:
    """The products of some updates of TD3.

    Terminal transitions need no future, and for the actor's gradient one of two critics matters in each.
    """
    situation, some = shape.observation + shape.goal, round((1 - TERMINAL) * CONFIG.batch_size)
    ahead, actor = Products(seeds, situation, shape.action, some), Products(seeds, situation, shape.action)
    targets = Products(2 * seeds, situation + shape.action, 1, some)
    critics = Products(2 * seeds, situation + shape.action, 1)
    lesser = Products(2 * seeds, situation + shape.action, 1, CONFIG.batch_size // 2)
    actions = slice(shape.observation, shape.observation + shape.action)
    slopes = torch.empty(2 * seeds, CONFIG.batch_size // 2, shape.action)

    def run() -> None:
        for update in range(updates):
            ahead.forward()
            targets.forward()
            critics.forward()
            critics.backward_to_weights()
            critics.backward_to_hidden()
            if update % CONFIG.policy_delay == 0:
                actor.forward()
                critics.forward()
                lesser.backward_to_hidden()
                lesser.backward_to_inputs(actions, slopes)
                actor.backward_to_weights()
                actor.backward_to_hidden()

    return run


def flat(store: TrajectoryStore) -> tuple[Tensor, Tensor, Tensor]:
    """States joined with goals, actions and following states, of all transitions."""
    observations, actions, following = store.transitions_at(store.transition_rows)
    goals = store.achieved_goals[store.transition_rows]
    return torch.cat([observations, goals], 1), actions, torch.cat([following, goals], 1)


def stable_baselines3(store: TrajectoryStore) -> dict[str, Callable[[], object]]:
    """Updates of Stable-Baselines3's TD3 with batches from its own replay buffer."""
    import gymnasium
    import stable_baselines3 as library
    from stable_baselines3.common.logger import Logger

    class Spaces(gymnasium.Env):
        """Nothing but the spaces."""

        observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (store.observation_dim + store.goal_dim,))
        action_space = gymnasium.spaces.Box(-1, 1, (store.action_dim,))

    theirs = library.TD3(
        "MlpPolicy",
        Spaces(),
        learning_rate=CONFIG.critic_learning_rate,
        buffer_size=store.transitions,
        batch_size=CONFIG.batch_size,
        policy_delay=CONFIG.policy_delay,
        policy_kwargs={"net_arch": [CONFIG.units] * CONFIG.layers},
        device="cpu",
    )
    theirs.set_logger(Logger(None, []))
    buffer = theirs.replay_buffer
    for field, content in zip(
        (buffer.observations, buffer.actions, buffer.next_observations), flat(store), strict=True
    ):
        field[:, 0] = content.numpy()
    buffer.full = True
    return {"Stable-Baselines3": lambda: theirs.train(UPDATES, CONFIG.batch_size)}


def d3rlpy(store: TrajectoryStore) -> dict[str, Callable[[], object]]:
    """Updates of d3rlpy's TD3 with batches from its own replay buffer, and with one batch again and again."""
    import d3rlpy as library

    observations, actions, _ = flat(store)
    ends = (torch.arange(store.transitions) + 1) % int(store.episode_lengths[0]) == 0
    dataset = library.dataset.MDPDataset(
        observations.numpy(),
        actions.numpy(),
        np.zeros(store.transitions, np.float32),
        np.zeros(store.transitions, np.float32),
        ends.numpy().astype(np.float32),
    )
    encoder = library.models.VectorEncoderFactory([CONFIG.units] * CONFIG.layers)
    theirs = library.algos.TD3Config(
        actor_learning_rate=CONFIG.actor_learning_rate,
        critic_learning_rate=CONFIG.critic_learning_rate,
        actor_encoder_factory=encoder,
        critic_encoder_factory=encoder,
        batch_size=CONFIG.batch_size,
        update_actor_interval=CONFIG.policy_delay,
    ).create()
    theirs.create_impl((store.observation_dim + store.goal_dim,), store.action_dim)
    batch = dataset.sample_transition_batch(CONFIG.batch_size)
    return {
        "d3rlpy": lambda: [
            theirs.update(dataset.sample_transition_batch(CONFIG.batch_size)) for _ in range(UPDATES)
        ],
        "d3rlpy, one batch drawn beforehand": lambda: [theirs.update(batch) for _ in range(UPDATES)],
    }


def against_products(name: str, store: TrajectoryStore, rounds: int) -> None:
    programs = {"matrix products": products(TASKS[name], 1), "TD3": learners(store, [0])}
    report(f"{UPDATES} updates of TD3, {name}", race(programs, rounds), "matrix products")


def against_others(store: TrajectoryStore, rounds: int) -> None:
    programs: dict[str, Callable[[], object]] = {"curioplan": learners(store, [0])}
    for library, make in (("stable_baselines3", stable_baselines3), ("d3rlpy", d3rlpy)):
        if importlib.util.find_spec(library) is None:
            print(f"{library} is not installed; see the head of this file for how to compare with it.")
            continue
        said = io.StringIO()  # the advice of gym, and what d3rlpy finds in the data
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            programs |= make(store)
    if len(programs) > 1:
        report(f"{UPDATES} updates of TD3, fetch_push", race(programs, rounds), "curioplan")


def together(store: TrajectoryStore, seeds: int, rounds: int) -> None:
    """Several learners as one batch, and one after the other."""
    updates = CONFIG.policy_delay
    alone = [learners(store, [seed], updates) for seed in range(seeds)]
    programs: dict[str, Callable[[], object]] = {
        "in turn": lambda: [run() for run in alone],
        "as one batch": learners(store, list(range(seeds)), updates),
        "matrix products": products(TASKS["fetch_push"], seeds, updates),
    }
    report(f"{updates} updates of {seeds} learners, fetch_push", race(programs, rounds), "in turn")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="leave out 30 learners")
    parser.add_argument("--rounds", type=int, default=21, help="turns per program")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    keep_memory()  # as training does
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads; networks of {CONFIG.layers} × "
        f"{CONFIG.units}, batches of {CONFIG.batch_size}"
    )
    stores = {name: made_up(shape) for name, shape in TASKS.items()}
    for name, store in stores.items():
        against_products(name, store, args.rounds)
    against_others(stores["fetch_push"], args.rounds)
    together(stores["fetch_push"], 8, math.ceil(args.rounds / 2))
    if not args.quick:
        together(stores["fetch_push"], 30, math.ceil(args.rounds / 4))


if __name__ == "__main__":
    main()
