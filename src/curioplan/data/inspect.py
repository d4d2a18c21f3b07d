"""What is in a dataset: numbers, a table and a figure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from curioplan.data.files import replacing
from curioplan.data.trajectories import TrajectoryStore
from curioplan.envs.task import MovableObject, Task
from curioplan.errors import DataError

if TYPE_CHECKING:  # Matplotlib takes long to import, so only what draws does so.
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BLUE = "#0072b2"  # of the colour-blind-safe palette of Okabe and Ito


def summary(store: TrajectoryStore, task: Task | None = None) -> dict[str, Any]:
    """Counts and ranges of a dataset, as plain numbers that serialise to JSON.

    Args:
        store: The dataset.
        task: Adds how much of the task's partition was visited and which objects moved, where it has such.
    """
    if not store.transitions:
        raise DataError("There are no transitions to summarise.")
    lengths = store.episode_lengths.cpu().numpy()
    actions = store.actions[store.transition_rows]
    result: dict[str, Any] = {
        "episodes": store.episodes,
        "transitions": store.transitions,
        "states": store.states,
        "episode_length": {
            "min": int(lengths.min()),
            "median": float(np.median(lengths)),
            "max": int(lengths.max()),
        },
        "observations": _ranges(store.observations.cpu().numpy()),
        "achieved_goals": _ranges(store.achieved_goals.cpu().numpy()),
        "actions": _ranges(actions.cpu().numpy()),
    }
    if task is not None and task.coverage is not None:
        visited = first_visits(task.coverage.index(store.observations.cpu().numpy()))
        result["coverage"] = {
            "unit": task.coverage.unit,
            "visited": len(visited),
            "total": task.coverage.total,
        }
    if task is not None and task.objects:
        result["moved"] = {
            thing.name: float((displacements(store, thing) > thing.threshold).mean())
            for thing in task.objects
        }
    return result


def format_summary(result: dict[str, Any]) -> str:
    """A summary as text for a terminal."""
    length = result["episode_length"]
    lines = [
        f"{result['transitions']:,} transitions in {result['episodes']:,} episodes",
        f"episode length  min {length['min']:,}  median {length['median']:,g}  max {length['max']:,}",
    ]
    if "coverage" in result:
        visited = result["coverage"]
        share = visited["visited"] / visited["total"]
        lines.append(f"coverage  {visited['visited']} of {visited['total']} {visited['unit']} ({share:.0%})")
    if "moved" in result:
        lines += ["", "moved in share of episodes"]
        width = max(map(len, result["moved"]))
        lines += [f"  {name:<{width}}  {share:>6.1%}" for name, share in result["moved"].items()]
    lines += ["", f"{'':<18}" + "".join(f"{name:>11}" for name in ("min", "max", "mean", "std"))]
    for field, label in (("observations", "observation"), ("achieved_goals", "goal"), ("actions", "action")):
        for dim, row in enumerate(zip(*result[field].values(), strict=True)):
            lines.append(f"{f'{label}[{dim}]':<18}" + "".join(f"{value:>11.4g}" for value in row))
    return "\n".join(lines)


def coverage_figure(store: TrajectoryStore, task: Task, path: str | Path) -> None:
    """Draws where the data went: achieved goals as a heat map, and how coverage grew.

    The heat map counts states over the first two goal dimensions (over the first and time, if there is only
    one). Beside it stands the share of the task's partition visited so far; else the share of episodes that
    moved each object; else the lengths of episodes.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.5), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
    _draw_goals(figure, left, store, task)
    if task.coverage is not None:
        _draw_coverage(right, store, task)
    elif task.objects:
        _draw_moved(right, store, task)
    else:
        _draw_lengths(right, store)
    right.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{task.name}: {store.transitions:,} transitions in {store.episodes:,} episodes")
    with replacing(Path(path), overwrite=True, replaceable=Path.is_file) as fresh:
        figure.savefig(fresh, format="png")


def _ranges(values: NDArray[np.float32]) -> dict[str, list[float]]:
    """The range, mean and standard deviation of every dimension."""
    wide = values.astype(np.float64)
    return {
        "min": wide.min(0).tolist(),
        "max": wide.max(0).tolist(),
        "mean": wide.mean(0).tolist(),
        "std": wide.std(0).tolist(),
    }


