"""What limits planning in the pinpad: the learned values, or the model and the planner.

    python benchmarks/pinpad.py RUN [--values NAME] [--seed S] [--model NAME] [--capacity]

The shortest way to a sequence of presses is known there. First, how well learned distances rank random states
of the data by the length of that way, for the goals of the evaluation cases. Then, how well the model
predicts presses: in one step, and some steps after an imagined ball has entered a zone; and how far learned
distances of imagined states are from those of the states that came, where a button was pressed on the way and
where none was. Last, how often the planner reaches the goals with the learned model when it is given true
lengths in place of learned values.
With --capacity, only how well a network of the size of the values ranks them when it is shown true lengths.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr
from torch import Tensor

from curioplan import ReachConfig, make_task, preset
from curioplan.envs.pinpad import BUTTONS, ZONES, triples, zones
from curioplan.models import BatchedMLP
from curioplan.planning import ModelRollout
from curioplan.planning.noise import coloured_noise
from curioplan.planning.objectives import final_states
from curioplan.planning.rollout import Rollout
from curioplan.stages.control import Parts, PlanningController
from curioplan.stages.episodes import run_cases
from curioplan.values import learner_config

CORNERS = np.array([ZONES[str(button)] for button in BUTTONS])
EPISODES, LENGTH, SETTLE = 1000, 100, 5
SHOWN = 40_000
STEPS_PER_CELL = 35
FARTHEST = 20.0  # longer than any way, which is also given where a history cannot be


def gap(button: int, other: int) -> float:
    """Length of the way from one button's zone to another's."""
    a, b = CORNERS[button - 1], CORNERS[other - 1]
    return math.hypot(max(b[0] - a[2], a[0] - b[2], 0), max(b[1] - a[3], a[1] - b[3], 0))


def ways(goal: tuple[int, ...]) -> NDArray[np.float64]:
    """Length of the way to a history from every other, standing on its last button, (5, 5, 5)."""
    left, queue = np.full((5, 5, 5), FARTHEST), [(0.0, goal)]
    left[goal] = 0.0
    while queue:
        length, history = heapq.heappop(queue)
        for first in BUTTONS:
            before = (first, *history[:2])
            longer = length + gap(*history[1:])
            if first != history[0] and length <= left[history] and longer < left[before]:
                left[before] = longer
                heapq.heappush(queue, (longer, before))
    return left


class Exact:
    """The length of the way to a history of presses, as an objective of plans and a distance."""

    needs_disagreement = False

    def __init__(self, goals: Iterable[Iterable[float]]) -> None:
        self.ways = [ways(tuple(int(button) for button in np.round(list(goal)))) for goal in goals]

    def __call__(self, rollout: Rollout, actions: Tensor, slots: Tensor) -> Tensor:
        """See `Objective`."""
        finals = final_states(rollout, "mean")[:, :, 0].double().numpy()
        lengths = [self.length(slot, states) for slot, states in zip(slots.tolist(), finals, strict=True)]
        return -torch.from_numpy(np.stack(lengths)).float()

    def length(self, number: int, states: NDArray[np.float64]) -> NDArray[np.float64]:
        """The way from states (N, 7) to the goal of this number, through the air."""
        left = self.ways[number]
        first, second, third = np.clip(np.round(states[:, 4:7]), 1, 4).astype(int).T
        x, y = states[:, 0], states[:, 1]
        lengths = [np.full(len(states), FARTHEST)]
        for button in BUTTONS:
            low_x, low_y, high_x, high_y = CORNERS[button - 1]
            beside = np.maximum(np.maximum(low_x - x, x - high_x), 0)
            above = np.maximum(np.maximum(low_y - y, y - high_y), 0)
            way = np.hypot(beside, above) + left[second, third, button]
            lengths.append(np.where(third == button, FARTHEST, way))
        shortest = np.min(lengths, axis=0)
        return np.where(left[first, second, third] == 0, 0.0, shortest)


def rank_values(parts: Parts) -> None:
    """Print how learned distances rank states by the true way, for all of them and in classes of it."""
    store, values = parts.data(), parts.values()
    goals = torch.tensor([case.goal for case in parts.task.cases])
    rows = torch.randperm(store.states, generator=torch.Generator().manual_seed(0))[:2000]
    states = store.observations[rows]
    exact = Exact(goals.tolist())
    true = np.stack([exact.length(k, states.double().numpy()) for k in range(len(goals))], 1)
    learned = values.distances(states, goals).numpy()
    print(f"rank correlation of learned and true distances: {spearmanr(true, learned, axis=None)[0]:.2f}")
    print(f"{'true way (cells)':>18} {'pairs':>8} {'learned (steps): median':>25} {'10 %':>7} {'90 %':>7}")
    for low, high in itertools.pairwise((0, 0.01, 1, 2, 3, 4, 5, FARTHEST)):
        those = learned[(true >= low) & (true < high)]
        middle, least, most = np.percentile(those, [50, 10, 90])
        print(f"{low:>11} – {high:<4} {len(those):>8} {middle:>25.0f} {least:>7.0f} {most:>7.0f}")


def rank_capacity(parts: Parts) -> None:
    """Print how well a network of the preset's size ranks states if true values are what it learns from."""
    store, config = parts.data(), learner_config("td3", env="pinpad")
    generator = torch.Generator().manual_seed(0)
    rows = torch.randperm(store.states, generator=generator)[:SHOWN]
    states = store.observations[rows]
    goals = torch.tensor(
        [g for g in itertools.product(BUTTONS, repeat=3) if g[0] != g[1] and g[1] != g[2]]
    ).float()
    exact = Exact(goals.tolist())
    lengths = torch.tensor(np.stack([exact.length(k, states.double().numpy()) for k in range(len(goals))], 1))
    values = (parts.task.gamma ** (STEPS_PER_CELL * lengths)).float()
    mean, std = store.observations.mean(0), store.observations.std(0)
    states, goals = (states - mean) / std, (goals - mean[4:]) / std[4:]
    network = BatchedMLP(
        1, 10, 1, layers=config.layers, units=config.units, activation="relu", generator=generator
    )
    optimizer = torch.optim.Adam(network.parameters(), lr=config.critic_learning_rate)
    tested = SHOWN // 20
    for _ in range(12_000):
        state = torch.randint(SHOWN - tested, (config.batch_size,), generator=generator)
        goal = torch.randint(len(goals), (config.batch_size,), generator=generator)
        logits = network(torch.cat([states[state], goals[goal]], 1))[0, :, 0]
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, values[state, goal])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    state = torch.arange(SHOWN - tested, SHOWN).repeat_interleave(len(goals))
    goal = torch.arange(len(goals)).repeat(tested)
    learned = network.infer(torch.cat([states[state], goals[goal]], 1))[0, :, 0]
    rank = spearmanr(-learned.numpy(), lengths[state, goal].numpy())[0]
    print(f"a network shown true values of other states ranks {tested} states by them with {rank:.2f}")


