"""Control at a fixed rate, as a robot needs it: an action at every tick, and how many come too late.

    python examples/control_loop.py --run runs/maze --rate 20 --seconds 20

Takes a run with values (``curioplan run maze_umaze --out runs/maze --steps 20000``). At every tick the agent
gets an observation and gives an action; the time that is left is slept away. Where planning is too slow for
the rate, plan for several steps at once (``--every``) with fewer samples (``--population``): settings of the
planner. The world here waits for the action; a robot would go on with the last one.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

import curioplan
from curioplan.storage import read_json


def main(words: Sequence[str] | None = None) -> None:
    """Run the loop, and say how often it was in time and whether the goal was reached."""
    parser = argparse.ArgumentParser(description="Control at a fixed rate.")
    parser.add_argument("--run", type=Path, default=Path("runs/maze"), help="a run with values")
    parser.add_argument("--preset", default="cpu", choices=["paper", "cpu", "smoke"])
    parser.add_argument("--controller", default="mbp+graph")
    parser.add_argument("--goal", type=float, nargs="+", help="by default that of the task's first case")
    parser.add_argument("--rate", type=float, default=20.0, help="actions per second")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long")
    parser.add_argument(
        "--every", type=int, default=0, help="steps from plan to plan (default: the preset's)"
    )
    parser.add_argument("--population", type=int, default=0, help="samples (default: the preset's)")
    given = parser.parse_args(words)

    name = str(read_json(given.run / "run.json")["env"])
    config = curioplan.preset(given.preset, curioplan.ReachConfig, name)
    planner = replace(
        config.planner,
        replan_every=given.every or config.planner.replan_every,
        population=given.population or config.planner.population,
    )
    agent = curioplan.Agent.load(given.run, given.controller, config=replace(config, planner=planner))

    env, task = curioplan.make_env(name), curioplan.make_task(name)
    goal = np.array(given.goal or task.cases[0].goal, np.float64)
    observation, _ = env.reset(seed=0, options={"goal": goal})
    agent.reset(goal)
    agent.act(observation)  # the first plan takes longest: make it before the clock runs
    agent.reset(goal)

    period, ticks = 1 / given.rate, round(given.seconds * given.rate)
    took, reached = [], False
    began = time.monotonic()
    for tick in range(ticks):
        time.sleep(max(0.0, began + tick * period - time.monotonic()))
        started = time.monotonic()
        action = agent.act(observation)
        took.append(time.monotonic() - started)
        observation, _, _, truncated, _ = env.step(action)
        reached = bool(task.success(observation["achieved_goal"], goal))
        if reached or truncated:
            break
    env.close()

    late = np.mean(np.array(took) > period)
    print(f"{len(took)} actions at {len(took) / (time.monotonic() - began):.1f} Hz, {late:.0%} of them late")
    print(f"an action took {np.median(took) * 1000:.1f} ms, at most {np.max(took) * 1000:.1f} ms")
    print("the goal was reached" if reached else "the goal was not reached")


if __name__ == "__main__":
    main()
