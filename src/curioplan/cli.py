"""The command line: parse, call, print."""

from __future__ import annotations

import logging
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from curioplan.config import (
    PRESETS,
    DiagnoseConfig,
    EvaluateConfig,
    ExploreConfig,
    LearnConfig,
    ReachConfig,
    TrainModelConfig,
    preset,
)
from curioplan.errors import CurioplanError, EnvError
from curioplan.options import Parser, add_config, read_config
from curioplan.stages import command as stages
from curioplan.studies import command as reproduce
from curioplan.web import command as playground

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

STAGES = {
    "explore": ExploreConfig,
    "train-model": TrainModelConfig,
    "learn": LearnConfig,
    "reach": ReachConfig,
    "evaluate": EvaluateConfig,
    "diagnose": DiagnoseConfig,
}


def build_parser(arguments: Sequence[str] = ()) -> Parser:
    """The parser of all commands; what follows ``train`` depends on the learner among the arguments."""
    parser = Parser(prog="curioplan", description=INTRODUCTION)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(parent: Any, name: str, run: Any, text: str, example: str) -> Parser:
        added: Parser = parent.add_parser(
            name, help=text, description=f"{text}.", epilog=f"example:\n  {example}"
        )
        added.set_defaults(run=run)
        return added

    whole = command(
        commands,
        "run",
        printing(stages.run),
        "Explore, train and evaluate, each where it stopped",
        "curioplan run maze_umaze --out runs/umaze --steps 20000\n"
        "  curioplan run maze_umaze --out runs/umaze --steps 20000      (again: continues it)",
    )
    stages.add_run(whole)
    _add_preset(whole)

    explore = command(
        commands,
        "explore",
        run_explore,
        "Explore an environment out of curiosity, keeping trajectories and model",
        "curioplan explore maze_large --out runs/maze --steps 20000\n"
        "  curioplan explore maze_large --out runs/maze --steps 20000   (again: continues it)",
    )
    stages.add_place(explore)
    _add_settings(explore, ExploreConfig)

    polo = command(
        commands,
        "polo",
        printing(stages.polo),
        "Explore towards the goals of the task, learning their values on the way (POLO)",
        "curioplan polo maze_umaze --out runs/polo --steps 20000\n"
        "  curioplan polo maze_umaze --out runs/polo-star --targets mppi\n"
        "  curioplan evaluate runs/polo --controller mbp --algo polo",
    )
    stages.add_place(polo)
    _add_preset(polo)
    if arguments[:1] == ["polo"]:  # else torch need not be imported
        add_config(polo, stages.polo_settings())

    train = command(
        commands,
        "train",
        run_train,
        "Learn values and a policy for any goal, offline, from a run's trajectories or other data",
        "curioplan train runs/maze\n"
        "  curioplan train runs/maze --algo iql --seeds 3\n"
        "  curioplan train runs/maze --algo crr --help                  (the settings of CRR)\n"
        "  curioplan train runs/new --env maze_large --data recordings.npz",
    )
    train.add_argument("folder", type=Path, metavar="RUN", help="the run folder, which may be new")
    if arguments[:1] == ["train"]:  # else learners and torch need not be imported
        _add_learner(train, arguments)

    train = command(
        commands,
        "train-model",
        run_train_model,
        "Train a model of the world on exploration or other data, for learners and planners that need one",
        "curioplan train-model runs/maze\n"
        "  curioplan train-model runs/maze --name mixed --data own=0.8,expert.npz=0.2\n"
        "  curioplan train-model runs/new --env maze_large --data recordings.npz",
    )
    train.add_argument("folder", type=Path, metavar="RUN", help="the run folder, which may be new")
    train.add_argument("--env", metavar="ENV", help="the environment of a new run")
    train.add_argument("--name", default="offline", metavar="NAME", help="what to call it (default: offline)")
    _add_settings(train, TrainModelConfig)

    evaluate = command(
        commands,
        "evaluate",
        run_evaluate,
        "Try to reach the goals of a run's task, or yours, and say how often it went well",
        "curioplan evaluate runs/maze\n"
        "  curioplan evaluate runs/maze --controller actor --seeds 3\n"
        "  curioplan evaluate runs/maze --cases goals.json --video      (as [[1, 10], [7, 1]])\n"
        "  curioplan evaluate runs/maze --cases random:20 --algo iql",
    )
    evaluate.add_argument("folder", type=Path, metavar="RUN", help="the run folder")
    evaluate.add_argument(
        "--name", default="", metavar="NAME", help="what to call the result (default: controller and values)"
    )
    evaluate.add_argument(
        "--video",
        nargs="?",
        const="",
        metavar="CASES",
        help="film the first run of these cases, by name, or of all: as MP4 with the extra video installed, "
        "else as GIF",
    )
    _add_settings(evaluate, EvaluateConfig)

    play = command(
        commands,
        "play",
        run_play,
        "Open a page on which the agent of a run can be sent to goals, watched and pushed off course",
        "curioplan play runs/maze\n  curioplan play runs/maze --algo iql --port 9000 --no-open",
    )
    playground.add_arguments(play)
    _add_settings(play, ReachConfig)

    diagnose = command(
        commands,
        "diagnose",
        run_diagnose,
        "Find out where values trap who climbs them, and how accurate they and the model are",
        "curioplan diagnose runs/maze\n  curioplan diagnose runs/maze --algo iql --evaluations mbp-iql-0",
    )
    diagnose.add_argument("folder", type=Path, metavar="RUN", help="the run folder")
    diagnose.add_argument(
        "--name", default="", metavar="NAME", help="what to call it (default: as the training of the values)"
    )
    _add_settings(diagnose, DiagnoseConfig)

    report = command(
        commands,
        "report",
        run_report,
        "Write one page about a run, which opens in any browser without a network",
        "curioplan report runs/maze\n  curioplan report runs/maze --out maze.html",
    )
    report.add_argument("folder", type=Path, metavar="RUN", help="the run folder")
    report.add_argument("--out", type=Path, metavar="FILE", help="where it goes (default: RUN/report.html)")

    study = command(
        commands,
        "reproduce",
        printing(reproduce.run),
        "Run a study of the paper, and tabulate its success rates beside the paper's",
        "curioplan reproduce method --envs maze_umaze --seeds 2 --preset smoke\n"
        "  curioplan reproduce all --dry-run                            (the jobs, and how long they take)\n"
        "  curioplan reproduce graph --backend ray --storage s3://bucket/study",
    )
    reproduce.add_arguments(study)
    _add_preset(study)

    command(commands, "envs", list_envs, "List the environments", "curioplan envs")

    check = command(
        commands,
        "check-env",
        check_environment,
        "Tell in plain words whether an environment can be used",
        "curioplan check-env FetchReach-v4\n  curioplan check-env my_package.my_env:make",
    )
    check.add_argument("env", metavar="ID", help="a short name, a Gymnasium id, or module:callable")

    data = commands.add_parser("data", help="Look at datasets and convert them")
    parts = data.add_subparsers(title="commands", metavar="COMMAND", required=True)
    inspect = command(
        parts,
        "inspect",
        inspect_data,
        "Show counts, ranges, episode lengths and coverage of a dataset",
        "curioplan data inspect recordings.npz --env maze_large --figure coverage.png",
    )
    _add_source(inspect)
    inspect.add_argument(
        "--figure", type=Path, metavar="FILE", help="draw the coverage into this PNG, PDF or SVG"
    )
    convert = command(
        parts,
        "convert",
        convert_data,
        "Convert a dataset to a Minari folder, an OGBench .npz or a D4RL .hdf5",
        "curioplan data convert recordings.hdf5 recordings --env maze_large",
    )
    _add_source(convert)
    convert.add_argument(
        "target", type=Path, metavar="TO", help="a folder, or a file ending in .npz or .hdf5"
    )
    convert.add_argument("--overwrite", action="store_true", help="replace TO if it exists")

    expert = command(
        parts,
        "make-expert",
        printing(stages.make_expert),
        "Make data of a scripted expert that pursues the goals of a task",
        "curioplan data make-expert maze_large --steps 20000 --out expert",
    )
    stages.add_make_expert(expert)

    shown = command(
        commands,
        "config",
        show_config,
        "Show every setting of a stage in every preset",
        "curioplan config explore",
    )
    shown.add_argument("stage", nargs="?", choices=list(STAGES), help="one stage only")
    return parser