def judge_model(parts: Parts) -> None:
    """Print how much of presses the model explains, and how often imagined ones end as they should."""
    store, model, task = parts.data(), parts.model(), parts.task
    numbers = torch.from_numpy(triples(store.observations.numpy()))
    rows = store.transition_rows
    presses = rows[numbers[rows] != numbers[rows + 1]]
    true = store.observations[presses + 1, 4:]
    error = model.predict(store.observations[presses], store.actions[presses])[0].mean(0)[:, 4:] - true
    unexplained = float(error.square().sum() / (store.observations[presses, 4:] - true).square().sum())
    print(f"of the change of history at {len(presses)} presses, {unexplained:.2f} is unexplained in one step")
    generators = [torch.Generator().manual_seed(number) for number in range(EPISODES)]
    starts = rows[torch.randperm(len(rows), generator=generators[0])[:EPISODES]]
    actions = coloured_noise(1, LENGTH, task.action_dim, 3.0, generators).clamp(-1, 1)
    rollout = ModelRollout(model, "mean")
    states = rollout.rollout(store.observations[starts], actions, generators, disagreement=False).states
    paths = states[:, 0, 0].numpy()
    histories, where = np.round(paths[..., 4:]).astype(int), zones(paths[..., :2])
    right = []
    for episode, step in zip(*np.nonzero((where[:, 1:] > 0) & (where[:, 1:] != where[:, :-1])), strict=True):
        before, after, zone = step - 1, step + 1 + SETTLE, where[episode, step + 1]
        stays = after < LENGTH and (where[episode, step + 1 : after + 1] == zone).all()
        if before >= 0 and stays and triples(paths[episode, before]) >= 0:
            first, second, third = histories[episode, before]
            due = (first, second, third) if third == zone else (second, third, zone)
            right.append((histories[episode, after] == due).all())
    print(
        f"{SETTLE} steps after an imagined ball has entered a zone, the history is as it must be in "
        f"{np.mean(right):.2f} of {len(right)} cases"
    )


