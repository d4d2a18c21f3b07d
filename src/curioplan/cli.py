"""The command line: which commands there are, and how they end."""

from __future__ import annotations

import logging
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from curioplan.config import (
    DiagnoseConfig,
    EvaluateConfig,
    ExploreConfig,
    LearnConfig,
    ReachConfig,
    TrainModelConfig,
)
from curioplan.envs import command as envs
from curioplan.errors import CurioplanError
from curioplan.options import Command, Parser, Say, add_commands, field_docs
from curioplan.presets import PRESETS, preset
from curioplan.stages import command as stages
from curioplan.stages import command_data as data
from curioplan.studies import command as studies
from curioplan.web import command as web

log = logging.getLogger("curioplan")

INTRODUCTION = """\
Goal-reaching skills from curious exploration.

  curioplan run ENV --out RUN        all of what follows: explore, train, evaluate
  curioplan explore ENV --out RUN    curious exploration: trajectories and a model of the world
  curioplan train RUN                value function and policy for any goal, from trajectories alone
  curioplan train-model RUN          a model of the world from data there already is
  curioplan polo ENV --out RUN       the same by value-driven exploration, towards goals known beforehand
  curioplan evaluate RUN             how often goals are reached, and how
  curioplan play RUN                 a page to send the agent to goals, watch it plan, and push it about
  curioplan diagnose RUN             where values trap, and how accurate they and the model are
  curioplan report RUN               one page on all of that, to open in a browser
  curioplan reproduce STUDY          a study of the paper, with its figures beside ours

  curioplan envs                     which environments there are
  curioplan check-env ID             whether an environment of yours fits, and what it lacks
  curioplan data inspect PATH        what is in a dataset: Minari, OGBench or D4RL
  curioplan data convert FROM TO     from one format to another
  curioplan data make-expert ENV     data of a scripted expert
  curioplan config                   every setting, in every preset
"""

STAGES: dict[str, Any] = {
    "explore": ExploreConfig,
    "train-model": TrainModelConfig,
    "learn": LearnConfig,
    "reach": ReachConfig,
    "evaluate": EvaluateConfig,
    "diagnose": DiagnoseConfig,
}


def build_parser(words: Sequence[str] = ()) -> Parser:
    """The parser of all commands, with the options of the one that is called."""
    parser = Parser(prog="curioplan", description=INTRODUCTION)
    commands = add_commands(parser, COMMANDS, words)
    about_data = commands.add_parser("data", help="Look at datasets and convert them")
    add_commands(about_data, ABOUT_DATA, words[1:] if words[:1] == ["data"] else ())
    return parser


def _add_config(parser: ArgumentParser, _: Sequence[str]) -> None:
    parser.add_argument("stage", nargs="?", choices=list(STAGES), help="one stage only")
    parser.add_argument("--env", default="", metavar="ENV", help="with the exceptions for an environment")


def show_config(arguments: Namespace, say: Say) -> None:
    """Show the settings of all presets side by side."""
    for name in [arguments.stage] if arguments.stage else STAGES:
        columns = {chosen: preset(chosen, STAGES[name], arguments.env) for chosen in PRESETS}
        say(f"\n{name:<28}" + "".join(f"{chosen:>17}" for chosen in columns))
        _show_settings(list(columns.values()), "", say)


def _show_settings(configs: list[Any], prefix: str, say: Say) -> None:
    for entry in fields(configs[0]):
        values = [getattr(config, entry.name) for config in configs]
        if is_dataclass(values[0]):
            _show_settings(values, f"{prefix}{entry.name}.", say)
            continue
        row = "".join(f"{value!s:>17}" for value in values)
        say(f"  {prefix + entry.name:<26}{row}   {field_docs(type(configs[0]))[entry.name]}")


CONFIG = Command(
    "config",
    "Show every setting of a stage in every preset",
    ("curioplan config explore", "curioplan config explore --env pinpad"),
    _add_config,
    show_config,
)
COMMANDS = (
    stages.RUN,
    stages.EXPLORE,
    stages.POLO,
    stages.TRAIN,
    stages.TRAIN_MODEL,
    stages.EVALUATE,
    web.PLAY,
    stages.DIAGNOSE,
    stages.REPORT,
    studies.REPRODUCE,
    envs.ENVS,
    envs.CHECK,
    CONFIG,
)
ABOUT_DATA = (data.INSPECT, data.CONVERT, data.MAKE_EXPERT)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 if it went well, 2 with one sentence if the user can mend what went wrong."""
    # Threads that wait for each other spin a while, then sleep: spinning on and on they come to a standstill
    # beside any other busy process, and never spinning costs a third of the speed.
    os.environ.setdefault("GOMP_SPINCOUNT", "30000")
    if not log.handlers:
        log.addHandler(logging.StreamHandler())
        log.handlers[0].setFormatter(logging.Formatter("curioplan: %(message)s"))
    if os.getcwd() not in sys.path:  # noqa: PTH109
        sys.path.insert(0, os.getcwd())  # noqa: PTH109  # module:callable finds the user's files
    try:
        given = sys.argv[1:] if arguments is None else list(arguments)
        parsed = build_parser(given).parse(given)
        parsed.run(parsed, lambda text: print(text, flush=True))
        sys.stdout.flush()
    except CurioplanError as error:
        print(f"curioplan: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"curioplan: {where}{error.strerror or error}.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            "\ncurioplan: interrupted; the same command continues where a checkpoint was made.",
            file=sys.stderr,
        )
        return 130
    return 0
