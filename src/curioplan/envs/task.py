"""The task description: what the rest of the system needs to know about an environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from curioplan.errors import EnvError

if TYPE_CHECKING:
    import torch

Floats = NDArray[np.float64]
Observation = dict[str, Floats]
Array = TypeVar("Array", NDArray[Any], "torch.Tensor")


class SuccessTest(Protocol):
    """Whether achieved goals meet desired ones, on batches of either NumPy arrays or tensors."""

    def __call__(self, achieved: Array, desired: Array) -> Array:
        """Booleans of the leading shape of ``achieved`` and ``desired``, which broadcast."""
        ...


@dataclass(frozen=True)
class Within:
    """Success when the distance of every part of the goal is below ``radius``.

    Attributes:
        radius: The distance that still counts as success (exclusive).
        order: 1 for the sum of absolute differences, 2 for the Euclidean distance.
        parts: Slices of the goal that must each be within the radius; by default the goal as a whole.
    """

    radius: float
    order: int = 2
    parts: tuple[tuple[int, int], ...] = ()

    def __call__(self, achieved: Array, desired: Array) -> Array:
        """Booleans of the broadcast leading shape."""
        difference = achieved - desired
        close = None
        for start, stop in self.parts or ((0, difference.shape[-1]),):
            part = difference[..., start:stop]
            if self.order == 1:
                near = abs(part).sum(-1) < self.radius
            else:
                near = (part * part).sum(-1) < self.radius**2
            close = near if close is None else close & near
        assert close is not None
        return close


@dataclass(frozen=True)
class Case:
    """One evaluation case: where an episode starts and what it should achieve.

    Attributes:
        name: Short label for tables.
        goal: The desired goal; ``None`` leaves the draw to the environment.
        state: The start, as an observation; ``None`` leaves the draw to the environment.
        jitter: Half-widths of uniform noise added to ``state``, per dimension.
    """

    name: str
    goal: tuple[float, ...] | None = None
    state: tuple[float, ...] | None = None
    jitter: tuple[float, ...] | None = None

    def options(self, rng: np.random.Generator) -> Observation:
        """The ``options`` of ``reset`` that begin this case; ``rng`` draws the jitter."""
        chosen = {}
        if self.state is not None:
            state = np.array(self.state, dtype=np.float64)
            if self.jitter is not None:
                width = np.array(self.jitter)
                state = state + rng.uniform(-width, width)
            chosen["state"] = state
        if self.goal is not None:
            chosen["goal"] = np.array(self.goal, dtype=np.float64)
        return chosen


@dataclass(frozen=True)
class Coverage:
    """A finite partition of the states, to count how much of it has been visited.

    Attributes:
        unit: What is counted, in the plural (``"cells"``).
        total: How many there are.
        index: Maps observations ``(..., observation_dim)`` to an index below ``total``, or −1.
    """

    unit: str
    total: int
    index: Callable[[NDArray[Any]], NDArray[np.int64]]


@dataclass(frozen=True)
class MovableObject:
    """A thing in the scene whose displacement tells how far exploration reached.

    Attributes:
        name: Its name in tables and figures.
        indices: The observation dimensions that describe it.
        threshold: Displacement (norm) beyond which it counts as moved.
    """

    name: str
    indices: tuple[int, ...]
    threshold: float


@dataclass(frozen=True)
class FloorPlan:
    """A map to draw trajectories and values on; the first two dimensions of a state are the position.

    Attributes:
        free: Which cells are free, ``(rows, columns)``.
        offset: The centre of cell (i, j) is at (i − offset, j − offset).
        zones: Rectangles that mean something, by name: their lowest x and y, then their highest.
    """

    free: NDArray[np.bool_]
    offset: float
    zones: Mapping[str, tuple[float, float, float, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """An environment as planners, learners and evaluation see it.

    Attributes:
        name: Short name, as on the command line.
        env: How to make the environment: a Gymnasium id or ``module:callable``.
        observation_dim: Dimension of ``observation``.
        goal_dim: Dimension of ``achieved_goal`` and ``desired_goal``.
        action_low: Lower action bounds.
        action_high: Upper action bounds.
        episode_length: Steps after which an episode is truncated.
        success: The success test on batches of goals.
        gamma: Discount factor.
        explore_horizon: Planning horizon of curious exploration.
        reach_horizon: Planning horizon towards a goal.
        graph_vertices: Vertices of the aggregation graph.
        goal_indices: The observation dimensions that are the achieved goal, if it is a part of the state.
        cases: The fixed evaluation cases.
        coverage: A partition of the states to count visits in, where there is a natural one.
        objects: Movable things, where there are any.
        floor_plan: The map, where there is one.
    """

    name: str
    env: str
    observation_dim: int
    goal_dim: int
    action_low: tuple[float, ...]
    action_high: tuple[float, ...]
    episode_length: int
    success: SuccessTest
    gamma: float = 0.99
    explore_horizon: int = 30
    reach_horizon: int = 15
    graph_vertices: int = 1000
    goal_indices: tuple[int, ...] | None = None
    cases: tuple[Case, ...] = ()
    coverage: Coverage | None = field(default=None, compare=False)
    objects: tuple[MovableObject, ...] = ()
    floor_plan: FloorPlan | None = field(default=None, compare=False)

    @property
    def action_dim(self) -> int:
        """Dimension of an action."""
        return len(self.action_low)

    def goal_of(self, observations: Array) -> Array:
        """The achieved goals of a batch of observations."""
        if self.goal_indices is None:
            raise EnvError(
                f"In {self.name} the achieved goal is not a part of the observation and cannot be read off "
                "imagined states; use the achieved goals stored with the data."
            )
        return observations[..., list(self.goal_indices)]

    def read_options(self, options: dict[str, Any] | None) -> tuple[Floats | None, Floats | None]:
        """The state and the goal in the ``options`` of ``reset``, checked; ``None`` where not given."""
        options = dict(options or {})
        sizes = {"state": self.observation_dim, "goal": self.goal_dim}
        chosen: dict[str, Floats | None] = dict.fromkeys(sizes)
        for key, value in options.items():
            if key not in sizes:
                raise EnvError(f'reset of {self.name} knows the options "state" and "goal", not "{key}".')
            try:
                array = np.array(value, dtype=np.float64)
            except (TypeError, ValueError):
                raise EnvError(f'The option "{key}" of reset must be a vector of numbers.') from None
            if array.shape != (sizes[key],) or not np.isfinite(array).all():
                raise EnvError(
                    f'The option "{key}" of reset must hold {sizes[key]} finite numbers for {self.name}; '
                    f"it has shape {array.shape}."
                )
            chosen[key] = array
        return chosen["state"], chosen["goal"]
