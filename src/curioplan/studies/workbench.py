"""The workbench of studies: makes jobs, which call the stages by name, and enters them in a table."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from curioplan.config import DiagnoseConfig, ExploreConfig, LearnConfig, TrainModelConfig
from curioplan.studies import estimates, paper
from curioplan.studies.arguments import folder, resolve_settings, settings
from curioplan.studies.jobs import Job, Plan
from curioplan.studies.optima import MEASURED

BOOTSTRAPPED = "bootstrapped"
"""The name of a training of several value functions, each on its own resample of the data."""


class Mark(NamedTuple):
    """Where a row stands in the figure of a study.

    Attributes:
        series: What has a colour of its own.
        group: What stands together on the horizontal axis, where that has names.
        x: Where on the horizontal axis, where that has numbers.
        panel: What beside the environment has a panel of its own.
    """

    series: str
    group: str = ""
    x: float | None = None
    panel: str = ""


class Entry(NamedTuple):
    """The share of one job in a table.

    Attributes:
        row: The method.
        env: The environment.
        job: Name of the job whose result has the figure.
        figure: Which of its figures.
        mark: Where the row stands in the figure of the study; by default it is a series of its own.
    """

    row: str
    env: str
    job: str
    figure: str = "success"
    mark: Mark | None = None


@dataclass(frozen=True)
class Study:
    """A plan, and the table its results fill.

    Attributes:
        name: What the study is called on the command line.
        title: What its table is called.
        plan: The jobs.
        entries: What goes where in the table.
        published: For rows of which the paper has figures, their names there.
        counted: What the figures in the table are.
        xlabel: What the horizontal axis of its figure is, where that has numbers.
    """

    name: str
    title: str
    plan: Plan
    entries: tuple[Entry, ...]
    published: Mapping[str, str]
    counted: str = "success"
    xlabel: str = ""


@dataclass
class Workbench:
    """Makes jobs and enters them in a table.

    Attributes:
        preset: Where all settings start from.
        changed: Settings that differ from it, by stage and dotted name, such as ``explore.steps``.
        datasets: Explorations per environment.
    """

    preset: str
    changed: Mapping[str, Any] = field(default_factory=dict)
    datasets: int = 3
    jobs: list[Job] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)

    def explore(self, env: str, dataset: int, steps: int = 0, explorer: str = "") -> Job:
        """The exploration with a seed; its length and its explorer are the usual ones unless given."""
        changed: dict[str, Any] = {"seed": dataset} | ({"steps": steps} if steps else {})
        kind = [f"{brief(steps)}-steps"] if steps else []
        if explorer:
            changed, kind = changed | {"explorer": explorer}, [*kind, explorer]
        given = self._settings("explore", changed, env)
        run = "/".join([label_of(env), *kind, str(dataset)])
        return self._add(
            Job(
                f"explore/{run}",
                "curioplan.stages.explore:explore",
                {"env": env, "out": folder(f"runs/{run}"), "config": given},
                seconds=estimates.exploring(env, self.preset, cast(ExploreConfig, resolve_settings(given))),
                seeds={"dataset": dataset},
            )
        )

    def polo(self, env: str, seed: int, targets: str) -> Job:
        """Value-driven exploration, whose settings are those of exploration and its own."""
        given = self._settings("polo", {"seed": seed, "targets": targets}, env, also="explore")
        run, config = f"{label_of(env)}/polo-{targets}/{seed}", cast(ExploreConfig, resolve_settings(given))
        return self._add(
            Job(
                f"explore/{run}",
                "curioplan.stages.polo:polo",
                {"env": env, "out": folder(f"runs/{run}"), "config": given},
                seconds=estimates.POLO[targets] * estimates.exploring(env, self.preset, config),
                seeds={"dataset": seed},
            )
        )

    def expert(self, env: str, dataset: int) -> Job:
        """As many transitions of the scripted expert as an exploration has."""
        name, steps = f"expert/{label_of(env)}/{dataset}", self.steps(env)
        return self._add(
            Job(
                name,
                "curioplan.stages.mixtures:make_expert_data",
                {
                    **{"env": env, "out": folder(f"runs/{name}"), "steps": steps, "seed": dataset},
                    "overwrite": True,
                },
                seconds=estimates.START + steps / estimates.EXPERT,
                seeds={"dataset": dataset},
            )
        )

    def mix(self, explored: Job, other: Job, share: float) -> Job:
        """A run whose data are those of an exploration, with a share replaced by others."""
        env, dataset = explored.arguments["env"], explored.seeds["dataset"]
        source = "expert" if other.name.startswith("expert") else "random"
        run = f"{label_of(env)}/{source}-{round(100 * share)}-percent/{dataset}"
        return self._add(
            Job(
                f"mix/{run}",
                "curioplan.stages.mixtures:mix_run",
                {
                    "run": explored.arguments["out"],
                    "other": other.arguments["out"],
                    "share": share,
                    "out": folder(f"runs/{run}"),
                    "env": env,
                    "seed": dataset,
                },
                needs=(explored.name, other.name),
                seconds=estimates.START + self.steps(env) / estimates.MIX,
                seeds={"dataset": dataset},
            )
        )

    def train_model(self, explored: Job) -> Job:
        """A model trained offline on the data of an exploration, called ``offline``."""
        seed = explored.seeds["dataset"]
        given = self._settings("train-model", {"seed": seed}, explored.arguments["env"])
        config = cast(TrainModelConfig, resolve_settings(given))
        return self._add(
            Job(
                f"train-model/{_run(explored)}",
                "curioplan.stages.train_model:train_model",
                {"run": explored.arguments["out"], "config": given},
                needs=(explored.name,),
                seconds=estimates.modelling(self.preset, config),
                seeds=explored.seeds,
            )
        )

    def train(self, explored: Job, algo: str, seed: int) -> Job:
        """The training of a learner on an exploration."""
        env = explored.arguments["env"]
        given = self._settings("learn", {"seed": seed}, env, algo)
        config = cast(LearnConfig, resolve_settings(given))
        exploring = explored.arguments.get("config")  # a mixture has as many transitions as usual
        transitions = cast(ExploreConfig, resolve_settings(exploring)).steps if exploring else self.steps(env)
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

    def evaluate(
        self,
        row: str,
        explored: Job,
        controller: str,
        algo: str,
        seed: int,
        *,
        trained: Job | None = None,
        model: Job | None = None,
        mark: Mark | None = None,
    ) -> Job:
        """Enter the evaluation of a controller.

        Args:
            row: Its row in the table.
            explored: The exploration that left the run.
            controller: The controller.
            algo: The learner of its values.
            seed: Their seed, and that of the evaluation.
            trained: What left the values; by default a training on the exploration, unless none are needed.
            model: What left the model ``offline``; by default exploration's own is used.
            mark: Where the row stands in the figure of the study.
        """
        if trained is None and controller != "mbp+sparse":
            trained = self.train(explored, algo, seed)
        env = explored.arguments["env"]
        given = self._settings("reach", {"seed": seed}, env)
        values = trained.arguments.get("name", "") if trained else ""
        name = f"evaluate/{_run(explored)}/{values or algo if trained else 'none'}/{seed}/{controller}"
        needs = [job.name for job in (trained or explored, model) if job]
        job = self._add(
            Job(
                name + ("/offline" if model else ""),
                "curioplan.stages.evaluate:evaluate",
                {
                    "run": explored.arguments["out"],
                    "controller": controller,
                    "algo": algo,
                    "seed": seed,
                    **({"values": values} if values else {}),
                    **({"model": "offline"} if model else {}),
                    "config": given,
                },
                needs=tuple(dict.fromkeys(needs)),
                seconds=estimates.evaluating(env, controller, self.preset),
                seeds={**explored.seeds, "values" if trained else "planner": seed},
            )
        )
        self.entries.append(Entry(row, env, job.name, mark=mark))
        return job

    def bootstrap(self, explored: Job, count: int) -> Job:
        """The training of several value functions, each on a resample of an exploration's trajectories."""
        changed = {"seed": 0, "seeds": count, "bootstrap": "trajectories"}
        given = self._settings("learn", changed, explored.arguments["env"], "td3")
        config = cast(LearnConfig, resolve_settings(given))
        transitions = cast(ExploreConfig, resolve_settings(explored.arguments["config"])).steps
        return self._add(
            Job(
                f"train/{_run(explored)}/{BOOTSTRAPPED}",
                "curioplan.stages.train:train",
                {"run": explored.arguments["out"], "algo": "td3", "config": given, "name": BOOTSTRAPPED},
                needs=(explored.name,),
                seconds=count * estimates.learning("td3", self.preset, config, transitions),
                seeds={**explored.seeds, "values": 0},
            )
        )

    def optima(self, explored: Job, trained: Job, evaluated: Sequence[Job]) -> None:
        """Enter the T-local optima along what value functions of one training did."""
        env = explored.arguments["env"]
        given = self._settings("diagnose", {"seed": 0, "values": trained.arguments["name"]}, env)
        config = cast(DiagnoseConfig, resolve_settings(given))
        job = self._add(
            Job(
                f"optima/{_run(explored)}",
                "curioplan.studies.optima:measure_optima",
                {"run": explored.arguments["out"], "config": given},
                needs=tuple(job.name for job in evaluated),
                seconds=estimates.diagnosing(env, self.preset, config, len(evaluated)),
                seeds=trained.seeds,
            )
        )
        self.entries += [Entry(row, env, job.name, row) for row in MEASURED]

    def study(
        self,
        name: str,
        title: str,
        published: Mapping[str, str] | None = None,
        *,
        counted: str = "success",
        xlabel: str = "",
    ) -> Study:
        """The study of everything made here."""
        rows = {entry.row: entry.row for entry in self.entries if entry.row in paper.SUCCESS}
        rows |= published or {}
        return Study(name, title, Plan(self.jobs), tuple(self.entries), rows, counted, xlabel)

    def steps(self, env: str) -> int:
        """The usual length of an exploration."""
        return cast(ExploreConfig, resolve_settings(self._settings("explore", {}, env))).steps

    def _settings(
        self, stage: str, own: Mapping[str, Any], env: str, algo: str = "", also: str = ""
    ) -> dict[str, Any]:
        """The settings of a stage: what was asked for it, or for another that it extends, and its own."""
        asked = {
            name.removeprefix(f"{each}."): value
            for each in (also, stage)
            for name, value in self.changed.items()
            if each and name.startswith(f"{each}.")
        }
        return settings(stage, self.preset, asked | dict(own), algo, env)

    def _add(self, job: Job) -> Job:
        self.jobs.append(job)
        return job


def brief(steps: int) -> str:
    """A number of transitions for people: 50k."""
    return f"{steps // 1000}k" if steps % 1000 == 0 else str(steps)


def _run(explored: Job) -> str:
    return explored.name.removeprefix("explore/").removeprefix("mix/")


def label_of(env: str) -> str:
    """An environment's name as part of the name of a job."""
    return re.sub(r"[^\w.+-]+", "-", env).strip("-.") or "env"