def _add_source(parser: Parser) -> None:
    parser.add_argument("source", metavar="FROM", help="a Minari folder or id, an .npz or an .hdf5 file")
    parser.add_argument("--env", metavar="ID", help="the environment the data is from, to check it against")


def _add_learner(parser: Parser, arguments: Sequence[str]) -> None:
    from curioplan.values import LEARNERS, learner_config

    words = [part for word in arguments for part in word.split("=", 1)]
    named = next((value for flag, value in pairwise(words) if flag == "--algo"), "td3")
    parser.add_argument(
        "--algo",
        choices=list(LEARNERS),
        default="td3",
        help="the learner (default: td3), with settings as below",
    )
    parser.add_argument("--env", metavar="ENV", help="the environment of a new run")
    parser.add_argument(
        "--name", default="", metavar="NAME", help="what to call the result (default: learner and seeds)"
    )
    _add_preset(parser)
    add_config(parser, learner_config(named if named in LEARNERS else "td3"))


def _add_settings(parser: Parser, stage: Any) -> None:
    _add_preset(parser)
    add_config(parser, preset("cpu", stage))


def _add_preset(parser: Parser) -> None:
    parser.add_argument(
        "--preset",
        choices=PRESETS,
        default="cpu",
        help="where the settings below start from: two cores (cpu, the default), the paper's values (paper), "
        "or a test of seconds (smoke)",
    )


