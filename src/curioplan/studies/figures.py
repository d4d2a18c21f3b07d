"""The figures of studies, of the paper's kind, from whatever has finished."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from curioplan.analysis.exploration import coverage_over_steps
from curioplan.analysis.figures import coverage_curves, success_bars, success_curves
from curioplan.analysis.figures_diagnostics import OUTCOMES, outcomes_figure
from curioplan.analysis.figures_maps import occupancy_figure
from curioplan.analysis.statistics import Interval
from curioplan.data import TrajectoryStore, load
from curioplan.errors import CurioplanError
from curioplan.studies.arguments import folders
from curioplan.studies.estimates import task_of
from curioplan.studies.tables import Cell, Table
from curioplan.studies.workbench import Mark, Study, label_of

log = logging.getLogger(__name__)

SPARSE = "MBP+Sparse"  # a line to compare with, as in the paper
OPTIMA = {
    "deep": "optima",
    "optima": "optima-of-any-depth",
    "non_monotonicity": "non-monotonicity",
}
"""What is measured along trajectories, with the names of its figures."""


def draw(study: Study, table: Table, folder: Path) -> None:
    """Draw the figures of a study into the study folder, as PNG and PDF, but for what has no result yet."""
    try:
        if study.name == "optima":
            draw_optima(study, folder)
        else:
            draw_success(study, table, folder / f"{study.name}.png")
        if study.name == "exploration":
            draw_explorations(study, folder)
    except CurioplanError as error:  # the numbers are there all the same
        log.warning("A figure of %s is not drawn: %s", study.name, error)


def draw_success(study: Study, table: Table, path: Path) -> None:
    """Bars of success rates or, where the horizontal axis has numbers, curves; a panel per environment."""
    bars: dict[str, dict[str, dict[str, Interval]]] = {}
    curves: dict[str, dict[str, dict[float, Interval]]] = {}
    line: dict[str, float] = {}
    marks = {entry.row: entry.mark or Mark(entry.row) for entry in study.entries}
    for row, cells in table.cells.items():
        mark = marks[row]
        for env, cell in cells.items():
            if not cell.scores:
                continue
            found, panel = _interval(table, cell), ", ".join(part for part in (env, mark.panel) if part)
            if row == SPARSE:
                line[env] = found.estimate
            elif mark.x is None:
                bars.setdefault(panel, {}).setdefault(mark.group, {})[mark.series] = found
            else:
                curves.setdefault(panel, {}).setdefault(mark.series, {})[mark.x] = found
    if bars:
        success_bars(bars, path, line=line or None, line_label=SPARSE)
    if curves:
        success_curves(curves, path, study.xlabel)


def draw_optima(study: Study, folder: Path) -> None:
    """Shares along successes and failures, a figure per measure with a panel per environment."""
    shares: dict[str, dict[str, dict[str, list[float]]]] = {measure: {} for measure in OPTIMA}
    for job, env in dict.fromkeys((entry.job, entry.env) for entry in study.entries):
        record = study.plan.record(folder, job)
        for measure, groups in (record["result"].get("shares", {}) if record else {}).items():
            panel = shares[measure].setdefault(env, {outcome: [] for outcome in OUTCOMES})
            for outcome, some in groups.items():
                panel[outcome] += some
    for measure, panels in shares.items():
        if any(some for groups in panels.values() for some in groups.values()):
            outcomes_figure(panels, folder / f"{OPTIMA[measure]}.png")


def draw_explorations(study: Study, folder: Path) -> None:
    """What explorers covered, a figure per environment: on its map, or else over their steps."""
    runs: dict[str, dict[str, list[Path]]] = {}
    for entry in study.entries:
        [run] = folders(study.plan.jobs[entry.job].arguments)
        data = folder / run / "explore" / "data"
        if data.is_dir():  # exploration leaves it at its end
            name = entry.mark.series if entry.mark else entry.row
            some = runs.setdefault(entry.env, {}).setdefault(name, [])
            some += [data] if data not in some else []
    for env, explorers in runs.items():
        task, path = task_of(env), folder / f"{study.name}-{label_of(env)}.png"
        if task.floor_plan is not None:
            positions: dict[str, Any] = {
                name: load(some[0], task).observations[:, :2].numpy() for name, some in explorers.items()
            }
            occupancy_figure(positions, task.floor_plan, path)
        else:
            stores: dict[str, list[TrajectoryStore]] = {
                name: [load(each, task) for each in some] for name, some in explorers.items()
            }
            visited = {
                name: [coverage_over_steps(store, task)[:2] for store in some]
                for name, some in stores.items()
            }
            unit = coverage_over_steps(next(iter(stores.values()))[0], task)[2]
            total = task.coverage.total if task.coverage else None
            coverage_curves(visited, path, unit, total)


def _interval(table: Table, cell: Cell) -> Interval:
    return Interval(*table.interval(cell.scores), len(cell.scores))
