"""Planning and training against the time of their matrix products alone, and against mbrl's planner.

    python benchmarks/planning.py [--quick]

Every row compares two or more programs that take turns in one run and prints medians, so that other load on
the machine falls on all of them alike. The comparison with mbrl runs if it can be imported; it pins old
versions of its dependencies but runs with new ones (`make bench` installs it like this):

    pip install '.[bench]'
    pip install --no-deps mbrl==0.2.0
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import statistics
import time
import warnings
from collections.abc import Callable
from itertools import pairwise

# As the command line does: threads that wait for each other spin a while, then sleep.
os.environ.setdefault("GOMP_SPINCOUNT", "30000")

import torch
from torch import Tensor

from curioplan.config import ModelConfig, PlannerConfig
from curioplan.models import GaussianEnsemble
from curioplan.planning import Disagreement, Distance, ModelRollout, Objective, Planner

TASKS = {"fetch_push": (25, 4), "maze_large": (4, 2)}
"""Dimensions of states and actions."""


def race(programs: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each program, taking turns."""
    times: dict[str, list[float]] = {name: [] for name in programs}
    for program in programs.values():
        program()
    for _ in range(rounds):
        for name, program in programs.items():
            start = time.perf_counter()
            program()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def report(title: str, seconds: dict[str, float], reference: str) -> None:
    print(title)
    for name, value in seconds.items():
        print(f"  {name:<36}{1e3 * value:>12.1f} ms{value / seconds[reference]:>9.2f} ×")


def model(config: ModelConfig, task: str) -> tuple[GaussianEnsemble, Tensor, Tensor]:
    """An ensemble, barely trained on made-up data, and these data."""
    generator, (observation_dim, action_dim) = torch.Generator().manual_seed(0), TASKS[task]
    actions = torch.rand(2001, action_dim, generator=generator) * 2 - 1
    states = torch.randn(2001, observation_dim, generator=generator)
    ensemble = GaussianEnsemble(observation_dim, action_dim, config)
    ensemble.add(states, actions, torch.arange(2000))
    ensemble.update(states, actions, 5)
    ensemble.elites = [0, 2, 3, 5, 6][: config.elites]
    return ensemble, states, actions


def widths(ensemble: GaussianEnsemble) -> list[int]:
    network = ensemble.network
    return [network.inputs, *[network.units] * (len(network.weights) - 1), network.outputs]


