"""The studies: which jobs fill which cells of which table.

Jobs call the stages by name. A run is a dataset (an exploration seed) and a value seed; the first runs are on
different datasets, up to three, so nine runs are the paper's three datasets with three value seeds each, and
asking for more runs only adds jobs. What studies have in common is there once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from curioplan.config import ExploreConfig, LearnConfig
from curioplan.errors import ConfigError
from curioplan.options import nearest
from curioplan.stages.control import SORB_STEPS
from curioplan.studies import estimates, paper
from curioplan.studies.arguments import folder, resolve_settings, settings
from curioplan.studies.jobs import Job, Plan
from curioplan.values import LEARNERS

STAGES = ("explore", "learn", "reach")
DATASETS = 3  # explorations per environment
RUNS = 9


class Entry(NamedTuple):
    """The share of one job in a table.

    Attributes:
        row: The method.
        env: The environment.
        job: Name of the job whose result has the success rate.
    """

    row: str
    env: str
    job: str


@dataclass(frozen=True)
class Study:
    """A plan, and the table its results fill.

    Attributes:
        name: What the study is called on the command line.
        title: What its table is called.
        plan: The jobs.
        entries: What goes where in the table.
        published: For rows of which the paper has figures, their names there.
    """

    name: str
    title: str
    plan: Plan
    entries: tuple[Entry, ...]
    published: Mapping[str, str]


@dataclass
class Workbench:
    """Makes jobs and enters them in a table.

    Attributes:
        preset: Where all settings start from.
        changed: Settings that differ from it, by stage and dotted name, such as ``explore.steps``.
    """

    preset: str
    changed: Mapping[str, Any] = field(default_factory=dict)
    jobs: list[Job] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)

    def explore(self, env: str, dataset: int, steps: int = 0) -> Job:
        """The exploration with a seed, of another length than usual where one is given."""
        changed = {"seed": dataset} | ({"steps": steps} if steps else {})
        given = self._settings("explore", changed)
        run = f"{_label(env)}/{brief(steps)}-steps/{dataset}" if steps else f"{_label(env)}/{dataset}"
        return self._add(
            Job(
                f"explore/{run}",
                "curioplan.stages.explore:explore",
                {"env": env, "out": folder(f"runs/{run}"), "config": given},
                seconds=estimates.exploring(env, self.preset, cast(ExploreConfig, resolve_settings(given))),
                seeds={"dataset": dataset},
            )
        )

    def train(self, explored: Job, algo: str, seed: int) -> Job:
        """The training of a learner on an exploration."""
        given = self._settings("learn", {"seed": seed}, algo)
        config = cast(LearnConfig, resolve_settings(given))
        transitions = cast(ExploreConfig, resolve_settings(explored.arguments["config"])).steps
        return self._add(
            Job(
                f"train/{_run(explored)}/{algo}/{seed}",
                "curioplan.stages.train:train",
                {"run": explored.arguments["out"], "algo": algo, "config": given},
                needs=(explored.name,),
                seconds=estimates.learning(algo, self.preset, config, transitions),
                seeds={**explored.seeds, "values": seed},
            )
        )

    def evaluate(self, row: str, explored: Job, controller: str, algo: str, seed: int) -> None:
        """Enter the evaluation of a controller, with values of a learner unless it needs none."""
        values = [] if controller == "mbp+sparse" else [self.train(explored, algo, seed)]
        env, given = explored.arguments["env"], self._settings("reach", {"seed": seed})
        resolve_settings(given)
        job = self._add(
            Job(
                f"evaluate/{_run(explored)}/{algo if values else 'none'}/{seed}/{controller}",
                "curioplan.stages.evaluate:evaluate",
                {
                    "run": explored.arguments["out"],
                    "controller": controller,
                    "algo": algo,
                    "seed": seed,
                    "config": given,
                },
                needs=tuple(job.name for job in values or [explored]),
                seconds=estimates.evaluating(env, controller, self.preset),
                seeds={**explored.seeds, "values" if values else "planner": seed},
            )
        )
        self.entries.append(Entry(row, env, job.name))

    def study(self, name: str, title: str, published: Mapping[str, str] | None = None) -> Study:
        """The study of everything made here."""
        rows = {entry.row: entry.row for entry in self.entries if entry.row in paper.SUCCESS}
        return Study(name, title, Plan(self.jobs), tuple(self.entries), rows | dict(published or {}))

    def steps(self) -> int:
        """The usual length of an exploration."""
        return cast(ExploreConfig, resolve_settings(self._settings("explore", {}))).steps

    def _settings(self, stage: str, own: Mapping[str, Any], algo: str = "") -> dict[str, Any]:
        asked = {
            name.removeprefix(f"{stage}."): value
            for name, value in self.changed.items()
            if name.startswith(f"{stage}.")
        }
        return settings(stage, self.preset, asked | dict(own), algo)

    def _add(self, job: Job) -> Job:
        self.jobs.append(job)
        return job


def learners(envs: Sequence[str], runs: int, bench: Workbench) -> Study:
    """Every value learner, under its actor and under planning."""
    for env, dataset, seed in _each(envs, runs):
        explored = bench.explore(env, dataset)
        for algo, label in LEARNERS.items():
            bench.evaluate(label, explored, "actor", algo, seed)
            bench.evaluate(f"{label}+MBP", explored, "mbp", algo, seed)
    return bench.study("learners", "Value learners, by actor and by planning")


def method(envs: Sequence[str], runs: int, bench: Workbench) -> Study:
    """The method against its parts, and against planning on a sparse cost."""
    for env, dataset, seed in _each(envs, runs):
        explored = bench.explore(env, dataset)
        for row, controller in PARTS.items():
            bench.evaluate(row, explored, controller, "td3", seed)
        bench.evaluate("MBP+Sparse", explored, "mbp+sparse", "td3", seed)
    return bench.study("method", "The method and its parts")


def graph(envs: Sequence[str], runs: int, bench: Workbench) -> Study:
    """Aggregation against no graph, uniformly drawn vertices, and SORB with each of its thresholds."""
    rows = {
        "TD3+MBP": "mbp",
        "TD3+MBP+Aggregation": "mbp+graph",
        "uniform vertices": "mbp+graph-uniform",
    } | {f"SORB, V_min = γ^{steps}": f"mbp+sorb-{steps}" for steps in SORB_STEPS}
    for env, dataset, seed in _each(envs, runs):
        explored = bench.explore(env, dataset)
        for row, controller in rows.items():
            bench.evaluate(row, explored, controller, "td3", seed)
    return bench.study("graph", "Ways to use a graph")


def sample_efficiency(envs: Sequence[str], runs: int, bench: Workbench) -> Study:
    """The method and its parts with a quarter and half of the data.

    A shorter exploration is the beginning of the longer one, with the model as it was then.
    """
    usual, published = bench.steps(), {}
    for env, dataset, seed in _each(envs, runs):
        for steps in (usual // 4, usual // 2, usual):
            explored = bench.explore(env, dataset, 0 if steps == usual else steps)
            for part, controller in PARTS.items():
                row = f"{part}, {brief(steps)}"
                bench.evaluate(row, explored, controller, "td3", seed)
                if steps == 200_000:
                    published[row] = part
    return bench.study("sample-efficiency", "Less data", published)


PARTS = {"TD3": "actor", "TD3+MBP": "mbp", "TD3+MBP+Aggregation": "mbp+graph"}
STUDIES: dict[str, Callable[[Sequence[str], int, Workbench], Study]] = {
    "method": method,
    "graph": graph,
    "learners": learners,
    "sample-efficiency": sample_efficiency,
}
ALL = "all"


def define(
    name: str,
    envs: Sequence[str] = paper.ENVS,
    runs: int = RUNS,
    preset: str = "cpu",
    changed: Mapping[str, Any] | None = None,
) -> list[Study]:
    """A study by name, or all of them.

    Args:
        name: One of ``STUDIES``, or ``all``.
        envs: The environments, which are the columns of the table.
        runs: Runs per cell.
        preset: Where all settings start from.
        changed: Settings that differ from it, by stage and dotted name, such as ``explore.steps``.

    Raises:
        ConfigError: There is no such study or setting, or nothing would be run.
    """
    known = [*STUDIES, ALL]
    if name not in known:
        raise ConfigError(f"There is no study {name}{nearest(name, known)}")
    if runs < 1 or not envs:
        raise ConfigError("A study needs at least one environment and one seed.")
    for given in changed or {}:
        stage, _, setting = given.partition(".")
        if stage not in STAGES or not setting:
            raise ConfigError(
                f"{given} is not a setting of a stage: write stage.setting, of {', '.join(STAGES)}."
            )
        if setting == "seed":
            raise ConfigError(f"{given} cannot be set: a study goes through the seeds by itself.")
    chosen = STUDIES if name == ALL else {name: STUDIES[name]}
    return [
        make(list(dict.fromkeys(envs)), runs, Workbench(preset, changed or {})) for make in chosen.values()
    ]


def brief(steps: int) -> str:
    """A number of transitions for people: 50k."""
    return f"{steps // 1000}k" if steps % 1000 == 0 else str(steps)


def _each(envs: Sequence[str], runs: int) -> list[tuple[str, int, int]]:
    """Environment, dataset and value seed of every run, run after run, so that partial grids are balanced."""
    return [(env, run % DATASETS, run // DATASETS) for run in range(runs) for env in envs]


def _run(explored: Job) -> str:
    return explored.name.removeprefix("explore/")


def _label(env: str) -> str:
    """An environment's name as part of the name of a job."""
    return re.sub(r"[^\w.+-]+", "-", env).strip("-.") or "env"
