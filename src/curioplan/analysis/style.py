"""One visual language for all figures: colour-blind safe, quiet, readable at column width."""

from __future__ import annotations

import io
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

from curioplan.envs.task import FloorPlan
from curioplan.storage import write_atomic

# Okabe and Ito's palette, in the order in which series take them.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C8C8C")
STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.prop_cycle": cycler(color=COLOURS),
    "legend.frameon": False,
    "legend.fontsize": 8,
    "figure.dpi": 110,
    "savefig.dpi": 160,
    "svg.hashsalt": "curioplan",
}


def house_style() -> AbstractContextManager[None]:
    """What figures are drawn within, so that titles and legends follow the style too."""
    return matplotlib.rc_context(STYLE)


def new_figure(
    columns: int = 1, rows: int = 1, width: float = 3.4, height: float = 2.8
) -> tuple[Figure, list[Axes]]:
    """A figure and its axes, row by row, in the house style."""
    with house_style():
        figure = Figure(figsize=(columns * width, rows * height), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False)
    return figure, list(axes.flat)


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as PNG and, beside it, as PDF; the same figure gives the same bytes."""
    for suffix in (".png", ".pdf"):
        buffer = io.BytesIO()
        metadata = {"CreationDate": None} if suffix == ".pdf" else {"Software": None}
        with house_style():
            figure.savefig(buffer, format=suffix[1:], metadata=metadata)
        write_atomic(path.with_suffix(suffix), buffer.getvalue())


def draw_plan(axes: Axes, plan: FloorPlan) -> None:
    """Draw the walls of a map, rows downwards as in its text."""
    rows, columns = plan.free.shape
    extent = (-0.5 - plan.offset, columns - 0.5 - plan.offset, rows - 0.5 - plan.offset, -0.5 - plan.offset)
    axes.imshow(plan.free, cmap=ListedColormap(["#5B6470", "#F6F6F3"]), extent=extent, vmin=0, vmax=1)
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_visible(False)


def draw_paths(
    axes: Axes, paths: list[NDArray[Any]], colours: NDArray[Any], width: float = 0.5
) -> LineCollection:
    """Draw paths of positions (x down, y right), one number each to be coloured by."""
    lines = LineCollection(
        [path[:, ::-1] for path in paths],
        array=np.asarray(colours),
        cmap="viridis",
        linewidths=width,
        alpha=0.6,
        rasterized=True,
    )
    axes.add_collection(lines)
    return lines
