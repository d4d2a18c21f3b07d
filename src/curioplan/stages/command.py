"""The commands of the stages, from ``curioplan run`` to ``report``: their options, and what they do.

Stages and learners are imported where they are needed: torch takes longer to import than help to read.
"""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from curioplan.config import Config, DiagnoseConfig, EvaluateConfig, ExploreConfig, TrainModelConfig
from curioplan.options import Command, Say, add_config, read_config
from curioplan.presets import PRESETS, preset


def add_preset(parser: ArgumentParser) -> None:
    """Add the preset."""
    parser.add_argument(
        "--preset",
        choices=PRESETS,
        default="cpu",
        help="where the settings below start from: two cores (cpu, the default), the paper's values (paper), "
        "or a test of seconds (smoke)",
    )


def add_settings(parser: ArgumentParser, stage: type[Config]) -> None:
    """Add the preset, and all settings of a stage."""
    add_preset(parser)
    add_config(parser, preset("cpu", stage))


def read_settings(arguments: Namespace, stage: type[Config], env: str) -> Config:
    """The settings of a stage in the preset for an environment, but for those that were given."""
    found: Config = read_config(preset(arguments.preset, stage, env), arguments)
    return found


def environment_of(folder: Path) -> str:
    """The environment of a run, or nothing where there is no run yet."""
    from curioplan.runs import read_run

    return str(read_run(folder)["env"]) if (folder / "run.json").exists() else ""


def _add_env(parser: ArgumentParser) -> None:
    parser.add_argument("env", metavar="ENV", help="a short name, a Gymnasium id, or module:callable")


def _add_place(parser: ArgumentParser) -> None:
    _add_env(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="RUN", help="the run folder")


def add_folder(parser: ArgumentParser, text: str = "the run folder") -> None:
    """Add the run folder."""
    parser.add_argument("folder", type=Path, metavar="RUN", help=text)


def add_device(parser: ArgumentParser) -> None:
    """Add the device, where it is no setting of a stage."""
    text = "where to compute: cpu (the default), cuda, one of several as cuda:1, or auto"
    parser.add_argument("--device", default="cpu", metavar="NAME", help=text)


def _add_name(parser: ArgumentParser, usual: str, default: str = "") -> None:
    text = f"what to call the result (default: {usual})"
    parser.add_argument("--name", default=default, metavar="NAME", help=text)


def _add_new(parser: ArgumentParser) -> None:
    add_folder(parser, "the run folder, which may be new")
    parser.add_argument("--env", metavar="ENV", help="the environment of a new run")


def _add_run(parser: ArgumentParser, _: Sequence[str]) -> None:
    _add_env(parser)
    add = parser.add_argument
    add("--out", type=Path, metavar="RUN", help="the run folder (default: runs/ENV)")
    add("--steps", type=int, default=0, metavar="N", help="steps of exploration (default: the preset's)")
    add("--updates", type=int, default=0, metavar="N", help="updates of the learner (default: the preset's)")
    add("--seed", type=int, default=0, metavar="N", help="seed of everything random (default: 0)")
    add("--algo", default="td3", metavar="NAME", help="the learner (default: td3)")
    add(
        "--cases",
        default="",
        metavar="CASES",
        help="what to reach: the task's own goals (own, the default), so many that the data achieve "
        "(random:20), both (own,random:20), or those of a file (goals.json)",
    )
    add("--video", action="store_true", help="film how planning over the graph reaches the first goals")
    add_device(parser)
    add_preset(parser)


def run(arguments: Namespace, say: Say) -> None:
    """Run whatever of the pipeline is missing, and give the success rates."""
    from curioplan.stages.pipeline import run_pipeline, success_table

    out = arguments.out or Path("runs", re.sub(r"[^\w.+-]+", "-", arguments.env).strip("-.") or "env")
    folders = run_pipeline(
        arguments.env,
        out,
        preset_name=arguments.preset,
        steps=arguments.steps,
        updates=arguments.updates,
        seed=arguments.seed,
        algo=arguments.algo,
        device=arguments.device,
        cases=arguments.cases,
        video=arguments.video,
        say=say,
    )
    say(success_table(folders))
    say(f"everything is in {out}, and shown in {folders['report']}")


