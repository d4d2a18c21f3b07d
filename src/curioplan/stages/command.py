"""``curioplan run``, ``polo`` and ``data make-expert``: their options, and what they do with them."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def add_place(parser: ArgumentParser) -> None:
    """Add what is explored, and where the run goes."""
    parser.add_argument("env", metavar="ENV", help="a short name, a Gymnasium id, or module:callable")
    parser.add_argument("--out", type=Path, required=True, metavar="RUN", help="the run folder")


def add_run(parser: ArgumentParser) -> None:
    """Add the options of ``curioplan run``, but for the preset."""
    add_place(parser)
    add = parser.add_argument
    add("--steps", type=int, default=0, metavar="N", help="steps of exploration (default: the preset's)")
    add("--seed", type=int, default=0, metavar="N", help="seed of everything random (default: 0)")
    add("--algo", default="td3", metavar="NAME", help="the learner (default: td3)")


def run(arguments: Namespace) -> Iterator[str]:
    """Run whatever of the pipeline is missing, and give the success rates."""
    from curioplan.stages.pipeline import run_pipeline, success_table

    folders = run_pipeline(
        arguments.env,
        arguments.out,
        preset_name=arguments.preset,
        steps=arguments.steps,
        seed=arguments.seed,
        algo=arguments.algo,
    )
    yield success_table(folders)
    yield f"everything is in {arguments.out}, and shown in {folders['report']}"


def polo_settings(preset: str = "cpu") -> Any:
    """The settings of ``curioplan polo`` in a preset."""
    from curioplan.stages.polo import polo_config

    return polo_config(preset)  # type: ignore[arg-type]  # the parser knows the presets


def polo(arguments: Namespace) -> Iterator[str]:
    """Explore towards known goals, and say where everything is."""
    from curioplan.options import read_config
    from curioplan.stages import polo as stage

    config = read_config(polo_settings(arguments.preset), arguments)
    folder = stage.polo(arguments.env, arguments.out, config)
    yield f"trajectories and model are in {folder}"
    yield f"values: curioplan evaluate {arguments.out} --controller mbp --algo polo --seed {config.seed}"


def add_make_expert(parser: ArgumentParser) -> None:
    """Add the options of ``curioplan data make-expert``."""
    add = parser.add_argument
    add("env", metavar="ENV", help="a maze, pinpad or fetch_push")
    add("--out", type=Path, required=True, metavar="FOLDER", help="where the dataset goes (Minari)")
    add("--steps", type=int, default=20_000, metavar="N", help="transitions (default: 20000)")
    add("--seed", type=int, default=0, metavar="N", help="seed of everything random (default: 0)")
    add("--overwrite", action="store_true", help="replace FOLDER if it exists")


def make_expert(arguments: Namespace) -> Iterator[str]:
    """Make the data, and say where they are."""
    from curioplan.stages.mixtures import make_expert_data

    folder = make_expert_data(
        *(arguments.env, arguments.out, arguments.steps, arguments.seed), overwrite=arguments.overwrite
    )
    yield f"{folder}: {arguments.steps} transitions of an expert of {arguments.env}"
