"""Figures of success: bars and curves with intervals, and how fast explorers cover a space.

Results are nested mappings of plain numbers, the outermost a panel each, usually an environment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from curioplan.analysis.statistics import Interval
from curioplan.analysis.style import COLOURS, house_style, new_figure, save_figure
from curioplan.errors import DataError

Bars = Mapping[str, Mapping[str, Mapping[str, Interval]]]
"""Success by panel, group of bars, and series: environment, learner and controller, for instance."""
Curves = Mapping[str, Mapping[str, Mapping[float, Interval]]]
"""Success by panel, series, and number on the horizontal axis."""

MARKERS = "os^Dv*PX"
QUIET = "#8C8C8C"
BAND = 0.18  # opacity of intervals around curves
ACROSS = 4  # panels side by side, at most
COLUMN = 3.4  # inches of width of a column, which a figure fills at least
BAR = 0.26  # inches of width for each bar


def success_bars(
    results: Bars, path: Path, *, line: Mapping[str, float] | None = None, line_label: str = ""
) -> None:
    """Draw success rates as bars with their intervals, as PNG and PDF.

    With learners as groups and controllers as series it shows actors against planning; with one unnamed
    group it shows a method against its parts, graph methods, or POLO.

    Args:
        results: What to draw; groups may lack some series.
        path: Where the figure goes.
        line: A success rate per panel to compare with, drawn as a dashed line.
        line_label: What the line is.
    """
    series = _series([list(group) for groups in results.values() for group in groups.values()])
    bars = max(sum(len(group) for group in groups.values()) + len(groups) for groups in results.values())
    width = max(COLUMN / min(len(results), ACROSS), 1.6, 0.5 + BAR * bars)
    figure, panels = _panels(len(results), width, 2.4)
    with house_style():
        for axes, (name, groups) in zip(panels, results.items(), strict=False):
            for place, group in enumerate(groups.values()):
                _draw_group(axes, place, group, series)
            if line is not None and name in line:
                axes.axhline(line[name], color=COLOURS[6], linewidth=1.2, linestyle=(0, (4, 2)))
            names = list(groups)
            axes.set_xticks(range(len(names)), names)
            axes.tick_params(axis="x", length=0)
            axes.set(title=name, ylim=(0, 1.02), xlim=(-0.55, len(names) - 0.45))
        entries = [(key, {"color": COLOURS[series[key] % len(COLOURS)], "linewidth": 6}) for key in series]
        if line:
            entries.append((line_label, {"color": COLOURS[6], "linestyle": (0, (4, 2)), "linewidth": 1.2}))
        _finish(figure, panels, len(results), entries)
    save_figure(figure, path)


def success_curves(results: Curves, path: Path, xlabel: str) -> None:
    """Draw success rates over a number, with their intervals as bands, as PNG and PDF.

    Over the amount of data it shows sample efficiency; over the share of other data, data mixtures.

    Args:
        results: What to draw.
        path: Where the figure goes.
        xlabel: What the number is.
    """
    series = _series([list(curves) for curves in results.values()])
    figure, panels = _panels(len(results), COLUMN if len(results) == 1 else 2.2, 2.3)
    with house_style():
        for axes, (name, curves) in zip(panels, results.items(), strict=False):
            for key, points in curves.items():
                number = series[key]
                xs = sorted(points)
                low, middle, high = (
                    [getattr(points[x], part) for x in xs] for part in ("low", "estimate", "high")
                )
                colour = COLOURS[number % len(COLOURS)]
                axes.fill_between(xs, low, high, color=colour, alpha=BAND, linewidth=0)
                axes.plot(xs, middle, marker=MARKERS[number % len(MARKERS)], markersize=4, color=colour)
            axes.set(title=name, ylim=(-0.02, 1.02), xlabel=xlabel)
            axes.grid(axis="y", color="#E4E4E0", linewidth=0.6)
        entries = [(key, _marked(number)) for key, number in series.items()]
        _finish(figure, panels, len(results), entries)
    save_figure(figure, path)


def coverage_curves(
    curves: Mapping[str, Sequence[tuple[NDArray[np.integer], NDArray[np.integer]]]],
    path: Path,
    unit: str,
    total: int | None = None,
) -> None:
    """Draw how much explorers have visited over their steps: runs thin, their mean bold, as PNG and PDF.

    Args:
        curves: For every explorer its runs, each the steps at which something new was visited and how much
            had been by then, as `coverage_over_steps` gives them.
        path: Where the figure goes.
        unit: What is counted.
        total: How many there are.
    """
    if not any(curves.values()):
        raise DataError("There are no explorations to compare.")
    figure, (axes,) = new_figure(width=3.4, height=2.6)
    with house_style():
        for number, (name, runs) in enumerate(curves.items()):
            colour, longest = COLOURS[number % len(COLOURS)], max(int(steps[-1]) for steps, _ in runs)
            grid = np.linspace(0, longest, 200)
            heights = [
                np.append(0, counts)[np.searchsorted(steps, grid, side="right")] for steps, counts in runs
            ]
            for height in heights if len(runs) > 1 else []:
                axes.step(grid / 1000, height, where="post", color=colour, linewidth=0.6, alpha=0.5)
            axes.step(grid / 1000, np.mean(heights, 0), where="post", color=colour, linewidth=1.8, label=name)
        label = f"visited {unit}"
        if total is not None:
            axes.axhline(total, color=QUIET, linewidth=0.8, linestyle="--")
            label += f", of {total}"
        axes.set(title=label, xlabel="thousand steps", ylim=(0, None), xlim=(0, None))
        figure.legend(loc="outside lower center", ncols=3, handlelength=1.4)
    save_figure(figure, path)


def _series(names: Sequence[Sequence[str]]) -> dict[str, int]:
    """Every series with its number, in the order of first appearance."""
    found = list(dict.fromkeys(name for some in names for name in some))
    if not found:
        raise DataError("There are no results to draw.")
    return {name: number for number, name in enumerate(found)}


def _panels(count: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """Axes for panels that share their vertical axis, in rows where there are many."""
    across = min(count, ACROSS)
    figure, axes = new_figure(across, -(-count // across), width, height)
    for panel in axes[count:]:
        panel.set_visible(False)
    for number, panel in enumerate(axes[:count]):
        if number % across:
            panel.tick_params(labelleft=False)
    return figure, axes


def _draw_group(axes: Axes, place: int, group: Mapping[str, Interval], series: dict[str, int]) -> None:
    """Bars side by side around a place, each with its interval."""
    width = 0.84 / max(1, len(group))
    for index, (name, found) in enumerate(group.items()):
        x = place + (index - (len(group) - 1) / 2) * width
        axes.bar(x, found.estimate, 0.88 * width, color=COLOURS[series[name] % len(COLOURS)])
        axes.plot([x, x], [found.low, found.high], color="black", linewidth=1.1, solid_capstyle="butt")
        if found.estimate < 0.004:  # so that nothing reached is not mistaken for nothing measured
            axes.plot(
                [x - 0.4 * width, x + 0.4 * width],
                [0.004, 0.004],
                color=COLOURS[series[name] % len(COLOURS)],
                linewidth=2,
            )


def _marked(number: int) -> dict[str, object]:
    return {
        "color": COLOURS[number % len(COLOURS)],
        "marker": MARKERS[number % len(MARKERS)],
        "markersize": 4,
    }


def _finish(
    figure: Figure, panels: Sequence[Axes], count: int, entries: Sequence[tuple[str, dict[str, object]]]
) -> None:
    """The label of the vertical axis, and one legend for all panels."""
    for number in range(0, count, ACROSS):
        panels[number].set_ylabel("success rate")
    named = [(name, look) for name, look in entries if name]
    handles = [Line2D([], [], **look) for _, look in named]  # type: ignore[arg-type]
    inches, widths = figure.get_figwidth(), [0.5 + 0.066 * len(name) for name, _ in named]
    columns = len(named) if sum(widths) <= inches else max(1, int(inches / max(widths)))
    figure.set_figheight(figure.get_figheight() + 0.17 * (-(-len(named) // columns) - 1))
    figure.legend(
        handles,
        [name for name, _ in named],
        loc="outside lower center",
        ncols=columns,
        handlelength=1.4,
        columnspacing=1.2,
    )