def _add_explore(parser: ArgumentParser, _: Sequence[str]) -> None:
    _add_place(parser)
    add_settings(parser, ExploreConfig)


def explore(arguments: Namespace, say: Say) -> None:
    """Explore, and say what was found and where it is."""
    from curioplan.stages.explore import explore

    config = read_settings(arguments, ExploreConfig, arguments.env)
    folder = explore(arguments.env, arguments.out, config)
    say(f"trajectories, model and figure are in {folder}")


def _add_polo(parser: ArgumentParser, _: Sequence[str]) -> None:
    from curioplan.stages.polo import polo_config

    _add_place(parser)
    add_preset(parser)
    add_config(parser, polo_config())


def polo(arguments: Namespace, say: Say) -> None:
    """Explore towards known goals, and say where everything is."""
    from curioplan.stages.polo import polo, polo_config

    config = read_config(polo_config(arguments.preset, arguments.env), arguments)
    folder = polo(arguments.env, arguments.out, config)
    say(f"trajectories and model are in {folder}")
    say(f"values: curioplan evaluate {arguments.out} --controller mbp --algo polo --seed {config.seed}")


def _add_train(parser: ArgumentParser, words: Sequence[str]) -> None:
    """What can be set depends on the learner among the words."""
    from curioplan.values import LEARNERS, learner_config

    parts = [part for word in words for part in word.split("=", 1)]
    named = next((value for flag, value in pairwise(parts) if flag == "--algo"), "td3")
    _add_new(parser)
    parser.add_argument(
        "--algo",
        choices=list(LEARNERS),
        default="td3",
        help="the learner (default: td3), with settings as below",
    )
    _add_name(parser, "learner and seeds")
    add_preset(parser)
    add_config(parser, learner_config(named if named in LEARNERS else "td3"))


def train(arguments: Namespace, say: Say) -> None:
    """Learn values, and say where they are."""
    from curioplan.stages.train import train
    from curioplan.values import learner_config

    env = arguments.env or environment_of(arguments.folder)
    config = read_config(learner_config(arguments.algo, arguments.preset, env), arguments)
    folder = train(arguments.folder, arguments.algo, config, env=arguments.env, name=arguments.name)
    say(f"values, policy and figure are in {folder}")


def _add_train_model(parser: ArgumentParser, _: Sequence[str]) -> None:
    _add_new(parser)
    _add_name(parser, "offline", "offline")
    add_settings(parser, TrainModelConfig)


def train_model(arguments: Namespace, say: Say) -> None:
    """Train a model, and say where it is."""
    from curioplan.stages.train_model import train_model

    env = arguments.env or environment_of(arguments.folder)
    config = read_settings(arguments, TrainModelConfig, env)
    folder = train_model(arguments.folder, config, env=arguments.env, name=arguments.name)
    say(f"model, errors and figure are in {folder}")


def _add_evaluate(parser: ArgumentParser, _: Sequence[str]) -> None:
    add_folder(parser)
    _add_name(parser, "controller and values")
    parser.add_argument(
        "--video",
        nargs="?",
        const="",
        metavar="CASES",
        help="film the first run of these cases, by name, or of all: as MP4 with the extra video installed, "
        "else as GIF",
    )
    add_settings(parser, EvaluateConfig)


def evaluate(arguments: Namespace, say: Say) -> None:
    """Evaluate, and say what was reached and where it is."""
    from curioplan.stages.evaluate import format_result, run_evaluation
    from curioplan.stages.film import film

    config = read_settings(arguments, EvaluateConfig, environment_of(arguments.folder))
    folder = run_evaluation(arguments.folder, config, name=arguments.name)
    say(format_result(folder))
    say(f"result and trajectories are in {folder}")
    if arguments.video is not None:
        videos = film(arguments.folder, folder.name, arguments.video)
        say(f"videos: {', '.join(str(path) for path in videos)}")


