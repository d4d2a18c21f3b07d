"""``curioplan reproduce``: its options, and what it does with them."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from curioplan.errors import ConfigError
from curioplan.options import Command, Say
from curioplan.stages.command import add_preset


def _add_reproduce(parser: ArgumentParser, _: Sequence[str]) -> None:
    add = parser.add_argument
    add(
        "study",
        metavar="STUDY",
        help="method, graph, learners, sample-efficiency, mixtures, exploration, polo, optima or all",
    )
    add("--out", type=Path, default=Path("runs/study"), metavar="DIR", help="the study folder (runs/study)")
    add("--envs", nargs="+", metavar="ENV", help="environments (default: the paper's)")
    add(
        "--seeds",
        type=int,
        default=9,
        metavar="N",
        help="runs per method: the first on datasets of their own, the next with other value seeds on these "
        "(default: 9, as in the paper)",
    )
    add("--datasets", type=int, default=3, metavar="N", help="explorations per environment (default: 3)")
    add(
        "--set",
        nargs="+",
        default=[],
        metavar="STAGE.SETTING=VALUE",
        help="settings that differ from the preset, such as explore.steps=60000 learn.updates=5000",
    )
    add(
        "--dry-run", action="store_true", help="only show the jobs, what is done, and how long the rest takes"
    )
    add("--backend", default="local", metavar="NAME", help="processes (local, the default) or Ray (ray)")
    add("--cores", type=int, default=0, metavar="N", help="cores to use (default: all of this machine)")
    add(
        "--storage",
        default="",
        metavar="URL",
        help="with Ray, where the study is kept if the machines share no folder: any fsspec URL",
    )
    add_preset(parser)


def run(arguments: Namespace, say: Say) -> None:
    """Run what a study lacks, and give its tables as text; or only say what there is to do."""
    from curioplan.studies.catalogue import define
    from curioplan.studies.paper import ENVS
    from curioplan.studies.records import available_cores
    from curioplan.studies.reproduce import make_backend, merged, reproduce
    from curioplan.studies.schedule import describe
    from curioplan.studies.tables import bootstrap_interval

    if arguments.cores < 0:
        raise ConfigError(f"The number of cores must be at least 1, not {arguments.cores}.")
    changed = read_changes(arguments.set)
    studies = define(
        arguments.study,
        arguments.envs or ENVS,
        arguments.seeds,
        arguments.preset,
        changed,
        arguments.datasets,
    )
    if arguments.dry_run:
        say(describe(merged(studies), arguments.out, arguments.cores or available_cores()))
        return
    backend = make_backend(arguments.backend, arguments.out, cores=arguments.cores, storage=arguments.storage)
    for table in reproduce(studies, arguments.out, backend, bootstrap_interval):
        say(f"\n{table.text()}")
    say(f"\ntables, results and logs are in {arguments.out}")


def read_changes(given: Sequence[str]) -> dict[str, Any]:
    """Settings as given on the command line, ``stage.setting=value``; values are JSON or else text.

    Raises:
        ConfigError: There is no equals sign.
    """
    changed: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"{text} is not a setting: write stage.setting=value.")
        try:
            changed[name] = json.loads(value)
        except ValueError:
            changed[name] = value
    return changed


REPRODUCE = Command(
    "reproduce",
    "Run a study of the paper, and tabulate its success rates beside the paper's",
    (
        "curioplan reproduce method --envs maze_umaze --seeds 2 --preset smoke",
        "curioplan reproduce all --dry-run                            (the jobs, and how long they take)",
        "curioplan reproduce graph --backend ray --storage s3://bucket/study",
    ),
    _add_reproduce,
    run,
)
