"""Tables of a study from whatever has finished, with the paper's figures beside ours."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from curioplan.analysis.statistics import mean_interval
from curioplan.analysis.style import COLOURS, house_style, new_figure, save_figure
from curioplan.errors import RunError
from curioplan.storage import write_atomic
from curioplan.studies import paper
from curioplan.studies.workbench import Entry, Study

Interval = Callable[[Sequence[float]], tuple[float, float, float]]
"""Mean, and lower and upper end of its interval, of the scores of several runs."""
NOTHING = "–"


class Cell(NamedTuple):
    """What is known of a method in an environment.

    Attributes:
        scores: The success rate of every run that has finished.
        planned: How many runs there will be.
        published: What the paper reports.
    """

    scores: list[float]
    planned: int
    published: paper.Published | None


@dataclass(frozen=True)
class Table:
    """The cells of a study, by method and environment.

    Attributes:
        title: What the table shows.
        cells: Row by row.
        interval: Mean and interval of scores.
        counted: What scores are.
    """

    title: str
    cells: dict[str, dict[str, Cell]]
    interval: Interval
    counted: str = "success"

    @property
    def envs(self) -> list[str]:
        """The columns."""
        return list(dict.fromkeys(env for row in self.cells.values() for env in row))

    def rows(self) -> list[list[str]]:
        """Heading and rows of text: for every environment our figure, the number of runs, and the paper's."""
        heading = [""] + [text for env in self.envs for text in (env, "runs", "paper")]
        body = []
        for name, row in self.cells.items():
            texts = [name]
            for env in self.envs:
                texts += self._texts(row[env]) if env in row else [NOTHING, "", ""]
            body.append(texts)
        return [heading, *body]

    def _texts(self, cell: Cell) -> list[str]:
        ours = _figure(*self.interval(cell.scores)) if cell.scores else NOTHING
        return [
            ours,
            f"{len(cell.scores)}/{cell.planned}",
            _figure(*cell.published) if cell.published else "",
        ]

    def text(self) -> str:
        """The table for a terminal."""
        rows = self.rows()
        widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
        lines = [
            "  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)) for row in rows
        ]
        return "\n".join([self.title, *(line.rstrip() for line in lines)])

    def markdown(self) -> str:
        """The table as Markdown."""
        heading, *body = (
            f"| {' | '.join(text.replace('|', chr(92) + '|') for text in row)} |" for row in self.rows()
        )
        note = (
            f"Mean {self.counted}, with 90 % bootstrap intervals, and how many of the planned runs have "
            f"finished; {NOTHING} where none has. Blank where the paper gives no figure."
        )
        return "\n".join(
            [f"# {self.title}", "", heading, "|---" * len(self.rows()[0]) + "|", *body, "", note, ""]
        )

    def csv(self) -> str:
        """One line per cell, in full precision."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(
            ["method", "env", "runs", "planned", "mean", "low", "high", "paper", "paper_low", "paper_high"]
        )
        for name, row in self.cells.items():
            for env, cell in row.items():
                ours = self.interval(cell.scores) if cell.scores else ("", "", "")
                writer.writerow([name, env, len(cell.scores), cell.planned, *ours, *(cell.published or ())])
        return file.getvalue()

    def save(self, folder: Path, name: str) -> None:
        """Write ``name.md`` and ``name.csv`` and, where the paper has figures, a picture of both."""
        write_atomic(folder / f"{name}.md", self.markdown().encode())
        write_atomic(folder / f"{name}.csv", self.csv().encode())
        if any(cell.published for row in self.cells.values() for cell in row.values()):
            self.draw(folder / f"{name}-beside-paper.png")

    def draw(self, path: Path) -> None:
        """Draw a panel per environment, methods from top to bottom, with the paper's figures below ours."""
        names = list(self.cells)
        figure, panels = new_figure(columns=len(self.envs), width=3.0, height=1.0 + 0.32 * len(names))
        with house_style():
            for axes, env in zip(panels, self.envs, strict=True):
                for place, name in enumerate(names):
                    cell = self.cells[name].get(env)
                    if cell and cell.scores:
                        _dot(axes, place - 0.12, self.interval(cell.scores), COLOURS[0], "o")
                    if cell and cell.published:
                        _dot(axes, place + 0.18, cell.published, COLOURS[-1], "D")
                axes.set(
                    title=env, xlim=(-0.03, 1.03), ylim=(len(names) - 0.5, -0.5), yticks=range(len(names))
                )
                axes.set_yticklabels(names if axes is panels[0] else [""] * len(names))
            figure.supxlabel("success (circles; diamonds: the paper)", fontsize=8)
        save_figure(figure, path)


def tabulate(study: Study, folder: Path, interval: Interval) -> Table:
    """The table of a study from the results in a study folder.

    Args:
        study: The study.
        folder: Where its jobs leave their results.
        interval: Mean and interval of the scores of several runs.

    Raises:
        RunError: A result is damaged, or has no success rate.
    """
    cells: dict[str, dict[str, Cell]] = {}
    for entry in study.entries:
        row = cells.setdefault(entry.row, {})
        published = paper.SUCCESS.get(study.published.get(entry.row, ""), {}).get(entry.env)
        cell = row.get(entry.env, Cell([], 0, published))
        record = study.plan.record(folder, entry.job)
        found = _score(record["result"], entry) if record else None
        scores = cell.scores if found is None else [*cell.scores, found]
        row[entry.env] = Cell(scores, cell.planned + 1, published)
    return Table(study.title, cells, interval, study.counted)


def bootstrap_interval(scores: Sequence[float]) -> tuple[float, float, float]:
    """The mean with its 90 % simple bootstrap interval: runs are drawn anew, with replacement."""
    found = mean_interval(np.array(scores, float)[:, None], np.random.default_rng(0))
    return found.estimate, found.low, found.high


def _dot(
    axes: Axes, place: float, figure: tuple[float, float | None, float | None], colour: str, marker: str
) -> None:
    """A mean with its interval, where there is one."""
    mean, low, high = figure
    if low is not None and high is not None:
        axes.plot([low, high], [place, place], color=colour, linewidth=1.2)
    axes.plot([mean], [place], color=colour, marker=marker, markersize=4)


def _score(result: dict[str, object], entry: Entry) -> float | None:
    """A figure of a result; there may be none of what did not happen, such as successes."""
    score = result.get(entry.figure)
    if score is None and entry.figure in result and entry.figure != "success":
        return None
    if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
        what = "success rate" if entry.figure == "success" else entry.figure
        raise RunError(f"The result of {entry.job} has no {what} from 0 to 1.")
    return float(score)


def _figure(mean: float, low: float | None, high: float | None) -> str:
    return f"{mean:.3f}" if low is None or high is None else f"{mean:.3f} [{low:.3f}, {high:.3f}]"
