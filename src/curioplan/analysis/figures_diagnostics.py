"""Figures of a diagnosis: what happens along successes and failures, and how accurate values are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from curioplan.analysis.figures_maps import AlongPath, draw_along
from curioplan.analysis.style import COLOURS, house_style, new_figure, save_figure
from curioplan.errors import DataError

ACROSS = 4  # panels side by side, at most
OUTCOMES = ("successes", "failures")
LOOKS = {"successes": ("o", COLOURS[2]), "failures": ("X", COLOURS[1])}


def outcomes_figure(measures: Mapping[str, Mapping[str, Sequence[float] | NDArray[Any]]], path: Path) -> None:
    """Draw shares along successful and failed trajectories: each a point, a bar at the median, PNG and PDF.

    Args:
        measures: By measure, such as T-local optima and non-monotonicity, a panel each; then by outcome,
            "successes" and "failures": one share per trajectory, in [0, 1].
        path: Where the figure goes.
    """
    if not any(len(shares) for groups in measures.values() for shares in groups.values()):
        raise DataError("There are no trajectories to draw.")
    figure, panels = new_figure(len(measures), 1, 2.0, 2.3)
    with house_style():
        for axes, (name, groups) in zip(panels, measures.items(), strict=True):
            for place, outcome in enumerate(OUTCOMES):
                _draw_shares(axes, place, outcome, np.asarray(groups.get(outcome, []), np.float64))
            labels = [f"{outcome}\n({len(groups.get(outcome, []))})" for outcome in OUTCOMES]
            axes.set_xticks(range(len(OUTCOMES)), labels)
            axes.set(title=name, xlim=(-0.6, 1.6))
            top = max((float(np.max(shares)) for shares in groups.values() if len(shares)), default=0)
            axes.set_ylim(-0.04 * max(top, 0.05), 1.15 * max(top, 0.05))
        panels[0].set_ylabel("share of the states")
    save_figure(figure, path)


def accuracy_figure(cases: Mapping[str, AlongPath], path: Path) -> None:
    """Draw values along optimal trajectories against what they should be, a panel per case, PNG and PDF."""
    if not cases:
        raise DataError("There are no trajectories to draw.")
    across = min(len(cases), ACROSS)
    figure, panels = new_figure(across, -(-len(cases) // across), 2.3, 2.2)
    with house_style():
        for axes, (name, along) in zip(panels, cases.items(), strict=False):
            draw_along(axes, along)
            axes.set_title(f"goal {name}")
        for number, axes in enumerate(panels):
            axes.set_visible(number < len(cases))
            if number % across:
                axes.set_ylabel("")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, handlelength=1.5)
    save_figure(figure, path)


def _draw_shares(axes: Axes, place: int, outcome: str, shares: NDArray[np.float64]) -> None:
    """Points side by side, so that equal ones are seen, and a bar at their median."""
    if not len(shares):
        return
    marker, colour = LOOKS[outcome]
    apart = np.zeros(len(shares))
    order = np.argsort(shares, kind="stable")
    width = min(0.28, 0.04 * len(shares))
    apart[order] = width * np.cos(np.arange(len(shares)) * np.pi * (3 - np.sqrt(5)) * 2)
    apart = apart if len(shares) > 1 else np.zeros(1)
    axes.plot(place + apart, shares, marker, color=colour, markersize=5.5, alpha=0.75, markeredgewidth=0)
    axes.plot([place - 0.35, place + 0.35], [np.median(shares)] * 2, color="black", linewidth=1.6)