def _add_diagnose(parser: ArgumentParser, _: Sequence[str]) -> None:
    add_folder(parser)
    _add_name(parser, "as the training of the values")
    add_settings(parser, DiagnoseConfig)


def diagnose(arguments: Namespace, say: Say) -> None:
    """Diagnose, and say what was found and where it is."""
    from curioplan.stages.diagnose import diagnose, format_diagnosis

    config = read_settings(arguments, DiagnoseConfig, environment_of(arguments.folder))
    folder = diagnose(arguments.folder, config, name=arguments.name)
    say(format_diagnosis(folder))
    say(f"numbers and figures are in {folder}")


def _add_report(parser: ArgumentParser, _: Sequence[str]) -> None:
    add_folder(parser)
    parser.add_argument("--out", type=Path, metavar="FILE", help="where it goes (default: RUN/report.html)")


def report(arguments: Namespace, say: Say) -> None:
    """Write the page, and say where it is."""
    from curioplan.stages.report import report

    say(f"the report is {report(arguments.folder, arguments.out)}")


RUN = Command(
    "run",
    "Explore, train and evaluate, each where it stopped",
    (
        "curioplan run maze_umaze --out runs/umaze --steps 20000",
        "curioplan run maze_umaze --out runs/umaze --steps 20000      (again: continues it)",
        "curioplan run maze_umaze --preset smoke                      (to see it work)",
    ),
    _add_run,
    run,
)
EXPLORE = Command(
    "explore",
    "Explore an environment out of curiosity, keeping trajectories and model",
    (
        "curioplan explore maze_large --out runs/maze --steps 20000",
        "curioplan explore maze_large --out runs/maze --steps 20000   (again: continues it)",
    ),
    _add_explore,
    explore,
)
POLO = Command(
    "polo",
    "Explore towards the goals of the task, learning their values on the way (POLO)",
    (
        "curioplan polo maze_umaze --out runs/polo --steps 20000",
        "curioplan polo maze_umaze --out runs/polo-star --targets mppi",
        "curioplan evaluate runs/polo --controller mbp --algo polo",
    ),
    _add_polo,
    polo,
)
TRAIN = Command(
    "train",
    "Learn values and a policy for any goal, offline, from a run's trajectories or other data",
    (
        "curioplan train runs/maze",
        "curioplan train runs/maze --algo iql --seeds 3",
        "curioplan train runs/maze --algo crr --help                  (the settings of CRR)",
        "curioplan train runs/new --env maze_large --data recordings.npz",
    ),
    _add_train,
    train,
)
TRAIN_MODEL = Command(
    "train-model",
    "Train a model of the world on exploration or other data, for learners and planners that need one",
    (
        "curioplan train-model runs/maze",
        "curioplan train-model runs/maze --name mixed --data own=0.8,expert.npz=0.2",
        "curioplan train-model runs/new --env maze_large --data recordings.npz",
    ),
    _add_train_model,
    train_model,
)
EVALUATE = Command(
    "evaluate",
    "Try to reach the goals of a run's task, or yours, and say how often it went well",
    (
        "curioplan evaluate runs/maze",
        "curioplan evaluate runs/maze --controller actor --seeds 3",
        "curioplan evaluate runs/maze --cases goals.json --video      (as [[1, 10], [7, 1]])",
        "curioplan evaluate runs/maze --cases random:20 --algo iql",
    ),
    _add_evaluate,
    evaluate,
)
DIAGNOSE = Command(
    "diagnose",
    "Find out where values trap who climbs them, and how accurate they and the model are",
    (
        "curioplan diagnose runs/maze",
        "curioplan diagnose runs/maze --algo iql --evaluations mbp-iql-0",
    ),
    _add_diagnose,
    diagnose,
)
REPORT = Command(
    "report",
    "Write one page about a run, which opens in any browser without a network",
    ("curioplan report runs/maze", "curioplan report runs/maze --out maze.html"),
    _add_report,
    report,
)
