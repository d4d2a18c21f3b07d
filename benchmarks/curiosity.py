"""What draws curious plans in a maze: from the cell where episodes start, where do they end, and why.

    python benchmarks/curiosity.py RUN [--horizon 30]

Plans for states of RUN, an exploration of maze_large, with the model it left and disagreement alone. Prints
how many plans end in the cell they start from, and what share of their disagreement three steps have.
"""

import argparse
from pathlib import Path

import torch

import curioplan
from curioplan.config import ExploreConfig
from curioplan.envs import make_task
from curioplan.planning import Disagreement, ModelRollout, Planner
from curioplan.presets import preset
from curioplan.stages.runtime import torch_threads

ENV = "maze_large"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--horizon", type=int, default=30)
    parser.add_argument("--plans", type=int, default=64)
    arguments = parser.parse_args()
    task = make_task(ENV)
    store = curioplan.load_data(arguments.run / "explore" / "data", task)
    assert task.coverage is not None
    cells = torch.from_numpy(task.coverage.index(store.observations.numpy()))
    start = cells[store.first_rows].mode().values
    rows = torch.nonzero(cells == start).flatten()
    states = store.observations[rows[torch.randperm(len(rows), generator=seeded())[: arguments.plans]]]

    config = preset("cpu", ExploreConfig, ENV).planner
    low, high = torch.tensor(task.action_low), torch.tensor(task.action_high)
    dynamics = ModelRollout(curioplan.load_model(arguments.run), config.propagation)
    planner = Planner(config, arguments.horizon, low, high, dynamics, Disagreement())
    with torch_threads(1):
        planner.reset(list(range(len(states))))
        planner.act(states)
        plans = planner.plans[:, None]
        generators = [seeded() for _ in states]
        rollout = dynamics.rollout(states, plans, generators, disagreement=True)
    assert rollout.disagreement is not None
    ends = torch.from_numpy(task.coverage.index(rollout.states[:, 0, 0, -1].numpy()))
    rewards = rollout.disagreement[:, 0]
    top = rewards.topk(3).values.sum(1) / rewards.sum(1)
    print(
        f"of {store.transitions} steps, {len(rows) / store.states:.2f} were taken in the cell they start in"
    )
    print(f"of {len(states)} plans from there, {int((ends == start).sum())} end there")
    print(f"{top.mean():.2f} of their disagreement is in three of {arguments.horizon} steps")


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


if __name__ == "__main__":
    main()
