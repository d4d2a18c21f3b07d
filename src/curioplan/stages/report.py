"""The report of a run: whatever its stages have left, on one page."""

from __future__ import annotations

import logging
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from curioplan.analysis.figures_diagnostics import OUTCOMES
from curioplan.analysis.figures_maps import graph_figure, trapped_figure
from curioplan.analysis.landscape import steps_over_map
from curioplan.analysis.report import Page
from curioplan.config import EvaluateConfig, from_dict
from curioplan.envs import Task, make_task
from curioplan.errors import CurioplanError, RunError
from curioplan.metrics import read_metrics
from curioplan.runs import read_run
from curioplan.stages.commands import (
    diagnose_command,
    evaluate_command,
    explore_command,
    model_command,
    train_command,
)
from curioplan.stages.control import Parts
from curioplan.stages.diagnose import ERRORS, MEASURES
from curioplan.stages.episodes import Outcome
from curioplan.stages.evaluate import load_outcomes, uses_values
from curioplan.stages.optimal import OverGraph
from curioplan.storage import read_json, write_atomic

log = logging.getLogger(__name__)

LARGEST_VIDEO, LARGEST_VIDEOS = 6_000_000, 24_000_000  # bytes: of one, and of all together
MEASURED = re.compile(r"(value|steps|bound|rank|pairs)(_|$)")  # not losses: `values.json` has their last ones
GRAPHS = ("mbp+graph", "mbp+graph-uniform")
FIGURES = {
    "optima": "T-local optima and non-monotonicity along successful and failed trajectories",
    "accuracy": "Values along optimal trajectories against the true ones",
    "aggregation": "Steps implied by values over the map, without and with aggregation, and along a path",
    "model_error": "Error of the model over the steps it predicts ahead",
    "occupancy": "Where the data lie",
}


def report(run: str | Path, out: str | Path | None = None) -> Path:
    """Write one self-contained page about a run: all that its stages have left, and how to repeat it.

    Args:
        run: The run folder; every stage is optional.
        out: Where the page goes; by default ``RUN/report.html``.

    Returns:
        The path of the page.
    """
    run = Path(run)
    content = Report(run).page().html()
    path = Path(out) if out is not None else run / "report.html"
    try:
        write_atomic(path, content.encode())
    except OSError as error:
        raise RunError(f"Cannot write {path}: {error.strerror or error}.") from error
    return path


