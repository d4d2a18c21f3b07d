"""What a page draws: the map, landscapes of values, the graph, and frames of what has no map."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.colors import Normalize
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import distance_transform_edt

from curioplan.analysis.landscape import FARTHEST, steps_over_map
from curioplan.analysis.values import ValueFunction
from curioplan.envs import Case, Task
from curioplan.envs.task import FloorPlan, Within
from curioplan.graph import AggregatedValue, GraphView
from curioplan.web.messages import Message

MOST_EDGES = 4000  # drawn, of all parts of the graph
POINTS = {"values": 8, "aggregated": 5}  # per cell and axis; aggregated values take long


def describe_map(task: Task, plan: FloorPlan) -> Message:
    """A map with what of it can be a goal."""
    return {
        "free": plan.free.astype(int).tolist(),
        "offset": plan.offset,
        "zones": {name: list(corners) for name, corners in plan.zones.items()},
        "goal_is_place": task.goal_indices == (0, 1),
        "radius": task.success.radius if isinstance(task.success, Within) else None,
    }


def aggregated(objective: AggregatedValue, state: torch.Tensor) -> ValueFunction:
    """V̄(·; g) of the objective's goal, as it is seen from a state, over all vertices of the graph."""
    whole = AggregatedValue(objective.wayfinder)

    def value(states: torch.Tensor, goals: torch.Tensor) -> torch.Tensor:
        return objective.wayfinder.values.gamma ** whole.distance(0, state, states, 0)

    return value


def landscape(
    kind: str, value: ValueFunction, task: Task, plan: FloorPlan, case: Case, gamma: float
) -> Message:
    """The steps log_γ V to the goal of a case from everywhere on the map, as a PNG; few steps are bright."""
    steps = steps_over_map(value, task, plan, case, gamma, POINTS[kind])
    nearest, farthest = (float(np.nanquantile(steps, share)) for share in (0, FARTHEST))
    scale = Normalize(nearest, max(farthest, nearest + 10), clip=True)
    # Walls take the colours beside them and are drawn over them, so that there are no seams.
    filled = distance_transform_edt(np.isnan(steps), return_distances=False, return_indices=True)
    colours = colormaps["viridis_r"](scale(steps[tuple(filled)]), bytes=True)[..., :3]
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(colours)).save(buffer, "PNG")
    return {
        "type": "landscape",
        "kind": kind,
        "png": base64.b64encode(buffer.getvalue()).decode(),
        "nearest": round(nearest, 1),
        "farthest": round(float(scale.vmax or 0), 1),
    }


def describe_graph(view: GraphView) -> Message:
    """The vertices on the map, the edges within the threshold (some of too many) and the path."""
    lengths = np.array(view.lengths, np.float64)
    np.fill_diagonal(lengths, np.inf)
    starts, ends = np.nonzero(lengths <= view.threshold)
    within = len(starts)
    if within > MOST_EDGES:
        some = np.linspace(0, within - 1, MOST_EDGES).astype(int)
        starts, ends = starts[some], ends[some]
    return {
        "type": "graph",
        "vertices": rounded(view.vertices[:, :2]),
        "edges": np.stack([starts, ends], 1).tolist(),
        "within": within,
        "threshold": round(view.threshold, 2) if np.isfinite(view.threshold) else None,
        "path": [int(vertex) for vertex in view.path],
    }


def jpeg(frame: NDArray[Any]) -> bytes:
    """A frame (height, width, 3) as it is sent."""
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(frame[..., :3])).save(buffer, "JPEG", quality=80)
    return buffer.getvalue()


def rounded(numbers: Any, digits: int = 3) -> Any:
    """Numbers as lists that are short to send; what is not finite as 0, which JSON can say."""
    return np.nan_to_num(np.asarray(numbers, np.float64), posinf=0, neginf=0).round(digits).tolist()
