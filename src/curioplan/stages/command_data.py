"""The commands of ``curioplan data``: their options, and what they do."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from curioplan.envs import Task, make_task
from curioplan.errors import ConfigError
from curioplan.options import Command, Say


def _add_source(parser: ArgumentParser) -> None:
    parser.add_argument("source", metavar="FROM", help="a Minari folder or id, an .npz or an .hdf5 file")
    parser.add_argument("--env", metavar="ID", help="the environment the data is from, to check it against")


def _add_inspect(parser: ArgumentParser, _: Sequence[str]) -> None:
    _add_source(parser)
    parser.add_argument(
        "--figure", type=Path, metavar="FILE", help="draw the coverage into this PNG, PDF or SVG"
    )


def inspect(arguments: Namespace, say: Say) -> None:
    """Summarise a dataset and draw its coverage."""
    from curioplan.data import coverage_figure, format_summary, load, summary

    task = _task(arguments.env)
    if arguments.figure and task is None:
        raise ConfigError("A figure of coverage needs to know the environment: name it with --env.")
    store = load(arguments.source, task)
    if arguments.figure and task is not None:
        coverage_figure(store, task, arguments.figure)
    say(format_summary(summary(store, task)))
    if arguments.figure:
        say(f"coverage drawn in {arguments.figure}")


def _add_convert(parser: ArgumentParser, _: Sequence[str]) -> None:
    _add_source(parser)
    parser.add_argument("target", type=Path, metavar="TO", help="a folder, or a file ending in .npz or .hdf5")
    parser.add_argument("--overwrite", action="store_true", help="replace TO if it exists")


def convert(arguments: Namespace, say: Say) -> None:
    """Convert a dataset and say what was written."""
    from curioplan.data import convert, load

    task = _task(arguments.env)
    convert(arguments.source, arguments.target, task, overwrite=arguments.overwrite)
    store = load(arguments.target, task)
    say(f"{arguments.target}: {store.transitions} transitions in {store.episodes} episodes")


def _add_make_expert(parser: ArgumentParser, _: Sequence[str]) -> None:
    add = parser.add_argument
    add("env", metavar="ENV", help="a maze, pinpad or fetch_push")
    add("--out", type=Path, required=True, metavar="FOLDER", help="where the dataset goes (Minari)")
    add("--steps", type=int, default=20_000, metavar="N", help="transitions (default: 20000)")
    add("--seed", type=int, default=0, metavar="N", help="seed of everything random (default: 0)")
    add("--overwrite", action="store_true", help="replace FOLDER if it exists")


def make_expert(arguments: Namespace, say: Say) -> None:
    """Make the data, and say where they are."""
    from curioplan.stages.mixtures import make_expert_data

    folder = make_expert_data(
        *(arguments.env, arguments.out, arguments.steps, arguments.seed), overwrite=arguments.overwrite
    )
    say(f"{folder}: {arguments.steps} transitions of an expert of {arguments.env}")


def _task(env: str | None) -> Task | None:
    return None if env is None else make_task(env)


INSPECT = Command(
    "inspect",
    "Show counts, ranges, episode lengths and coverage of a dataset",
    ("curioplan data inspect recordings.npz --env maze_large --figure coverage.png",),
    _add_inspect,
    inspect,
)
CONVERT = Command(
    "convert",
    "Convert a dataset to a Minari folder, an OGBench .npz or a D4RL .hdf5",
    ("curioplan data convert recordings.hdf5 recordings --env maze_large",),
    _add_convert,
    convert,
)
MAKE_EXPERT = Command(
    "make-expert",
    "Make data of a scripted expert that pursues the goals of a task",
    ("curioplan data make-expert maze_large --steps 20000 --out expert",),
    _add_make_expert,
    make_expert,
)
