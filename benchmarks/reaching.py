"""How fast goals are planned for: every pair evaluated naively, exact aggregation, and the preset cpu.

    python benchmarks/reaching.py [RUN] [--values NAME] [--goal 0.8 9.8] [--threads 1]

RUN is a trained run, best on maze_large; by default one of some minutes is made, in runs/bench. First, side
by side on the same imagined states, at the budget of the paper (400 sequences × 20 particles × 101 vertices):
the aggregated value with every edge evaluated by actor and critics, and with only those that can still win.
Then the rates of the controllers at preset cpu, how long the graph takes after loading, and a new goal; and
how the time of a new goal grows with the number of vertices. The data are not needed for it.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from curioplan.config import ExploreConfig, ReachConfig
from curioplan.envs import make_env, make_task
from curioplan.graph import AggregatedValue, Graph, Wayfinder
from curioplan.graph.objectives import aggregate
from curioplan.planning import ModelRollout
from curioplan.planning.noise import coloured_noise
from curioplan.presets import preset
from curioplan.runs import read_run
from curioplan.stages.control import Parts, make_controller
from curioplan.stages.explore import explore
from curioplan.stages.train import train
from curioplan.values import Values, learner_config

CHUNK = 50_000  # pairs the naive evaluation takes at a time, for its memory
ITERATIONS = 3
OWN = Path("runs/bench")


def timed(function: Callable[[], Tensor]) -> tuple[float, Tensor]:
    """Seconds a call takes, and its result."""
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


@torch.no_grad()
def naive_distances(values: Values, states: Tensor, targets: Tensor) -> Tensor:
    """All distances (N, M) by actor and both critics, as one would write it down."""
    learner, problem = values.learner, values.learner.problem
    actor, critic = learner.networks["actor"], learner.networks["critic"]
    states, targets = problem.states.normalise(states), problem.goals.normalise(targets)
    rows = []
    for part in states.split(max(1, CHUNK // len(targets))):
        s = part[:, None].expand(-1, len(targets), -1).reshape(-1, part.shape[1])
        g = targets[None].expand(len(part), -1, -1).reshape(-1, targets.shape[1])
        action = forward(actor, 0, torch.cat([s, g], 1)).tanh()
        inputs = torch.cat([s, action, g], 1)
        logits = torch.minimum(forward(critic, 0, inputs), forward(critic, 1, inputs))[:, 0]
        rows.append(logits.view(len(part), -1))
    return torch.nn.functional.logsigmoid(torch.cat(rows)) / np.log(values.gamma)


def forward(network: torch.nn.Module, member: int, x: Tensor) -> Tensor:
    """One member of a batched network, layer by layer."""
    layers = list(zip(network.weights, network.biases, strict=True))
    for number, (weight, bias) in enumerate(layers):
        x = x @ weight[member] + bias[member]
        if number < len(layers) - 1:
            x = torch.relu(x)
    return x


def compare_exact(parts: Parts, goal: Tensor, state: Tensor) -> None:
    """Naive against exact, on what the model imagines from a state."""
    task, config, values = parts.task, preset("paper", ReachConfig, parts.task.env), parts.values()
    graph_config = replace(config.graph, candidates=2000, density_goals=200)
    graph = Graph.build(values, parts.data(), graph_config, task.graph_vertices, seed=0)
    planner = config.planner
    generator = torch.Generator().manual_seed(0)
    horizon = task.reach_horizon
    noise = coloured_noise(planner.population, horizon, task.action_dim, 3.0, [generator])
    actions = (0.5 * noise).clamp(-1, 1)
    rollout = ModelRollout(parts.model(), "ts1", planner.particles)
    final = rollout.rollout(state[None], actions, [generator], disagreement=False).states[0, :, :, -1]
    others = final.flatten(0, 1).clone()
    finder = Wayfinder(values, graph, goal[None])
    objective = AggregatedValue(finder, config.graph.near_vertices)
    here = finder.locate(0, state)
    remaining = finder.routes(0).ways(here.threshold).remaining
    chosen = objective.preselected(here, remaining, horizon)
    left = torch.from_numpy(np.append(remaining[chosen], 0.0)).float()
    targets = torch.cat([graph.targets[torch.from_numpy(chosen)], finder.goals])

    def naive() -> Tensor:
        return aggregate(naive_distances(values, others, targets), left, here.threshold)

    def exact() -> Tensor:
        return objective.distance(0, state, others, horizon)

    exact()
    slow, (fast, found) = timed(naive), timed(exact)
    difference = (values.gamma ** slow[1] - values.gamma**found).abs().max().item()
    print(f"  {len(others)} imagined states, {len(targets)} vertices, threshold {here.threshold:.1f} steps")
    print(f"  every edge         {ITERATIONS * slow[0]:8.2f} s per action")
    print(
        f"  those that can win {ITERATIONS * fast:8.2f} s per action, {slow[0] / fast:.1f} times faster, "
        f"values differ by {difference:.1e} at most"
    )


def measure_rate(parts: Parts, name: str, goal: Tensor, steps: int) -> None:
    """Actions per second of a controller that moves on in the environment, and its times to get ready."""
    start = time.perf_counter()
    controller = make_controller(name, parts)
    loading = time.perf_counter() - start
    env = make_env(parts.task.env)
    observation, _ = env.reset(seed=0, options={"goal": goal.numpy()})
    start = time.perf_counter()
    controller.reset(goal[None], [0])
    controller.act(torch.tensor(observation["observation"], dtype=torch.float32)[None])
    first = time.perf_counter() - start
    spent = 0.0
    for _ in range(steps):
        state = torch.tensor(observation["observation"], dtype=torch.float32)[None]
        begun = time.perf_counter()
        action = controller.act(state)[0].numpy()
        spent += time.perf_counter() - begun
        observation, *_ = env.step(np.clip(action, parts.task.action_low, parts.task.action_high))
    env.close()
    print(
        f"  {name:<10} {steps / spent:8.1f} Hz, loaded in {loading:.1f} s, first action of a goal "
        f"after {first:.2f} s"
    )


def measure_growth(parts: Parts, goal: Tensor, state: Tensor) -> None:
    """Time of everything that a new goal costs on graphs of growing size."""
    config = parts.config.graph
    edges = parts.values().for_graph(config.evaluate)
    for vertices in (250, 500, 1000, 2000):
        graph = Graph.build(
            parts.values().for_graph("quick"), parts.data(), replace(config, vertices=vertices), 0, seed=0
        )
        _ = graph.edges  # depends on the value function alone
        times = []
        for _ in range(5):
            start = time.perf_counter()
            finder = Wayfinder(edges, graph, goal[None], config.arrival, config.trust)
            here = finder.locate(0, state)
            finder.routes(0).ways(here.threshold)
            times.append(time.perf_counter() - start)
        print(f"  {vertices:>5} vertices {1000 * statistics.median(times):8.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, metavar="RUN", nargs="?", default=OWN)
    parser.add_argument("--values", default="", help="name of the training; by default td3's of seed 0")
    parser.add_argument("--goal", type=float, nargs="+", default=[], help="by default the task's first")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=60)
    arguments = parser.parse_args()
    if arguments.run == OWN:
        exploring = replace(preset("cpu", ExploreConfig, "maze_large"), steps=10_000)
        explore("maze_large", OWN, exploring)
        train(OWN, "td3", replace(learner_config("td3", "cpu", "maze_large"), updates=5000))
    torch.set_num_threads(arguments.threads)
    task = make_task(str(read_run(arguments.run)["env"]))
    goal = torch.tensor(arguments.goal or task.cases[0].goal, dtype=torch.float32)
    env = make_env(task.env)
    state = torch.tensor(env.reset(seed=0)[0]["observation"], dtype=torch.float32)
    env.close()
    with tempfile.TemporaryDirectory() as folder:  # in which no graph is kept yet
        fresh = Path(folder) / "run"
        fresh.mkdir()
        for entry in arguments.run.iterdir():
            if entry.name != "values":
                (fresh / entry.name).symlink_to(entry.resolve())
        for training in (arguments.run / "values").iterdir():
            (fresh / "values" / training.name).mkdir(parents=True)
            for entry in training.iterdir():
                if entry.name != "graphs":
                    (fresh / "values" / training.name / entry.name).symlink_to(entry.resolve())
        parts = Parts(fresh, task, preset("cpu", ReachConfig, task.env), values_name=arguments.values)
        print("aggregated values at the paper's budget")
        compare_exact(parts, goal, state)
        print("controllers at preset cpu")
        for name, steps in (("actor", 2000), ("mbp", arguments.steps), ("mbp+graph", arguments.steps)):
            measure_rate(parts, name, goal, steps)
        print("a new goal")
        measure_growth(parts, goal, state)


if __name__ == "__main__":
    main()