def run_explore(arguments: Namespace) -> None:
    """Explore, and say what was found and where it is."""
    from curioplan.stages.explore import explore

    config = read_config(preset(arguments.preset, ExploreConfig), arguments)
    folder = explore(arguments.env, arguments.out, config)
    print(f"trajectories, model and figure are in {folder}")


def run_train(arguments: Namespace) -> None:
    """Learn values, and say where they are."""
    from curioplan.stages.train import train
    from curioplan.values import learner_config

    config = read_config(learner_config(arguments.algo, arguments.preset), arguments)
    folder = train(arguments.folder, arguments.algo, config, env=arguments.env, name=arguments.name)
    print(f"values, policy and figure are in {folder}")


def run_train_model(arguments: Namespace) -> None:
    """Train a model, and say where it is."""
    from curioplan.stages.train_model import train_model

    config = read_config(preset(arguments.preset, TrainModelConfig), arguments)
    folder = train_model(arguments.folder, config, env=arguments.env, name=arguments.name)
    print(f"model, errors and figure are in {folder}")


def run_evaluate(arguments: Namespace) -> None:
    """Evaluate, and say what was reached and where it is."""
    from curioplan.stages.evaluate import format_result, run_evaluation
    from curioplan.stages.film import film

    config = read_config(preset(arguments.preset, EvaluateConfig), arguments)
    folder = run_evaluation(arguments.folder, config, name=arguments.name)
    print(format_result(folder))
    print(f"result and trajectories are in {folder}")
    if arguments.video is not None:
        videos = film(arguments.folder, folder.name, arguments.video)
        print(f"videos: {', '.join(str(path) for path in videos)}")


def run_play(arguments: Namespace) -> None:
    """Serve the playground, and say where it is."""
    config = read_config(preset(arguments.preset, ReachConfig), arguments)
    playground.run(arguments, config, lambda text: print(text, flush=True))


