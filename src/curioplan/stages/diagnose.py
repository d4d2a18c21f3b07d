"""Diagnosis: where values trap who climbs them, and how accurate values, graph and model are."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from curioplan.analysis.figures_diagnostics import OUTCOMES, accuracy_figure, outcomes_figure
from curioplan.analysis.figures_maps import AlongPath, aggregation_figure, occupancy_figure
from curioplan.analysis.landscape import steps_over_map
from curioplan.analysis.model_error import model_error_figure
from curioplan.analysis.optima import Optima, RandomReach, non_monotonicity, optima_along, stacked
from curioplan.analysis.statistics import mean_interval
from curioplan.analysis.values import evaluate, expected_value, implied_steps
from curioplan.config import DiagnoseConfig, ReachConfig
from curioplan.data import TrajectoryStore, coverage_figure, gather, summary
from curioplan.devices import find_device
from curioplan.envs import make_task
from curioplan.envs.maze import SUCCESS_RADIUS
from curioplan.errors import RunError
from curioplan.options import nearest
from curioplan.planning import ModelRollout
from curioplan.presets import preset
from curioplan.runs import read_run, stage_name, versions
from curioplan.seeding import seed_for
from curioplan.stages.control import Parts
from curioplan.stages.episodes import Outcome
from curioplan.stages.evaluate import STAGE as EVALUATIONS
from curioplan.stages.evaluate import load_outcomes
from curioplan.stages.optimal import ExpertPath, OverGraph, expert_paths
from curioplan.stages.runtime import torch_threads
from curioplan.stages.train_model import measure_errors
from curioplan.storage import read_json, write_json
from curioplan.values import Values

log = logging.getLogger(__name__)

STAGE = "diagnosis"
MEASURES = {
    "optima": "T-local optima",
    "deep": "as deep as the horizon",
    "non_monotonicity": "non-monotonicity",
}
"""What is measured along trajectories, with its title in figures."""
ERRORS = {
    "mean_absolute_error": "mean error of values",
    "median_steps_off": "median steps too many",
    "median_absolute_steps_off": "median steps off",
}
"""What is measured along optimal paths, with its title in tables."""


@dataclass(frozen=True)
class Episode:
    """An episode of an evaluation, and which evaluation that was."""

    evaluation: str
    outcome: Outcome


def diagnose(run: str | Path, config: DiagnoseConfig | None = None, *, name: str = "") -> Path:
    """Diagnose a trained run and its evaluations, and leave numbers and figures in the run folder.

    T-local optima, non-monotonicity and the error of the model are measured along the trajectories of
    evaluations; the accuracy of values along those of an expert, in mazes. Another diagnosis of the same name
    replaces the last.

    Args:
        run: The run folder.
        config: The settings; by default those of preset ``cpu`` for the environment.
        name: What to call the diagnosis; by default as the training of the value functions is called.

    Returns:
        The folder of the diagnosis: ``diagnosis.json``, and a figure for each of its parts.
    """
    run = Path(run)
    env = str(read_run(run)["env"])
    task, config = make_task(env), config or preset("cpu", DiagnoseConfig, env)
    reach = ReachConfig(seed=config.draws, horizon=config.horizon, graph=config.graph)
    find_device(config.device)  # refuses before anything is written
    parts = Parts(run, task, reach, config.algo, config.seed, config.values, config.model, config.device)
    folder = run / STAGE / stage_name(name or parts.values_path().parent.name)
    episodes = load_episodes(run, config.evaluations)
    with torch_threads(config.threads):
        found = Diagnosis(parts, config, episodes, folder).measure()
        write_json(folder / "diagnosis.json", _plain(found))
        return folder


def load_episodes(run: Path, names: str = "") -> list[Episode]:
    """The episodes of some finished evaluations of a run, by their names, or of all."""
    known = sorted(path.parent.name for path in run.glob(f"{EVALUATIONS}/*/result.json"))
    chosen = [name.strip() for name in names.split(",")] if names.strip() else known
    for name in chosen:
        if name not in known:
            raise RunError(f"{run} has no finished evaluation {name!r}{nearest(name, known)}")
    return [Episode(name, outcome) for name in chosen for outcome in load_outcomes(run / EVALUATIONS / name)]


class Diagnosis:
    """The parts of a diagnosis, each measured and drawn.

    Args:
        parts: Values, model and data.
        config: Settings.
        episodes: The episodes to look at.
        folder: Where figures go.
    """

    def __init__(self, parts: Parts, config: DiagnoseConfig, episodes: list[Episode], folder: Path) -> None:
        self.parts, self.config, self.task = parts, config, parts.task
        self.episodes, self.folder = episodes, folder
        chosen = parts.values_path()
        files = sorted(chosen.parent.glob("seed-*.safetensors"), key=_number)
        self.seeds = [_number(path) for path in files]
        self.device = find_device(config.device)
        self.values = [Values.load(path, self.device) for path in files]
        self.chosen = self.values[files.index(chosen)]
        self.all_values = stacked([values.value for values in self.values])
        self.horizon = config.horizon or self.task.reach_horizon
        self.store = parts.data()

    def measure(self) -> dict[str, Any]:
        """Everything, as JSON."""
        self.folder.mkdir(parents=True, exist_ok=True)
        found: dict[str, Any] = {
            "task": self.task.name,
            "values": self.parts.values_path().parent.name,
            "seeds": self.seeds,
            "horizon": self.horizon,
            "evaluations": list(dict.fromkeys(episode.evaluation for episode in self.episodes)),
            "settings": asdict(self.config),
            "versions": versions(),
        }
        found["occupancy"] = self.occupancy()
        if self.episodes:
            found["trajectories"] = self.trajectories()
            found["model_error"] = self.model_error()
        else:
            log.warning("There are no evaluations yet, whose trajectories could be looked at.")
        found["accuracy"] = self.accuracy()
        return found

    def trajectories(self) -> dict[str, Any]:
        """T-local optima and non-monotonicity along each trajectory, and over successes and failures."""
        config, task = self.config, self.task
        paths = [episode.outcome.observations.to(self.device) for episode in self.episodes]
        wanted = [episode.outcome.goal for episode in self.episodes]
        goals = torch.tensor(wanted, dtype=torch.float32, device=self.device)
        reach = RandomReach(
            ModelRollout(self.parts.model(), "shared"),
            torch.tensor(task.action_low, device=self.device),
            torch.tensor(task.action_high, device=self.device),
            self.horizon,
            config.sequences,
        )
        generator = torch.Generator().manual_seed(seed_for(config.draws, "diagnosis"))
        pool = torch.randint(self.store.states, (config.pool,), generator=generator)
        optima = optima_along(
            self.all_values,
            [path[:: config.stride] for path in paths],
            goals,
            self.store.observations[pool].to(self.device),
            reach,
            generator,
        )
        climbing = non_monotonicity(self.all_values, paths, goals, self.horizon)
        chosen = self.seeds.index(config.seed)
        records = [
            _record(episode, found, climbs) | {"traps": _traps(found, chosen, config.stride)}
            for episode, found, climbs in zip(self.episodes, optima, climbing.T, strict=True)
        ]
        groups = {
            outcome: [record for record in records if record["success"] == (outcome == OUTCOMES[0])]
            for outcome in OUTCOMES
        }
        outcomes_figure(
            {
                title: {outcome: _means(group, measure) for outcome, group in groups.items()}
                for measure, title in MEASURES.items()
            },
            self.folder / "optima.png",
        )
        rng = np.random.default_rng(seed_for(config.draws, "intervals"))
        return {
            **{outcome: _summary(group, rng) for outcome, group in groups.items()},
            "episodes": records,
        }

    def accuracy(self) -> dict[str, Any] | None:
        """V̂ and V̄ of one value function along the trajectories of an expert, against γ^(steps − 1).

        ``None`` without a maze.
        """
        # Values count to where reward fell: to success, or to the very state that a goal was taken from.
        radius = SUCCESS_RADIUS if self.chosen.learner.config.reward == "success" else 0.0
        paths = expert_paths(self.task, self.config.draws, radius)
        if not paths:
            return None
        gamma, cases = self.chosen.gamma, {}
        for path in paths:
            assert path.case.goal is not None
            last = len(path.states) - 1
            shown = [*range(0, last, self.config.stride), last]
            states, steps = path.states[shown], path.steps[shown]
            over = OverGraph(self.parts, self.chosen, self.config.graph, path.case.goal)
            goal = torch.tensor(path.case.goal, dtype=torch.float32)
            plain, aggregated = evaluate(self.chosen.value, states, goal), over.along(states)
            along = (steps, expected_value(steps, gamma), plain, aggregated)
            cases[path.case.name] = AlongPath(*(numbers.tolist() for numbers in along))
        accuracy_figure(cases, self.folder / "accuracy.png")
        self._draw_aggregation(max(paths, key=lambda path: len(path.states)), cases)
        return {
            "values": _errors(cases, "values", gamma),
            "aggregated": _errors(cases, "aggregated", gamma),
            "detour": over.detour,
            "cases": {name: asdict(along) for name, along in cases.items()},
        }

    def _draw_aggregation(self, path: ExpertPath, cases: Mapping[str, AlongPath]) -> None:
        """Landscapes of the case whose goal is furthest away, with and without aggregation."""
        plan, case = self.task.floor_plan, path.case
        assert plan is not None
        assert case.goal is not None
        over = OverGraph(self.parts, self.chosen, self.config.graph, case.goal)
        functions = {
            "without aggregation": self.chosen.value,
            "with aggregation": over.seen_from(path.states[0]),
        }
        maps = {
            title: steps_over_map(value, self.task, plan, case, self.chosen.gamma)
            for title, value in functions.items()
        }
        way = path.states[:, :2].numpy()
        aggregation_figure(maps, plan, case.goal, way, cases[case.name], self.folder / "aggregation.png")

    def model_error(self) -> dict[str, Any] | None:
        """Errors of the model over the horizon, on the trajectories of the evaluations."""
        seen = TrajectoryStore(self.task.observation_dim, self.task.goal_dim, self.task.action_dim)
        for outcome in (episode.outcome for episode in self.episodes):
            if len(outcome.actions):
                lived = outcome.observations, outcome.actions, outcome.achieved_goals
                seen.add_episode(*(rows.numpy() for rows in lived))
        if not seen.episodes:
            return None
        known, seen = self.store.to(self.device), seen.to(self.device)
        errors = measure_errors(self.parts.model(), known, seen, self.task)
        model_error_figure(errors, self.folder / "model_error.png")
        return {what: [asdict(error) for error in found] for what, found in errors.items()}

    def occupancy(self) -> dict[str, Any]:
        """What of the space is covered by the data, and by what the evaluations did."""
        sources = {"data": self.store}
        own = self.parts.run / "explore" / "data"
        if self.parts.data_settings()["data"] and own.exists():
            sources["exploration"] = gather("", own, self.task)
        if self.task.floor_plan is None:
            coverage_figure(self.store, self.task, self.folder / "occupancy.png")
        else:
            positions: dict[str, NDArray[Any]] = {
                name: store.observations[:, :2].numpy() for name, store in sources.items()
            }
            if self.episodes:
                reached = [episode.outcome.observations[:, :2] for episode in self.episodes]
                positions["evaluations"] = torch.cat(reached).numpy()
            occupancy_figure(positions, self.task.floor_plan, self.folder / "occupancy.png")
        return {name: summary(store, self.task) for name, store in sources.items()}


def format_diagnosis(folder: str | Path) -> str:
    """A diagnosis in a few lines."""
    found = read_json(Path(folder) / "diagnosis.json")
    lines = []
    if "trajectories" in found:
        lines.append(f"{'along trajectories':<24}" + "".join(f"{outcome:>14}" for outcome in OUTCOMES))
        groups = [found["trajectories"][outcome] for outcome in OUTCOMES]
        lines.append(f"{'  episodes':<24}" + "".join(f"{group['episodes']:>14}" for group in groups))
        for measure, title in MEASURES.items():
            shares = [
                "-" if group[measure] is None else f"{group[measure]['estimate']:.3f}" for group in groups
            ]
            lines.append(f"  {title:<22}" + "".join(f"{share:>14}" for share in shares))
    if found["accuracy"]:
        lines.append(f"{'along optimal paths':<24}{'V':>14}{'over graph':>14}")
        for key, title in ERRORS.items():
            pair = (found["accuracy"][which][key] for which in ("values", "aggregated"))
            lines.append(f"  {title:<22}" + "".join(f"{number:>14.3f}" for number in pair))
        lines.append(f"  divided by the detour {'':>14}{found['accuracy']['detour']:>14.3f}")
    for what, errors in (found.get("model_error") or {}).items():
        last = errors[-1]
        shown = "-" if last["model"] is None else f"{last['model']:.3f}"
        lines.append(f"model error after {last['steps']} steps, {what}: {shown} of that of no change")
    for name, about in found["occupancy"].items():
        if "coverage" in about:
            seen = about["coverage"]
            lines.append(f"{name}: {seen['visited']} of {seen['total']} {seen['unit']} visited")
    return "\n".join(lines)


def _record(episode: Episode, optima: Optima, climbing: NDArray[Any]) -> dict[str, Any]:
    """What was found along one trajectory, a number for each value function."""
    outcome = episode.outcome
    depths = optima.depth[optima.depth > 0]
    return {
        "evaluation": episode.evaluation,
        "case": outcome.case.name,
        "seed": outcome.seed,
        "success": outcome.success,
        "states": optima.depth.shape[1],
        "optima": optima.share().tolist(),
        "deep": optima.share(optima.horizon).tolist(),
        "mean_depth": float(depths.mean()) if len(depths) else None,
        "non_monotonicity": climbing.tolist(),
    }


def _traps(optima: Optima, chosen: int, stride: int) -> list[int]:
    """The steps of a trajectory at which a value function has optima from which planning cannot escape."""
    steps = stride * np.flatnonzero(optima.censored[chosen])
    return [int(step) for step in steps]


def _means(records: Sequence[Mapping[str, Any]], measure: str) -> list[float]:
    """A share per trajectory, averaged over value functions; those too short to have one are left out."""
    means = [float(np.mean(record[measure])) for record in records]
    return [mean for mean in means if math.isfinite(mean)]


def _summary(records: Sequence[Mapping[str, Any]], rng: np.random.Generator) -> dict[str, Any]:
    """How many trajectories, and the mean of each measure with its interval over value functions."""
    found: dict[str, Any] = {"episodes": len(records)}
    for measure in MEASURES:
        scores = np.array([record[measure] for record in records], np.float64).T  # (values, trajectories)
        scores = scores[:, np.isfinite(scores).all(0)] if scores.size else scores
        found[measure] = asdict(mean_interval(scores, rng)) if scores.size else None
    return found


def _errors(cases: Mapping[str, AlongPath], which: str, gamma: float) -> dict[str, float]:
    """How far values are from what they should be, over all cases: as values, and in steps."""
    true, found = (
        np.concatenate([np.asarray(getattr(along, name)) for along in cases.values()])
        for name in ("expected", which)
    )
    off = implied_steps(found, gamma) - implied_steps(true, gamma)
    return {
        "mean_absolute_error": float(np.abs(found - true).mean()),
        "median_steps_off": float(np.median(off)),
        "median_absolute_steps_off": float(np.median(np.abs(off))),
    }


def _number(path: Path) -> int:
    return int(path.stem.removeprefix("seed-"))


def _plain(tree: Any) -> Any:
    """As JSON can hold it: what is not finite becomes null."""
    if isinstance(tree, Mapping):
        return {str(key): _plain(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_plain(value) for value in tree]
    if isinstance(tree, Tensor | np.generic):
        tree = tree.item()
    return None if isinstance(tree, float) and not math.isfinite(tree) else tree
