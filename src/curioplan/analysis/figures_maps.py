"""Figures on a map: where data lie, what values look like, where they trap, and ways over a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

from curioplan.analysis.landscape import FARTHEST, draw_steps, frame_of
from curioplan.analysis.style import COLOURS, draw_plan, house_style, new_figure, save_figure
from curioplan.envs.task import Floats, FloorPlan
from curioplan.errors import DataError

BINS = 4  # per cell and axis, of occupancy
EDGES = 4000  # drawn at most, the shortest first
WAY, GRAPH_WAY, START = "#FFFFFF", COLOURS[1], COLOURS[0]
Positions = NDArray[np.floating[Any]]
"""Positions ``(N, 2)``: x down and y to the right."""


def occupancy_figure(sources: Mapping[str, Positions], plan: FloorPlan, path: Path) -> None:
    """Draw how often data of several sources are where on a map, a panel each, as PNG and PDF.

    Args:
        sources: Positions of the states of each.
        plan: The map.
        path: Where the figure goes.
    """
    if not sources or not all(len(positions) for positions in sources.values()):
        raise DataError("There are no states whose place could be drawn.")
    shares = {name: _shares(positions, plan) for name, positions in sources.items()}
    least, most = 1e-6, max(float(share.max()) for share in shares.values())
    figure, panels = _map_figure(plan, len(sources), bar=True)
    with house_style():
        for axes, (name, share) in zip(panels, shares.items(), strict=True):
            draw_plan(axes, plan)
            image = axes.imshow(
                np.ma.masked_less_equal(share, 0),
                cmap="viridis",
                norm=LogNorm(max(least, most / 1e3), most, clip=True),
                extent=_extent(plan),
                interpolation="nearest",
            )
            visited = _cells(sources[name], plan)
            _frame(axes, plan, f"{name}: {visited} of {int(plan.free.sum())} cells")
        figure.colorbar(image, ax=panels, label="share of the states", aspect=14, pad=0.01)
    save_figure(figure, path)


def trapped_figure(
    steps: Floats,
    plan: FloorPlan,
    goal: Sequence[float],
    way: Positions,
    path: Path,
    optima: Positions | None = None,
) -> None:
    """Draw a value landscape with a trajectory on it, as PNG and PDF.

    Args:
        steps: Steps implied by the values over the map, as `steps_over_map` gives them.
        plan: The map.
        goal: The position of the goal.
        way: The positions of the trajectory.
        path: Where the figure goes.
        optima: Positions at which the values have a T-local optimum, marked if given.
    """
    figure, (axes,) = _map_figure(plan, 1, bar=True)
    with house_style():
        image = _draw_landscape(axes, steps, plan, goal, _scale([steps]))
        _draw_way(axes, way)
        if optima is not None and len(optima):
            axes.plot(optima[:, 1], optima[:, 0], "x", color=COLOURS[1], markersize=6, markeredgewidth=1.8)
        _frame(axes, plan, "")
        figure.colorbar(image, ax=axes, label="implied steps to the goal", extend="max", pad=0.01)
    save_figure(figure, path)


@dataclass(frozen=True)
class AlongPath:
    """Values along a trajectory to a goal, in its order.

    Attributes:
        steps: True steps that remain at each state looked at.
        expected: What values should be there.
        values: What they are.
        aggregated: What they are over a graph, if there is one.
    """

    steps: Sequence[float]
    expected: Sequence[float]
    values: Sequence[float]
    aggregated: Sequence[float] | None = None


def aggregation_figure(
    landscapes: Mapping[str, Floats],
    plan: FloorPlan,
    goal: Sequence[float],
    way: Positions,
    along: AlongPath,
    path: Path,
) -> None:
    """Draw landscapes with and without aggregation, beside values along the optimal path, as PNG and PDF.

    Args:
        landscapes: Steps over the map, by what is shown.
        plan: The map.
        goal: The position of the goal.
        way: The optimal path, drawn on each.
        along: Values along it.
        path: Where the figure goes.
    """
    scale = _scale(list(landscapes.values()))
    figure, panels = _map_figure(plan, len(landscapes) + 1, bar=True)
    with house_style():
        for axes, (name, steps) in zip(panels, landscapes.items(), strict=False):
            image = _draw_landscape(axes, steps, plan, goal, scale)
            _draw_way(axes, way)
            _frame(axes, plan, name)
        maps = panels[: len(landscapes)]
        figure.colorbar(image, ax=maps, label="implied steps to the goal", extend="max", aspect=14, pad=0.01)
        draw_along(panels[-1], along)
        panels[-1].set_title("along the optimal path")
        panels[-1].legend(loc="best", handlelength=1.5)
    save_figure(figure, path)


def draw_along(axes: Axes, along: AlongPath) -> None:
    """Draw values along a path against the steps that remain, the goal to the right."""
    axes.plot(along.steps, along.expected, "--", color=COLOURS[6], linewidth=1.2, label="true")
    axes.plot(along.steps, along.values, color=COLOURS[1], linewidth=1.4, label=r"$\hat{V}$")
    if along.aggregated is not None:
        axes.plot(along.steps, along.aggregated, color=COLOURS[0], linewidth=1.4, label=r"$\bar{V}$")
    axes.set(xlabel="steps to the goal", ylabel="value", ylim=(-0.02, 1.04))
    axes.set_xlim(max(along.steps), 0)


def graph_figure(
    plan: FloorPlan,
    vertices: Positions,
    lengths: Floats,
    threshold: float,
    chosen: Sequence[int],
    remaining: Floats,
    start: Sequence[float],
    goal: Sequence[float],
    path: Path,
) -> None:
    """Draw a graph over the map with the way it chooses, as PNG and PDF.

    Args:
        plan: The map.
        vertices: Positions of the vertices.
        lengths: Lengths of the edges between them ``(n, n)``.
        threshold: Longer edges are left out.
        chosen: The vertices on the way.
        remaining: Length of the way from each vertex to the goal, infinite where there is none.
        start: Where the way begins.
        goal: Where it ends.
        path: Where the figure goes.
    """
    figure, (axes,) = _map_figure(plan, 1, bar=True)
    with house_style():
        draw_plan(axes, plan)
        _draw_edges(axes, vertices, lengths, threshold)
        connected = np.isfinite(remaining)
        axes.plot(vertices[~connected, 1], vertices[~connected, 0], ".", color="#B4B4B4", markersize=2.5)
        reached = remaining[connected]
        top = float(reached.max()) if len(reached) else 1.0
        points = axes.scatter(
            vertices[connected, 1],
            vertices[connected, 0],
            c=reached,
            cmap="viridis_r",
            norm=Normalize(0, max(top, 1.0)),
            s=7,
            linewidths=0,
            zorder=2,
        )
        way = np.array([tuple(start[:2]), *vertices[list(chosen)].tolist(), tuple(goal[:2])])
        axes.plot(way[:, 1], way[:, 0], color="white", linewidth=3.6, zorder=3)
        axes.plot(way[:, 1], way[:, 0], "o-", color=GRAPH_WAY, linewidth=1.8, markersize=3, zorder=4)
        axes.plot(way[0, 1], way[0, 0], "o", color=START, markeredgecolor="white", markersize=7, zorder=5)
        _draw_goal(axes, goal)
        _frame(axes, plan, f"edges up to {threshold:.0f} steps")
        figure.colorbar(points, ax=axes, label="steps left over the graph", pad=0.01)
    save_figure(figure, path)


def _draw_edges(axes: Axes, vertices: Positions, lengths: Floats, threshold: float) -> None:
    starts, ends = np.nonzero((lengths <= threshold) & ~np.eye(len(vertices), dtype=np.bool_))
    order = np.argsort(lengths[starts, ends], kind="stable")[:EDGES]
    segments = np.stack([vertices[starts[order]], vertices[ends[order]]], 1)[..., ::-1]
    lines = LineCollection(
        list(segments), colors="#7A8694", linewidths=0.35, alpha=0.35, rasterized=True, zorder=1
    )
    axes.add_collection(lines)


def _map_figure(plan: FloorPlan, panels: int, *, bar: bool) -> tuple[Figure, list[Axes]]:
    """Panels of the size of a map, with room for a colour bar."""
    left, right, bottom, top = frame_of(plan)
    width = (3.2 if panels == 1 else 2.4) if right - left > 6 else 2.3
    height = width * (bottom - top) / (right - left) + 0.25
    figure, axes = new_figure(panels, 1, width, max(height, 1.9))
    figure.set_figwidth(panels * width + (0.75 if bar else 0))
    return figure, axes


def _frame(axes: Axes, plan: FloorPlan, title: str) -> None:
    left, right, bottom, top = frame_of(plan)
    axes.set(title=title, xlim=(left, right), ylim=(bottom, top))


def _draw_landscape(
    axes: Axes, steps: Floats, plan: FloorPlan, goal: Sequence[float], scale: Normalize
) -> Any:
    draw_plan(axes, plan)
    image = draw_steps(axes, plan, steps, scale)
    _draw_goal(axes, goal)
    return image


def _draw_goal(axes: Axes, goal: Sequence[float]) -> None:
    axes.plot(goal[1], goal[0], "*", color="white", markeredgecolor="black", markersize=11, zorder=6)


def _draw_way(axes: Axes, way: Positions) -> None:
    """A white line with a dark rim, a dot where it begins and a ring where it ends."""
    axes.plot(way[:, 1], way[:, 0], color="black", linewidth=2.2)
    axes.plot(way[:, 1], way[:, 0], color=WAY, linewidth=1.2)
    axes.plot(way[0, 1], way[0, 0], "o", color=START, markeredgecolor="white", markersize=6)
    axes.plot(way[-1, 1], way[-1, 0], "o", color="white", markeredgecolor="black", markersize=4.5)


def _scale(maps: Sequence[Floats]) -> Normalize:
    known = np.concatenate([steps[np.isfinite(steps)] for steps in maps])
    nearest, farthest = np.quantile(known, [0, FARTHEST])
    return Normalize(float(nearest), max(float(farthest), float(nearest) + 10))


def _extent(plan: FloorPlan) -> tuple[float, float, float, float]:
    rows, columns = plan.free.shape
    edge = 0.5 + plan.offset
    return -edge, columns - edge, rows - edge, -edge


def _shares(positions: Positions, plan: FloorPlan) -> Floats:
    """The share of the positions in every bin of the map."""
    sizes = [size * BINS for size in plan.free.shape]
    bins = np.floor((np.asarray(positions, np.float64) + plan.offset + 0.5) * BINS).astype(np.int64)
    bins = np.clip(bins, 0, np.array(sizes) - 1)
    counts = np.zeros(sizes)
    np.add.at(counts, tuple(bins.T), 1)
    return counts / len(positions)


def _cells(positions: Positions, plan: FloorPlan) -> int:
    """How many free cells hold some of the positions."""
    cells = np.round(np.asarray(positions, np.float64) + plan.offset).astype(np.int64)
    cells = np.unique(np.clip(cells, 0, np.array(plan.free.shape) - 1), axis=0)
    return int(plan.free[tuple(cells.T)].sum())