def forward_products(ensemble: GaussianEnsemble, members: int, rows: int, tile: int) -> Callable[[], None]:
    """The products of one pass of `members` networks over `rows` rows each, and nothing else."""
    layers = [torch.randn(members, i, o) / math.sqrt(i) for i, o in pairwise(widths(ensemble))]
    tile = min(tile, rows)
    activations = [torch.randn(members, tile, width) for width in widths(ensemble)]
    rest = [torch.randn(members, rows % tile, width) for width in widths(ensemble)]

    def run() -> None:
        for buffers in [activations] * (rows // tile) + [rest] * (rows % tile > 0):
            for k, weight in enumerate(layers):
                torch.bmm(buffers[k], weight, out=buffers[k + 1])

    return run


def planner_of(
    ensemble: GaussianEnsemble, config: PlannerConfig, horizon: int, objective: Objective
) -> Planner:
    high = torch.ones(ensemble.action_dim)
    dynamics = ModelRollout(ensemble, config.propagation, config.particles)
    return Planner(config, horizon, -high, high, dynamics, objective)


def planning(title: str, planner: Planner, state: Tensor, members: int, rows: int, rounds: int) -> None:
    """One planning step against its products, each over all rows at once and in tiles."""
    ensemble = planner.dynamics.ensemble  # type: ignore[attr-defined]
    passes = planner.config.iterations * planner.horizon

    def products(tile: int) -> Callable[[], None]:
        one = forward_products(ensemble, members, rows, tile)
        return lambda: [one() for _ in range(passes)] and None

    planner.reset([0])
    programs = {"matrix products": products(rows), "matrix products, tiles of 400 rows": products(400)}
    report(title, race({**programs, "planning step": lambda: planner.act(state)}, rounds), "matrix products")


def training(config: ModelConfig, rounds: int) -> None:
    """One update of all members against the products of its forward and backward pass."""
    ensemble, states, actions = model(config, "fetch_push")
    layers = [w.detach() for w in ensemble.network.weights]
    x = [torch.randn(config.members, config.batch_size, width) for width in widths(ensemble)]
    y, slopes = [torch.empty_like(v) for v in x], [torch.empty_like(w) for w in layers]

    def products() -> None:
        for k, weight in enumerate(layers):
            torch.bmm(x[k], weight, out=y[k + 1])
        for k in reversed(range(len(layers))):
            torch.bmm(x[k].transpose(1, 2), x[k + 1], out=slopes[k])
            if k:
                torch.bmm(x[k + 1], layers[k].transpose(1, 2), out=y[k])

    title = (
        f"One update, {config.members} members of {config.layers}×{config.units}, batch {config.batch_size}"
    )
    programs = {"matrix products": products, "update": lambda: ensemble.update(states, actions, 1)}
    report(title, race(programs, 4 * rounds), "matrix products")


def mbrl_planner(config: ModelConfig, planner: PlannerConfig, horizon: int) -> Callable[[], object]:
    """A planning step of mbrl's iCEM with TS1 propagation on the same network, data left untrained."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import mbrl.models
        import mbrl.planning

    observation_dim, action_dim = TASKS["fetch_push"]
    network = mbrl.models.GaussianMLP(
        observation_dim + action_dim,
        observation_dim,
        "cpu",
        num_layers=config.layers,
        ensemble_size=config.members,
        hid_size=config.units,
        activation_fn_cfg={"_target_": "torch.nn.SiLU"},
        propagation_method="random_model",
    )
    network.set_elite([0, 2, 3, 5, 6])
    dynamics = mbrl.models.OneDTransitionRewardModel(network, normalize=True, learned_rewards=False)
    elites = max(2, math.ceil(planner.elite_ratio * planner.population))
    optimizer = mbrl.planning.ICEMOptimizer(
        num_iterations=planner.iterations,
        elite_ratio=elites / planner.population,
        population_size=planner.population,
        population_decay_factor=1.0,
        colored_noise_exponent=planner.noise_exponent,
        lower_bound=[[-1.0] * action_dim] * horizon,
        upper_bound=[[1.0] * action_dim] * horizon,
        keep_elite_frac=planner.keep_fraction,
        alpha=planner.momentum,
        device="cpu",
    )
    generator = torch.Generator().manual_seed(0)

    def value(sequences: Tensor) -> Tensor:
        """Minus the distance to the origin summed over the horizon, averaged over particles."""
        actions = sequences.repeat_interleave(planner.particles, 0)
        start = torch.zeros(len(actions), observation_dim)
        with torch.no_grad():
            state = dynamics.reset(start, rng=generator)
            total = torch.zeros(len(actions))
            for t in range(horizon):
                following, _, _, state = dynamics.sample(actions[:, t], state, False, generator)
                total -= following[:, :3].norm(dim=1)
        return total.view(-1, planner.particles).mean(1)

    middle = torch.zeros(horizon, action_dim)
    return lambda: optimizer.optimize(value, middle)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one iteration and short horizons")
    parser.add_argument("--rounds", type=int, default=5, help="turns per program")
    parser.add_argument("--threads", type=int, help="threads of torch, by default all cores")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    config, planner = ModelConfig(), PlannerConfig(iterations=1 if args.quick else 3)
    explore, reach = (4, 4) if args.quick else (30, 15)
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads; preset paper, "
        f"{planner.iterations} iterations"
    )

    training(config, args.rounds)
    rows = planner.population * planner.particles
    for task in TASKS:
        ensemble, states, _ = model(config, task)
        reaching = planner_of(ensemble, planner, reach, Distance(torch.zeros(1, 2), [0, 1]))
        share = rows // config.elites
        title, rounds = f"Reaching, {task}, H = {reach}", 3 * args.rounds  # short turns vary more
        planning(title, reaching, states[:1], config.elites, share, rounds)
        exploring = planner_of(ensemble, planner, explore, Disagreement())
        planning(
            f"Exploring, {task}, H = {explore}", exploring, states[:1], config.members, rows, args.rounds
        )

    if importlib.util.find_spec("mbrl") is None:
        print("mbrl is not installed; see the head of this file for how to compare with it.")
        return
    ensemble, states, _ = model(config, "fetch_push")
    ours = planner_of(ensemble, planner, reach, Distance(torch.zeros(1, 3), [0, 1, 2]))
    ours.reset([0])
    programs = {
        "curioplan": lambda: ours.act(states[:1]),
        "mbrl": mbrl_planner(config, planner, reach),
    }
    report(f"A distance cost, H = {reach}, against mbrl", race(programs, args.rounds), "curioplan")


if __name__ == "__main__":
    main()