def judge_imagined(parts: Parts) -> None:
    """Print how far learned distances of imagined states are from those of the states that came."""
    store, values, model, horizon = parts.data(), parts.values(), parts.model(), parts.task.reach_horizon
    numbers = torch.from_numpy(triples(store.observations.numpy()))
    rows = store.transition_rows
    rows = rows[rows + horizon <= store.last_rows[store.episode_of[rows]]]
    generator = torch.Generator().manual_seed(0)
    goals = torch.tensor([case.goal for case in parts.task.cases])
    pressed = numbers[rows] != numbers[rows + horizon]
    for name, those in (("pressed", rows[pressed]), ("not pressed", rows[~pressed])):
        some = those[torch.randperm(len(those), generator=generator)[:EPISODES]]
        actions = torch.stack([store.actions[some + step] for step in range(horizon)], 1)
        generators = [generator] * len(some)
        rollout = ModelRollout(model, "mean").rollout(
            store.observations[some], actions[:, None], generators, disagreement=False
        )
        finals = rollout.states[:, 0, :, -1]  # (n, members, 7)
        worth = values.gamma ** values.distances(finals.flatten(0, 1), goals).view(*finals.shape[:2], -1)
        imagined = worth.mean(1).log() / math.log(values.gamma)
        off = (imagined - values.distances(store.observations[some + horizon], goals)).abs()
        print(
            f"{horizon} steps ahead, where a button is {name}, distances to goals are off by "
            f"{float(off.median()):.0f} steps in the median"
        )


def plan_exactly(parts: Parts) -> None:
    """Print which cases are reached with the learned model and true distances."""
    task = parts.task
    controller = PlanningController(task, parts.model(), parts.config, lambda goals: Exact(goals.tolist()))
    outcomes = run_cases(controller, task, list(task.cases), 0)
    steps = [outcome.steps for outcome in outcomes]
    reached = sum(outcome.success for outcome in outcomes)
    print(f"with true distances and the learned model {reached} of {len(steps)} goals are reached: {steps}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, metavar="RUN", help="a run of pinpad with values")
    parser.add_argument("--values", default="", metavar="NAME", help="the training, if it has a name")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="seed of the values (default: 0)")
    parser.add_argument("--model", default="", metavar="NAME", help="a model of train-model, by name")
    parser.add_argument("--capacity", action="store_true", help="only what a network of this size can rank")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    task = make_task("pinpad")
    config = preset("cpu", ReachConfig, "pinpad")
    parts = Parts(arguments.run, task, config, "td3", arguments.seed, arguments.values, arguments.model)
    if arguments.capacity:
        rank_capacity(parts)
        return
    rank_values(parts)
    judge_model(parts)
    judge_imagined(parts)
    plan_exactly(parts)


if __name__ == "__main__":
    main()