def first_visits(index: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows of the first state in each visited part, in order, given the part of every state."""
    parts, rows = np.unique(index, return_index=True)
    return np.sort(rows[parts >= 0]).astype(np.int64)


def displacements(store: TrajectoryStore, thing: MovableObject) -> NDArray[np.float32]:
    """How far an object got from where it was at the start, for every episode."""
    place = store.observations.cpu().numpy()[:, list(thing.indices)]
    first = store.first_rows.cpu().numpy()
    start = place[first[store.episode_of.cpu().numpy()]]
    return np.maximum.reduceat(np.linalg.norm(place - start, axis=1), first)


def _draw_goals(figure: Figure, axes: Axes, store: TrajectoryStore, task: Task) -> None:
    from matplotlib.colors import LogNorm

    goals = store.achieved_goals.cpu().numpy()
    most = int(np.clip(np.sqrt(store.states) / 2, 20, 120))  # bins; fewer states, coarser bins
    bins: list[Any] = [most, most]
    if store.goal_dim == 1:
        x, y = _steps(store), goals[:, 0]
        bins[0] = _integer_edges(int(x.max()), most)
        axes.set(xlabel="step of the episode", ylabel="goal[0]")
    else:
        x, y = goals[:, 0], goals[:, 1]
        axes.set(xlabel="goal[0]", ylabel="goal[1]")
        spans = [max(float(np.ptp(values)), 1e-6) for values in (x, y)]
        if 0.25 < spans[0] / spans[1] < 4:  # alike, as positions are: squares of equal size
            bins = [max(2, round(most * span / max(spans))) for span in spans]
            axes.set_aspect("equal")
    counts, x_edges, y_edges = np.histogram2d(x, y, bins=bins)
    mesh = axes.pcolormesh(
        x_edges,
        y_edges,
        np.ma.masked_equal(counts.T, 0),
        norm=LogNorm(1, max(counts.max(), 10)),
        cmap="viridis",
        rasterized=True,
    )
    figure.colorbar(mesh, ax=axes, label="states", shrink=0.9)
    axes.set_title(
        "achieved goals" + (f" (first 2 of {store.goal_dim} dimensions)" if store.goal_dim > 2 else "")
    )


def _draw_coverage(axes: Axes, store: TrajectoryStore, task: Task) -> None:
    from matplotlib.ticker import StrMethodFormatter

    assert task.coverage is not None
    visits = first_visits(task.coverage.index(store.observations.cpu().numpy()))
    steps = np.concatenate([[0], visits, [store.states]])
    count = np.concatenate([[0], np.arange(len(visits)) + 1, [len(visits)]])
    axes.step(steps, count, where="post", color=_BLUE)
    axes.axhline(task.coverage.total, color="0.6", linestyle=":")
    axes.annotate(
        f"all {task.coverage.total}", (0, task.coverage.total), (4, -12), textcoords="offset points"
    )
    axes.set(xlabel="states seen", ylabel=f"{task.coverage.unit} visited", title="coverage")
    axes.set_xlim(0, store.states)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.locator_params(axis="x", nbins=6)
    axes.set_ylim(0, task.coverage.total * 1.03)


def _draw_moved(axes: Axes, store: TrajectoryStore, task: Task) -> None:
    from matplotlib.ticker import PercentFormatter

    names = [thing.name for thing in task.objects]
    shares = [float((displacements(store, thing) > thing.threshold).mean()) for thing in task.objects]
    bars = axes.barh(names, shares, color=_BLUE)
    axes.bar_label(bars, [f"{share:.1%}" for share in shares], padding=3)
    axes.invert_yaxis()
    axes.set_xlim(0, max(*shares, 0.01) * 1.15)
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.set(xlabel="share of episodes", title="objects moved")


def _draw_lengths(axes: Axes, store: TrajectoryStore) -> None:
    lengths = store.episode_lengths.cpu().numpy()
    axes.hist(lengths, bins=_integer_edges(int(lengths.max()), 40), color=_BLUE)
    axes.set(xlabel="transitions", ylabel="episodes", title="episode lengths")


def _steps(store: TrajectoryStore) -> NDArray[np.int64]:
    """How many steps into its episode every state is."""
    first = store.first_rows.cpu().numpy()
    return np.arange(store.states) - first[store.episode_of.cpu().numpy()]


def _integer_edges(top: int, most: int) -> list[float]:
    """Edges of at most ``most`` bins that hold equally many of the integers from 0 to ``top``."""
    width = -(-(top + 1) // most)
    return [edge - 0.5 for edge in range(0, top + 1 + width, width)]