def run_diagnose(arguments: Namespace) -> None:
    """Diagnose, and say what was found and where it is."""
    from curioplan.stages.diagnose import diagnose, format_diagnosis

    config = read_config(preset(arguments.preset, DiagnoseConfig), arguments)
    folder = diagnose(arguments.folder, config, name=arguments.name)
    print(format_diagnosis(folder))
    print(f"numbers and figures are in {folder}")


def run_report(arguments: Namespace) -> None:
    """Write the page, and say where it is."""
    from curioplan.stages.report import report

    print(f"the report is {report(arguments.folder, arguments.out)}")


def printing(run: Callable[[Namespace], Iterator[str]]) -> Callable[[Namespace], None]:
    """A command that prints what a function has to say."""

    def command(arguments: Namespace) -> None:
        for text in run(arguments):
            print(text)

    return command


def list_envs(_: Namespace) -> None:
    """Print the table of environments."""
    from curioplan.envs import SHORT_NAMES, make_task

    print(f"{'name':<12} {'Gymnasium id':<26} obs goal act episode  gamma  cases")
    for name, identifier in SHORT_NAMES.items():
        task = make_task(name)
        print(
            f"{name:<12} {identifier:<26} {task.observation_dim:>3} {task.goal_dim:>4} {task.action_dim:>3} "
            f"{task.episode_length:>7} {task.gamma:>6} {len(task.cases):>6}"
        )
    print("\nAny environment with the goal interface works by its Gymnasium id or as module:callable.")


def check_environment(arguments: Namespace) -> None:
    """Print the findings; a missing part is an error."""
    from curioplan.envs import check_env, make_env

    env = make_env(arguments.env)
    try:
        findings = check_env(env)
    finally:
        env.close()
    marks = {"ok": "  ok     ", "note": "  note   ", "missing": "  MISSING"}
    for finding in findings:
        print(f"{marks[finding.level]} {finding.text[0].upper()}{finding.text[1:]}")
    missing = sum(finding.level == "missing" for finding in findings)
    if missing:
        things = "thing is" if missing == 1 else "things are"
        raise EnvError(f"{arguments.env} cannot be used yet: {missing} {things} missing.")
    print(f"{arguments.env} can be used.")


def inspect_data(arguments: Namespace) -> None:
    """Print a summary of a dataset and draw its coverage."""
    from curioplan.data import coverage_figure, format_summary, load, summary

    task = _task(arguments.env)
    store = load(arguments.source, task)
    if arguments.figure:
        coverage_figure(store, task, arguments.figure)
    print(format_summary(summary(store, task)))
    if arguments.figure:
        print(f"coverage drawn in {arguments.figure}")


def convert_data(arguments: Namespace) -> None:
    """Convert a dataset and say what was written."""
    from curioplan.data import convert, load

    task = _task(arguments.env)
    convert(arguments.source, arguments.target, task, overwrite=arguments.overwrite)
    store = load(arguments.target, task)
    print(f"{arguments.target}: {store.transitions} transitions in {store.episodes} episodes")


def show_config(arguments: Namespace) -> None:
    """Print the settings of all presets side by side."""
    from curioplan.options import field_docs

    for name in [arguments.stage] if arguments.stage else STAGES:
        columns = {chosen: preset(chosen, STAGES[name]) for chosen in PRESETS}
        print(f"\n{name:<28}" + "".join(f"{chosen:>17}" for chosen in columns))
        _print_settings(list(columns.values()), "", field_docs)


def _print_settings(configs: list[Any], prefix: str, docs: Any) -> None:
    for entry in fields(configs[0]):
        values = [getattr(config, entry.name) for config in configs]
        if is_dataclass(values[0]):
            _print_settings(values, f"{prefix}{entry.name}.", docs)
            continue
        row = "".join(f"{value!s:>17}" for value in values)
        print(f"  {prefix + entry.name:<26}{row}   {docs(type(configs[0]))[entry.name]}")


def _task(env: str | None) -> Any:
    if env is None:
        return None
    from curioplan.envs import make_task

    return make_task(env)


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
        parsed.run(parsed)
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
