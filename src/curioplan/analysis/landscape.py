"""Pictures of a value function: over the map where there is one, else against the steps in the data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.image import AxesImage
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter
from scipy.ndimage import distance_transform_edt

from curioplan.analysis.style import COLOURS, draw_plan, house_style, new_figure, save_figure
from curioplan.analysis.values import (
    ValueFunction,
    evaluate,
    expected_value,
    implied_steps,
    lagged_values,
    random_values,
)
from curioplan.data import TrajectoryStore
from curioplan.envs.task import Case, Floats, FloorPlan, Task
from curioplan.errors import DataError

PANELS = 4  # at most, of the task's cases
PER_CELL = 10  # points per cell and axis at which values are asked for
FARTHEST = 0.98  # share of the free points whose steps the colours tell apart
CONTOURS = 12  # about as many lines of equal steps
LAGS = 12  # at most as many numbers of steps at which values are compared with the data
PAIRS = 1000  # pairs of states at each
LOWEST = 1e-4  # where the axis of values ends
QUARTILES = (0.25, 0.5, 0.75)
RIM = 0.25  # of wall around the free cells, in cells
WALL = "#5B6470"


def landscape_figure(
    value: ValueFunction,
    task: Task,
    path: Path,
    *,
    goals: Sequence[Sequence[float]] | None = None,
    store: TrajectoryStore | None = None,
    gamma: float | None = None,
) -> None:
    """Draw a value function, as PNG and PDF.

    On a map, a panel per goal shows the steps log_γ V to it from every free position, all else being as at
    the start of the case, or zero. Without a map, the values of what the data reach some steps later are
    drawn against the number of steps, beside those of random goals.

    Args:
        value: The value function.
        task: Its task.
        path: Where the figure goes.
        goals: The goals of the panels; by default those of the task's cases, or four of them.
        store: The data, needed where the task has no map.
        gamma: The discount factor of the values; by default the task's.
    """
    gamma = gamma or task.gamma
    if task.floor_plan is not None:
        _map_figure(value, task, task.floor_plan, path, _chosen(task, goals), gamma)
    elif store is not None:
        _lag_figure(value, task, path, store, gamma)
    else:
        raise DataError(f"{task.name} has no map to draw values on; drawing them takes data.")


def steps_over_map(
    value: ValueFunction, task: Task, plan: FloorPlan, case: Case, gamma: float, per_cell: int = PER_CELL
) -> Floats:
    """The steps log_γ V to the goal of a case from points of the map, row by row; NaN in walls."""
    free = np.kron(plan.free, np.ones((per_cell, per_cell), np.bool_))
    states = torch.zeros(int(free.sum()), task.observation_dim)
    if case.state is not None:
        states[:] = torch.tensor(case.state)
    states[:, :2] = torch.from_numpy((np.argwhere(free) + 0.5) / per_cell - 0.5 - plan.offset)
    steps = np.full(free.shape, np.nan)
    steps[free] = implied_steps(evaluate(value, states, torch.tensor(case.goal)), gamma)
    return steps


def _chosen(task: Task, goals: Sequence[Sequence[float]] | None) -> list[Case]:
    """The cases to draw: some of the task's, or the given goals from the start of its first."""
    if goals is None:
        known = [case for case in task.cases if case.goal is not None]
        chosen = known[:: -(-len(known) // PANELS) or 1]
    else:
        state = task.cases[0].state if task.cases else None
        named = [(", ".join(f"{x:g}" for x in goal), tuple(map(float, goal))) for goal in goals]
        chosen = [Case(f"({name})", goal, state) for name, goal in named]
    if not chosen:
        raise DataError(f"There are no goals of {task.name} to draw values for.")
    return chosen


def _map_figure(
    value: ValueFunction, task: Task, plan: FloorPlan, path: Path, cases: list[Case], gamma: float
) -> None:
    maps = [steps_over_map(value, task, plan, case, gamma) for case in cases]
    nearest, farthest = (float(np.nanquantile(maps, share)) for share in (0, FARTHEST))
    scale = Normalize(nearest, max(farthest, nearest + 10))
    left, right, bottom, top = frame_of(plan)
    width = 2.4 if right - left > 6 else 1.9
    across = min(len(cases), PANELS)
    height = width * (bottom - top) / (right - left) + 0.22  # and room for the title
    down = -(-len(cases) // across)
    figure, axes = new_figure(across, down, width, height)
    figure.set_figwidth(across * width + 0.7)  # and room for the colour bar
    with house_style():
        for panel, case, steps in zip(axes, cases, maps, strict=False):
            draw_plan(panel, plan)
            image = draw_steps(panel, plan, steps, scale)
            if task.goal_indices == (0, 1) and case.goal is not None:
                panel.plot(*case.goal[::-1], "*", color="white", markeredgecolor="black", markersize=9)
            panel.set(title=f"goal {case.name}", xlim=(left, right), ylim=(bottom, top))
        for panel in axes[len(cases) :]:
            panel.set_visible(False)
        label = "implied steps to the goal"
        figure.colorbar(image, ax=axes, label=label, extend="max", aspect=14 * down, pad=0.01)
    save_figure(figure, path)


def frame_of(plan: FloorPlan) -> tuple[float, float, float, float]:
    """Left, right, bottom and top of what there is to see: the free cells and a rim of wall."""
    rows, columns = (np.flatnonzero(plan.free.any(axis)) for axis in (1, 0))
    low, high = plan.offset + 0.5 + RIM, plan.offset - 0.5 - RIM
    return columns[0] - low, columns[-1] - high, rows[-1] - high, rows[0] - low


def draw_steps(axes: Axes, plan: FloorPlan, steps: Floats, scale: Normalize) -> AxesImage:
    """A heat map between the walls, few steps bright, with lines of equal steps."""
    rows, columns = plan.free.shape
    edge = 0.5 + plan.offset
    extent = (-edge, columns - edge, rows - edge, -edge)
    # Walls take the colours beside them and are drawn over them: so there are no seams where colours blend.
    beside = distance_transform_edt(np.isnan(steps), return_distances=False, return_indices=True)
    image = axes.imshow(
        steps[tuple(beside)], cmap="viridis_r", norm=scale, extent=extent, interpolation="bilinear"
    )
    low, high = np.nanmin(steps), np.nanmax(steps)
    levels = MaxNLocator(CONTOURS).tick_values(*scale.inverse(np.array([0.0, 1.0])))
    levels = [level for level in levels if low < level < high]
    if levels:
        y, x = ((np.arange(size) + 0.5) / PER_CELL - edge for size in steps.shape)
        axes.contour(x, y, np.ma.masked_invalid(steps), levels, colors="white", linewidths=0.5, alpha=0.7)
    walls = np.ma.masked_where(plan.free, np.zeros(plan.free.shape))
    axes.imshow(walls, cmap=ListedColormap([WALL]), extent=extent)
    return image


def _lag_figure(value: ValueFunction, task: Task, path: Path, store: TrajectoryStore, gamma: float) -> None:
    generator = torch.Generator().manual_seed(0)
    random = np.quantile(np.fmax(random_values(value, store, PAIRS, generator), LOWEST), QUARTILES)
    longest = int(store.episode_lengths.max())
    lags = np.unique(np.geomspace(1, longest, LAGS).round().astype(np.int64))
    later = np.stack([lagged_values(value, store, int(lag), PAIRS, generator) for lag in lags])
    low, middle, high = np.quantile(np.fmax(later, LOWEST), QUARTILES, axis=1)
    bound = expected_value(lags, gamma)
    figure, (axes,) = new_figure(width=3.6, height=2.8)
    with house_style():
        axes.fill_between(lags, low, high, color=COLOURS[0], alpha=0.25, linewidth=0)
        axes.plot(lags, middle, "o-", color=COLOURS[0], markersize=3, label="later states")
        axes.axhspan(random[0], random[2], color=COLOURS[1], alpha=0.2, linewidth=0)
        axes.axhline(random[1], color=COLOURS[1], label="random goals")
        axes.plot(lags, bound, "--", color=COLOURS[6], linewidth=1, label=r"$\gamma^{\,\mathrm{steps}-1}$")
        lowest = max(LOWEST, min(low.min(), random[0], bound[-1]))
        axes.set(yscale="log", ylim=(0.7 * lowest, 1.2), xlim=(0, longest))
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set(title=f"values in {task.name}, median and quartiles", xlabel="steps ahead", ylabel="value")
        figure.legend(loc="outside lower center", ncols=3, handlelength=1.5, columnspacing=1.2)
    save_figure(figure, path)
