"""Goals in an environment that is not shipped: the gripper of FetchReach, found out by curiosity.

    python examples/own_environment.py --out runs/reach
    python examples/own_environment.py --out runs/reach --env my_package.my_env:make

Any environment with the goal interface of Gymnasium-Robotics will do. It is looked at first, in plain words;
then it is explored, values are learned from what was seen, and goals that the environment draws are pursued
by the policy alone, and by planning. The same call continues where an interrupted one stopped.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import curioplan
from curioplan.storage import read_json


def main(words: Sequence[str] | None = None) -> None:
    """Explore, learn, and try to reach goals."""
    parser = argparse.ArgumentParser(description="Goals in an environment that is not shipped.")
    parser.add_argument("--out", type=Path, default=Path("runs/reach"), help="the run folder")
    parser.add_argument("--env", default="FetchReach-v4", help="a Gymnasium id, or module:callable")
    parser.add_argument("--preset", default="cpu", choices=["paper", "cpu", "smoke"])
    parser.add_argument("--steps", type=int, default=5000, help="of exploration")
    parser.add_argument("--updates", type=int, default=5000, help="of the values")
    parser.add_argument("--goals", type=int, default=10, help="to be tried, of those the environment draws")
    given = parser.parse_args(words)

    env = curioplan.make_env(given.env)
    for finding in curioplan.check_env(env):
        print(f"{finding.level:>8}: {finding.text}")
    env.close()

    exploring = curioplan.preset(given.preset, curioplan.ExploreConfig, given.env)
    warmup = min(exploring.warmup_steps, given.steps // 2)
    curioplan.explore(given.env, given.out, replace(exploring, steps=given.steps, warmup_steps=warmup))

    learning = curioplan.learner_config("td3", given.preset, given.env)
    curioplan.train(given.out, "td3", replace(learning, updates=given.updates))

    task = curioplan.make_task(given.env)  # derived from the interface: dimensions, success, some draws
    cases = ",".join(case.name for case in task.cases[: given.goals])
    reaching = curioplan.preset(given.preset, curioplan.ReachConfig, given.env)
    for controller in ("actor", "mbp"):
        folder = curioplan.evaluate(given.out, controller, cases=cases, config=reaching)
        print(f"{controller}: {read_json(folder / 'result.json')['success']:.0%} of the goals reached")


if __name__ == "__main__":
    main()
