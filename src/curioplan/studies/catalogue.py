"""The studies: which jobs fill which cells of which table.

Jobs call the stages by name. A run is a dataset (an exploration seed) and a value seed; the first runs are on
different datasets, up to three, so nine runs are the paper's three datasets with three value seeds each, and
asking for more runs only adds jobs. What studies have in common is there once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from curioplan.envs.experts import expert_for
from curioplan.errors import ConfigError, EnvError
from curioplan.options import nearest
from curioplan.stages.control import SORB_STEPS
from curioplan.studies import estimates, paper
from curioplan.studies.workbench import Entry, Mark, Study, Workbench, brief
from curioplan.values import LEARNERS

STAGES = ("explore", "polo", "train-model", "learn", "reach", "diagnose")
DATASETS = 3  # explorations per environment
RUNS = 9
VALUES = {"smoke": 2}
"""Bootstrapped value functions per dataset in a preset, if not the usual number."""
USUAL_VALUES = 10
"""With three datasets these are the 30 of the paper."""

__all__ = ["ALL", "DATASETS", "RUNS", "STUDIES", "Entry", "Study", "Workbench", "define"]


def learners(envs: Sequence[str], runs: int, bench: Workbench) -> Study:
    """Every value learner, under its actor and under planning."""
    for env, dataset, seed in _each(envs, runs, bench.datasets):
        explored = bench.explore(env, dataset)
        for algo, label in LEARNERS.items():
            bench.evaluate(label, explored, "actor", algo, seed, mark=Mark("actor", label))
            bench.evaluate(f"{label}+MBP", explored, "mbp", algo, seed, mark=Mark("MBP", label))
    return bench.study("learners", "Value learners, by actor and by planning")


def method(envs: Sequence[str], runs: int, bench: Workbench) -> Study:
    """The method against its parts, and against planning on a sparse cost."""
    for env, dataset, seed in _each(envs, runs, bench.datasets):
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
    for env, dataset, seed in _each(envs, runs, bench.datasets):
        explored = bench.explore(env, dataset)
        for row, controller in rows.items():
            bench.evaluate(row, explored, controller, "td3", seed)
    return bench.study("graph", "Ways to use a graph")


def sample_efficiency(envs: Sequence[str], runs: int, bench: Workbench) -> Study:
    """The method and its parts with a quarter and half of the data.

    A shorter exploration is the beginning of the longer one, with the model as it was then.
    """
    published = {}
    for env, dataset, seed in _each(envs, runs, bench.datasets):
        usual = bench.steps(env)
        for steps in (usual // 4, usual // 2, usual):
            explored = bench.explore(env, dataset, 0 if steps == usual else steps)
            for part, controller in PARTS.items():
                row = f"{part}, {brief(steps)}"
                bench.evaluate(row, explored, controller, "td3", seed, mark=Mark(part, x=steps / 1000))
                if steps == 200_000:
                    published[row] = part
    return bench.study("sample-efficiency", "Less data", published, xlabel="thousand transitions")


def polo(envs: Sequence[str], runs: int, bench: Workbench) -> Study:
    """Value-driven exploration that knows the goals in training, against the method, which does not."""
    for env, dataset, seed in _each(envs, runs, bench.datasets):
        bench.evaluate("TD3+MBP+Aggregation", bench.explore(env, dataset), "mbp+graph", "td3", seed)
        for row, targets in (("POLO*", "mppi"), ("POLO**", "on-policy")):
            explored = bench.polo(env, dataset + bench.datasets * seed, targets)
            bench.evaluate(row, explored, "mbp", "polo", explored.seeds["dataset"], trained=explored)
    return bench.study("polo", "Value-driven exploration")


def exploration(envs: Sequence[str], runs: int, bench: Workbench) -> Study:
    """The same learner, planner and graph on data of different explorers.

    Random exploration trains no model, so it gets one that is trained on its data afterwards.
    """
    for env, dataset, seed in _each(envs, runs, bench.datasets):
        explored = bench.explore(env, dataset)
        mark = Mark("disagreement")
        bench.evaluate("TD3+MBP+Aggregation", explored, "mbp+graph", "td3", seed, mark=mark)
        bench.evaluate("value-driven", bench.polo(env, dataset, "on-policy"), "mbp+graph", "td3", seed)
        explored = bench.explore(env, dataset, explorer="random")
        model = bench.train_model(explored)
        bench.evaluate("random", explored, "mbp+graph", "td3", seed, model=model)
    return bench.study("exploration", "Ways to explore, with the same method after it")


def mixtures(envs: Sequence[str], runs: int, bench: Workbench) -> Study:
    """Exploration data in part replaced by others, with the model of exploration or one of the mixture."""
    rows = [f"{share:.0%} {source}, {model} model" for source, share, model in _MIXTURES]
    for env, dataset, seed in _each(envs, runs, bench.datasets):
        explored = bench.explore(env, dataset)
        others = {"random": bench.explore(env, dataset, explorer="random")}
        if has_expert(env):
            others["expert"] = bench.expert(env, dataset)
        for row, (source, share, model) in zip(rows, _MIXTURES, strict=True):
            if source in others:
                run = bench.mix(explored, others[source], share) if share else explored
                offline = bench.train_model(run) if model == "offline" else None
                mark = Mark(f"{model} model", x=share, panel=source)
                bench.evaluate(row, run, "mbp+graph", "td3", seed, model=offline, mark=mark)
    as_published = all(bench.steps(env) == 200_000 for env in envs)
    published = {"0% expert, exploration model": "TD3+MBP+Aggregation"} if as_published else {}
    return bench.study(
        "mixtures", "Exploration data mixed with others", published, xlabel="share of other data"
    )


def optima(envs: Sequence[str], runs: int, bench: Workbench) -> Study:
    """T-local optima and non-monotonicity along what planning on bootstrapped value functions does.

    Value functions of a dataset are trained together, and each plans; with more than three runs there are no
    more of them.
    """
    count = VALUES.get(bench.preset, USUAL_VALUES)
    for env, dataset, seed in _each(envs, runs, bench.datasets):
        if seed == 0:
            explored = bench.explore(env, dataset)
            trained = bench.bootstrap(explored, count)
            evaluated = [
                bench.evaluate("success", explored, "mbp", "td3", each, trained=trained)
                for each in range(count)
            ]
            bench.optima(explored, trained, evaluated)
    return bench.study(
        "optima",
        "T-local optima and non-monotonicity, with bootstrapped values",
        counted="success of TD3+MBP, and share of the states of successes and of failures",
    )


def has_expert(env: str) -> bool:
    """Whether there is a scripted expert for an environment."""
    try:
        expert_for(estimates.task_of(env))
    except EnvError:
        return False
    return True


FRACTIONS = (0.0, 0.25, 0.5, 0.75, 1.0)
_MIXTURES = [
    (source, share, model)
    for source in ("expert", "random")
    for model in ("exploration", "offline")
    for share in FRACTIONS
]
PARTS = {"TD3": "actor", "TD3+MBP": "mbp", "TD3+MBP+Aggregation": "mbp+graph"}
STUDIES: dict[str, Callable[[Sequence[str], int, Workbench], Study]] = {
    "method": method,
    "graph": graph,
    "learners": learners,
    "sample-efficiency": sample_efficiency,
    "mixtures": mixtures,
    "exploration": exploration,
    "polo": polo,
    "optima": optima,
}
ALL = "all"


def define(
    name: str,
    envs: Sequence[str] = paper.ENVS,
    runs: int = RUNS,
    preset: str = "cpu",
    changed: Mapping[str, Any] | None = None,
    datasets: int = DATASETS,
) -> list[Study]:
    """A study by name, or all of them.

    Args:
        name: One of ``STUDIES``, or ``all``.
        envs: The environments, which are the columns of the table.
        runs: Runs per cell.
        preset: Where all settings start from.
        changed: Settings that differ from it, by stage and dotted name, such as ``explore.steps``.
        datasets: Explorations per environment; runs beyond them differ in the values' seed.

    Raises:
        ConfigError: There is no such study or setting, or nothing would be run.
    """
    known = [*STUDIES, ALL]
    if name not in known:
        raise ConfigError(f"There is no study {name}{nearest(name, known)}")
    if runs < 1 or datasets < 1 or not envs:
        raise ConfigError("A study needs at least one environment, one dataset and one seed.")
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
        make(list(dict.fromkeys(envs)), runs, Workbench(preset, changed or {}, datasets))
        for make in chosen.values()
    ]


def _each(envs: Sequence[str], runs: int, datasets: int) -> list[tuple[str, int, int]]:
    """Environment, dataset and value seed of every run, run after run, so that partial grids are balanced."""
    return [(env, run % datasets, run // datasets) for run in range(runs) for env in envs]