class Report:
    """The parts of a report, each of which says nothing where there is nothing."""

    def __init__(self, run: Path) -> None:
        self.run, self.about = run, read_run(run)
        self.env = str(self.about["env"])
        self.task = make_task(self.env)
        self.written = Page(
            f"{run.resolve().name}: {self.task.name}",
            "What was run, what came of it, and how to repeat it.",
        )

    def page(self) -> Page:
        """The page, with all parts."""
        for part in (
            self.setting,
            self.exploration,
            self.models,
            self.values,
            self.success,
            self.pictures,
            self.diagnoses,
            self.videos,
            self.repetition,
        ):
            part()
        return self.written

    def stages(self, kind: str) -> Iterator[tuple[Path, dict[str, Any]]]:
        """The folders of the stages of a kind that have settings, with these."""
        for path in sorted(self.run.glob(f"{kind}/config.json")):
            saved = read_json(path)
            if not isinstance(saved, dict) or not isinstance(saved.get("settings"), dict):
                raise RunError(f"{path} is damaged: it does not hold settings.")
            yield path.parent, saved["settings"]

    def setting(self) -> None:
        """The environment, the stages there are, their settings, and versions."""
        page, task = self.written, self.task
        page.section("What was run")
        page.text(
            f"{task.name}: states of {task.observation_dim} dimensions, goals of {task.goal_dim}, "
            f"actions of {task.action_dim}, episodes of {task.episode_length} steps, γ = {task.gamma:g}, "
            f"{len(task.cases)} evaluation cases."
        )
        ends = {
            "explore": "model.safetensors",
            "models/*": "model.safetensors",
            "values/*": "values.json",
            "evaluations/*": "result.json",
        }
        found = [(kind, *stage) for kind in ends for stage in self.stages(kind)]
        page.table(
            ["stage", "state"],
            [
                [
                    folder.relative_to(self.run).as_posix(),
                    "finished" if (folder / ends[kind]).exists() else "not finished",
                ]
                for kind, folder, _ in found
            ],
        )
        for _, folder, settings in found:
            page.pairs(_flat(settings), f"settings of {folder.relative_to(self.run).as_posix()}")
        page.pairs({key: str(value) for key, value in self.about.get("versions", {}).items()}, "versions")

    def exploration(self) -> None:
        """What exploration reached, and how its model learned."""
        for folder, settings in self.stages("explore"):
            self.written.section("Exploration")
            lines = list(read_metrics(folder))
            if lines:
                steps, covered = lines[-1]["step"], lines[-1].get("coverage")
                text = f"{steps:,} steps by {settings.get('explorer', 'an unknown explorer')}"
                if covered is not None and self.task.coverage is not None:
                    text += (
                        f", which visited {covered} of {self.task.coverage.total} {self.task.coverage.unit}"
                    )
                self.written.text(f"{text}.")
            self._picture(
                folder / "exploration.png", f"Trajectories and coverage of {self.task.name} over steps"
            )
            self._charts(lines, "steps")

    def models(self) -> None:
        """Models trained offline."""
        for number, (folder, _) in enumerate(self.stages("models/*")):
            if number == 0:
                self.written.section("Models")
            self.written.heading(folder.name)
            self._picture(folder / "errors.png", f"Error of the model {folder.name} over steps ahead")
            self._charts(list(read_metrics(folder)), "updates")

    def values(self) -> None:
        """Losses and landscapes of value functions."""
        for number, (folder, settings) in enumerate(self.stages("values/*")):
            if number == 0:
                self.written.section("Values")
            self.written.heading(f"{folder.name} ({settings.get('algo')})")
            self._picture(folder / "values.png", f"Values learned by {folder.name}")
            self._charts(list(read_metrics(folder)), "updates")

    def success(self) -> None:
        """The table of all finished evaluations, and their cases."""
        results = [(folder, _result(folder)) for folder, _ in self.stages("evaluations/*")]
        finished = [(folder, result) for folder, result in results if result is not None]
        if not finished:
            return
        self.written.section("Success")
        rows = []
        for folder, result in finished:
            low, high = result["interval"]
            rate = "–" if result["rate"] is None else f"{result['rate']:.1f}"
            success = [f"{result['success']:.3f}", f"{low:.3f} to {high:.3f}", str(result["episodes"]), rate]
            rows.append([folder.name, str(result["controller"]), *success])
        self.written.table(["evaluation", "controller", "success", "90 % interval", "episodes", "Hz"], rows)
        for folder, result in finished:
            self.written.heading(f"Cases of {folder.name}")
            self.written.table(["case", "reached", "steps", "length"], list(_cases(result)))

    def pictures(self) -> None:
        """Landscapes with a trajectory, and the graph with its path, of every evaluation on a map."""
        if self.task.floor_plan is None or self.task.goal_indices != (0, 1):
            return
        drawn = []
        for folder, settings in self.stages("evaluations/*"):
            config = from_dict(EvaluateConfig, settings)
            if uses_values(config) and (folder / "result.json").is_file():
                try:
                    drawn += [
                        (path, text) for path, text in draw_evaluation(self.run, self.task, folder, config)
                    ]
                except CurioplanError as error:
                    log.warning("%s is not drawn: %s", folder.name, error)
        if drawn:
            self.written.section("Landscapes and graphs")
        for path, text in drawn:
            self._picture(path, text)

    def diagnoses(self) -> None:
        """What diagnoses have found."""
        for number, path in enumerate(sorted(self.run.glob("diagnosis/*/diagnosis.json"))):
            found = read_json(path)
            if number == 0:
                self.written.section("Diagnosis")
            self.written.heading(path.parent.name)
            if "trajectories" in found:
                groups = [found["trajectories"][outcome] for outcome in OUTCOMES]
                rows = [["trajectories", *(str(group["episodes"]) for group in groups)]]
                rows += [
                    [title, *(_estimate(group[key]) for group in groups)] for key, title in MEASURES.items()
                ]
                self.written.table(["share of the states", *OUTCOMES], rows)
            if found.get("accuracy"):
                parts = [found["accuracy"][which] for which in ("values", "aggregated")]
                rows = [[title, *(f"{part[key]:.3f}" for part in parts)] for key, title in ERRORS.items()]
                self.written.table(["along optimal paths", "values", "over the graph"], rows)
            for name, text in FIGURES.items():
                self._picture(path.parent / f"{name}.png", text)

    def videos(self) -> None:
        """Videos, as far as they fit."""
        left, begun = LARGEST_VIDEOS, False
        for path in sorted(self.run.glob("evaluations/*/videos/*")):
            if path.suffix not in (".mp4", ".gif") or path.name.startswith("."):
                continue
            if not begun:
                self.written.section("Videos")
                begun = True
            size, name = path.stat().st_size, path.relative_to(self.run).as_posix()
            if size <= min(LARGEST_VIDEO, left):
                left -= size
                text = f"Case {path.stem} of {path.parent.parent.name}, filmed"
                self.written.picture(path, text)
            else:
                self.written.text(f"{name} is too large to be shown here ({size / 1e6:.1f} MB).", quiet=True)

    def repetition(self) -> None:
        """The commands that make all of it again."""
        run, env = self.run, self.env
        lines = [explore_command(run, env, settings) for _, settings in self.stages("explore")]
        lines += [model_command(run, env, settings, at.name) for at, settings in self.stages("models/*")]
        lines += [train_command(run, env, settings, at.name) for at, settings in self.stages("values/*")]
        lines += [
            evaluate_command(run, env, settings, at.name) for at, settings in self.stages("evaluations/*")
        ]
        for path in sorted(run.glob("diagnosis/*/diagnosis.json")):
            lines.append(diagnose_command(run, env, read_json(path)["settings"], path.parent.name))
        self.written.section("To repeat it")
        self.written.commands([*lines, shlex.join(["curioplan", "report", str(run)])])

    def _picture(self, path: Path, text: str) -> None:
        if path.is_file():
            self.written.picture(path, text)

    def _charts(self, lines: list[dict[str, Any]], xlabel: str) -> None:
        """Charts of all metrics but those that are measured rather than minimised."""
        charts: dict[str, dict[str, list[tuple[float, float]]]] = {}
        for line in lines:
            for key, value in line.items():
                before, _, after = key.rpartition("/")
                title, series = (after, before) if before.startswith("seed-") else (before or after, after)
                number = isinstance(value, int | float) and not isinstance(value, bool)
                if number and title not in ("step", "episode") and not MEASURED.match(title):
                    points = charts.setdefault(title, {}).setdefault(series, [])
                    points.append((float(line["step"]), float(value)))
        if charts:
            self.written.charts({title.replace("_", " "): series for title, series in charts.items()}, xlabel)


