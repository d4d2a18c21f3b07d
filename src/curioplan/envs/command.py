"""``curioplan envs`` and ``check-env``: their options, and what they do."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from curioplan.envs.check import check_env
from curioplan.envs.registry import SHORT_NAMES, make_env, make_task
from curioplan.errors import EnvError
from curioplan.options import Command, Say


def envs(_: Namespace, say: Say) -> None:
    """The table of environments."""
    say(f"{'name':<12} {'Gymnasium id':<26} obs goal act episode  gamma  cases")
    for name, identifier in SHORT_NAMES.items():
        task = make_task(name)
        say(
            f"{name:<12} {identifier:<26} {task.observation_dim:>3} {task.goal_dim:>4} {task.action_dim:>3} "
            f"{task.episode_length:>7} {task.gamma:>6} {len(task.cases):>6}"
        )
    say("\nAny environment with the goal interface works by its Gymnasium id or as module:callable.")


def _add_check(parser: ArgumentParser, _: Sequence[str]) -> None:
    parser.add_argument("env", metavar="ID", help="a short name, a Gymnasium id, or module:callable")


def check(arguments: Namespace, say: Say) -> None:
    """The findings about an environment; a missing part is an error."""
    env = make_env(arguments.env)
    try:
        findings = check_env(env)
    finally:
        env.close()
    marks = {"ok": "  ok     ", "note": "  note   ", "missing": "  MISSING"}
    for finding in findings:
        say(f"{marks[finding.level]} {finding.text[0].upper()}{finding.text[1:]}")
    missing = sum(finding.level == "missing" for finding in findings)
    if missing:
        things = "thing is" if missing == 1 else "things are"
        raise EnvError(f"{arguments.env} cannot be used yet: {missing} {things} missing.")
    say(f"{arguments.env} can be used.")


ENVS = Command("envs", "List the environments", ("curioplan envs",), lambda parser, words: None, envs)
CHECK = Command(
    "check-env",
    "Tell in plain words whether an environment can be used",
    ("curioplan check-env FetchReach-v4", "curioplan check-env my_package.my_env:make"),
    _add_check,
    check,
)
