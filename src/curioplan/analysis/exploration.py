"""What an exploration reached: trajectories, coverage over steps, displaced objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from curioplan.analysis.style import draw_paths, draw_plan, house_style, new_figure, save_figure
from curioplan.data import TrajectoryStore, displacements, first_visits
from curioplan.envs.task import Task

MAX_EPISODES = 400  # drawn as lines; more would only blacken the picture
GRID = 20  # cells per goal dimension where the task defines no coverage
LEAST = 1e-2  # of a threshold, below which displacements are drawn alike
WINDOW = 0.05  # share of all episodes over which shares are averaged


def coverage_over_steps(store: TrajectoryStore, task: Task) -> tuple[NDArray[Any], NDArray[Any], str]:
    """Steps at which something new was visited, how much had been by then, and what was counted.

    Where the task defines no coverage, cells of a grid over the first two goal dimensions are counted.
    """
    if task.coverage is not None:
        index, unit = task.coverage.index(store.observations.numpy()), task.coverage.unit
    else:
        goals = store.achieved_goals.numpy()[:, :2].astype(np.float64)
        low, high = goals.min(0), goals.max(0)
        cell = np.minimum((goals - low) / np.maximum(high - low, 1e-9) * GRID, GRID - 1).astype(np.int64)
        index, unit = cell @ np.array([1, GRID][: cell.shape[1]]), f"cells of a {GRID}-grid of goals"
    first = first_visits(index)
    steps = first - store.episode_of.numpy()[first]  # a row more than transitions per earlier episode
    steps = np.append(steps, store.transitions)
    return steps, np.append(np.arange(1, len(first) + 1), len(first)), unit


def exploration_figure(store: TrajectoryStore, task: Task, path: Path) -> None:
    """Draw what was reached and when, as PNG and PDF."""
    figure, (left, right) = new_figure(columns=2, width=3.6, height=3.0)
    with house_style():
        if len(task.objects) > 1:
            _draw_displacements(left, store, task)
        else:
            _draw_trajectories(figure, left, store, task)
        if task.objects:
            _draw_shares(right, store, task)
        else:
            _draw_coverage(right, store, task)
    save_figure(figure, path)


def _draw_trajectories(figure: Figure, axes: Axes, store: TrajectoryStore, task: Task) -> None:
    """Positions where there is a map, otherwise the first two goal dimensions."""
    episodes = list(store)
    chosen = np.unique(np.linspace(0, len(episodes) - 1, min(MAX_EPISODES, len(episodes))).astype(int))
    ends = np.cumsum([len(episode.actions) for episode in episodes])
    if task.floor_plan is not None:
        draw_plan(axes, task.floor_plan)
        paths = [episodes[k].observations[:, :2] for k in chosen]
        axes.set_title(f"trajectories in {task.name}")
    else:
        goals = [episodes[k].achieved_goals for k in chosen]
        paths = [goal[:, :2] if goal.shape[1] > 1 else np.pad(goal, ((0, 0), (0, 1))) for goal in goals]
        axes.set(title=f"achieved goals in {task.name}", xlabel="goal[1]", ylabel="goal[0]")
    lines = draw_paths(axes, paths, ends[chosen] / 1000)
    if task.floor_plan is None:
        axes.autoscale_view()
    figure.colorbar(lines, ax=axes, label="thousand steps", shrink=0.8)


def _draw_coverage(axes: Axes, store: TrajectoryStore, task: Task) -> None:
    steps, count, unit = coverage_over_steps(store, task)
    axes.step(steps / 1000, count, where="post")
    if task.coverage is not None:
        axes.axhline(task.coverage.total, color="#8C8C8C", linewidth=0.8, linestyle="--")
        unit = f"{unit}, of {task.coverage.total}"
    axes.set(title=f"visited {unit}", xlabel="thousand steps", ylim=(0, None), xlim=(0, None))


def _draw_displacements(axes: Axes, store: TrajectoryStore, task: Task) -> None:
    """How far each object got from where it was, in each episode: goals of several objects have no map."""
    ends = np.cumsum(store.episode_lengths.numpy()) / 1000
    for thing in task.objects:
        moved = np.maximum(displacements(store, thing) / thing.threshold, LEAST)
        axes.plot(ends, moved, linestyle="none", marker=".", markersize=3)
    axes.axhline(1, color="#8C8C8C", linewidth=0.8, linestyle="--")
    axes.set(title="displacement in an episode", xlabel="thousand steps", ylabel="times that of success")
    axes.set(yscale="log", xlim=(0, None))


def _draw_shares(axes: Axes, store: TrajectoryStore, task: Task) -> None:
    """The share of recent episodes in which each object was moved beyond its threshold."""
    ends = np.cumsum(store.episode_lengths.numpy()) / 1000
    window = max(1, int(WINDOW * len(ends)))
    for thing in task.objects:
        moved = displacements(store, thing) > thing.threshold
        total = np.cumsum(np.insert(moved.astype(float), 0, 0))
        start = np.maximum(np.arange(1, len(ends) + 1) - window, 0)
        share = (total[1:] - total[start]) / (np.arange(1, len(ends) + 1) - start)
        axes.plot(ends, share, label=f"{thing.name} ({moved.mean():.0%})")
    axes.set(title="episodes that displace it", xlabel="thousand steps", ylim=(-0.02, 1.02), xlim=(0, None))
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