def draw_evaluation(
    run: Path, task: Task, folder: Path, config: EvaluateConfig
) -> Iterator[tuple[Path, str]]:
    """Draw a trajectory of an evaluation on its values, and its graph where it used one; what each shows.

    The first that failed is shown, since it tells where values trap, or else the first.
    """
    plan = task.floor_plan
    assert plan is not None
    outcomes = load_outcomes(folder)
    shown: Outcome = next((outcome for outcome in outcomes if not outcome.success), outcomes[0])
    parts = Parts(run, task, config.reach, config.algo, config.seed, config.values, config.model)
    values, start = parts.values(), shown.observations[0]
    ended = "reaches it" if shown.success else "does not reach it"
    steps = steps_over_map(values.value, task, plan, replace(shown.case, goal=shown.goal), values.gamma)
    way, traps = shown.observations[:, :2].numpy(), find_traps(parts, folder.name, shown)
    trapped_figure(steps, plan, shown.goal, way, folder / "landscape.png", way[traps])
    text = f"Steps to the goal {shown.case.name} by the values; a trajectory of {folder.name}, which {ended}"
    yield folder / "landscape.png", text + ("; crosses: T-local optima too deep to escape" if traps else "")
    if config.controller in GRAPHS:
        sampling = "uniform" if config.controller.endswith("uniform") else config.reach.graph.sampling
        graph = replace(config.reach.graph, sampling=sampling)
        seen = OverGraph(parts, values, graph, shown.goal).view(start)
        graph_figure(
            plan,
            seen.vertices[:, :2],
            seen.lengths,
            seen.threshold,
            seen.path,
            seen.remaining,
            start.tolist(),
            shown.goal,
            folder / "graph.png",
        )
        text = f"The graph of {folder.name} and its way to the goal {shown.case.name}, over edges it trusts"
        yield folder / "graph.png", text


def find_traps(parts: Parts, evaluation: str, shown: Outcome) -> list[int]:
    """The steps of an episode at which a diagnosis of its values found optima too deep to escape, if any."""
    values = parts.values_path().parent.name
    for path in sorted(parts.run.glob("diagnosis/*/diagnosis.json")):
        found = read_json(path)
        if (found["values"], found["settings"]["seed"]) == (values, parts.seed):
            for episode in found.get("trajectories", {}).get("episodes", []):
                known = episode["evaluation"], episode["case"], episode["seed"]
                if known == (evaluation, shown.case.name, shown.seed):
                    return [step for step in episode.get("traps", []) if step < len(shown.observations)]
    return []


def _result(folder: Path) -> dict[str, Any] | None:
    path = folder / "result.json"
    found: dict[str, Any] | None = read_json(path) if path.is_file() else None
    return found


def _cases(result: Mapping[str, Any]) -> Iterator[list[str]]:
    """A row per case: how often it was reached, in how many steps, and on how long a way, on average."""
    cases: dict[str, list[dict[str, Any]]] = {}
    for entry in result["cases"]:
        cases.setdefault(entry["case"], []).append(entry)
    for name, entries in cases.items():
        reached = [entry["steps"] for entry in entries if entry["success"]]
        steps = f"{sum(reached) / len(reached):.0f}" if reached else "–"
        length = sum(entry["path_length"] for entry in entries) / len(entries)
        yield [name, f"{len(reached)}/{len(entries)}", steps, f"{length:.2f}"]


def _estimate(interval: Mapping[str, float] | None) -> str:
    if interval is None:
        return "–"
    text = f"{interval['estimate']:.3f}"
    return text if interval["runs"] < 2 else f"{text} [{interval['low']:.3f}, {interval['high']:.3f}]"


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Settings by dotted names, as text."""
    found: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = str(value)
    return found
