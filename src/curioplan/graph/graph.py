"""A graph of dataset states, with temporal distances as edges, and the ways over it to a goal."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from curioplan.config import GraphConfig
from curioplan.data import TrajectoryStore
from curioplan.graph.density import density, draw_sparse
from curioplan.graph.search import Edges, Lengths, Ways, bottlenecks, path_from, shortest_ways
from curioplan.values import Distances

_GOALS, _STARTS = 32, 8
"""Random goals, and vertices for each, by whose ways detours are measured."""


@dataclass(frozen=True)
class Graph:
    """Vertices and the edges between all of them: what depends on the value function alone.

    Attributes:
        states: The vertices, (n, observation).
        targets: The same as goals that the value function understands, (n, ·).
        lengths: d(u, v) = log_γ V(u; v) in steps, (n, n).
        detour: How many times as long ways over the graph are as they should be.
    """

    states: Tensor
    targets: Tensor
    lengths: Tensor
    detour: float = 1.0

    @classmethod
    def build(
        cls, values: Distances, store: TrajectoryStore, config: GraphConfig, vertices: int, seed: int
    ) -> Graph:
        """Draw vertices from the data, where they lie sparsely rather than densely, and measure all edges.

        Args:
            values: The value function.
            store: The data it was learned from, on the device of the value function.
            config: Settings.
            vertices: How many, if the settings do not say; never more than there are states.
            seed: Of the draws.
        """
        generator = torch.Generator().manual_seed(seed)
        candidates = torch.arange(store.states)
        if 0 < config.candidates < store.states:
            candidates = torch.randperm(store.states, generator=generator)[: config.candidates].sort().values
        count = min(config.vertices or vertices, len(candidates))
        whole = config.through == "states"
        if config.sampling == "uniform":
            chosen = candidates[torch.randperm(len(candidates), generator=generator)[:count].sort().values]
        else:
            others = torch.randint(store.states, (config.density_goals,), generator=generator)
            around = density(
                values,
                store.observations[candidates.to(store.device)],
                _targets(values, store, others, whole),
                config.density_scale,
                config.max_distance,
            )
            chosen = candidates[draw_sparse(around, count, generator)]
        states, targets = store.observations[chosen.to(store.device)], _targets(values, store, chosen, whole)
        graph = cls(states, targets, values.edges(states, targets) + config.arrival)
        if not config.calibrated:
            return graph
        rows = torch.randint(store.states, (_GOALS,), generator=generator).to(store.device)
        goals = values.task_goals(store.achieved_goals[rows])
        return replace(graph, detour=detour(graph, values, goals, config, generator))

    @classmethod
    def from_state(cls, state: dict[str, Any], device: torch.device) -> Graph:
        """The inverse of `state`, on a device."""
        tensors = {name: state[name].to(device) for name in ("states", "targets", "lengths")}
        return cls(**tensors, detour=state["detour"])

    @cached_property
    def between(self) -> Lengths:
        """The lengths as an array, without the loops from a vertex to itself."""
        lengths = self.lengths.double().cpu().numpy().copy()
        np.fill_diagonal(lengths, np.inf)
        return lengths

    @cached_property
    def edges(self) -> Edges:
        """The same in the order of their lengths."""
        return Edges(self.between)

    def state(self) -> dict[str, Any]:
        """Everything as plain tensors and numbers."""
        return {
            "states": self.states,
            "targets": self.targets,
            "lengths": self.lengths,
            "detour": self.detour,
        }


class Routes:
    """The ways over a graph to one goal.

    Args:
        graph: The graph.
        to_goal: d(v, g) of every vertex, (n,).
    """

    def __init__(self, graph: Graph, to_goal: Tensor) -> None:
        self.graph = graph
        self.to_goal: Lengths = to_goal.double().cpu().numpy()
        self.bottlenecks = bottlenecks(graph.between, self.to_goal)
        self._last: tuple[float, Ways] | None = None

    def threshold(self, from_here: Lengths, direct: float) -> float:
        """The shortest limit on edges that still connects a state to the goal.

        Args:
            from_here: d(s, v) to every vertex, (n,).
            direct: d(s, g).
        """
        return min(direct, float(np.maximum(from_here, self.bottlenecks).min(initial=np.inf)))

    def ways(self, limit: float) -> Ways:
        """Shortest ways from every vertex over edges no longer than a limit."""
        if self._last is None or self._last[0] != limit:
            self._last = limit, shortest_ways(self.graph.edges, self.to_goal, limit)
        return self._last[1]

    def path(self, from_here: Lengths, direct: float, limit: float) -> list[int] | None:
        """The vertices on the shortest way from a state: none if it leads straight to the goal.

        Returns:
            The vertices in order, or ``None`` if no way leads to the goal over edges within the limit.
        """
        ways = self.ways(limit)
        through = np.where(from_here <= limit, from_here + ways.remaining, np.inf)
        vertex = int(through.argmin()) if len(through) else 0
        shortest = through[vertex] if len(through) else np.inf
        if direct <= limit and direct <= shortest:
            return []
        return path_from(vertex, ways.following) if np.isfinite(shortest) else None


def detour(
    graph: Graph, values: Distances, goals: Tensor, config: GraphConfig, generator: torch.Generator
) -> float:
    """How many times as long as values say ways over a graph are: the median over random vertices and goals.

    Ways lead through states that somebody happened to be in, at whatever speed, and cannot cut corners.
    Single values may be far off, and yet tell the scale. Ways of a single edge do not count.

    Args:
        graph: The graph.
        values: The value function.
        goals: The goals, as it takes them, (m, ·).
        config: How edges are measured and trusted.
        generator: Draws the vertices.
    """
    ratios = []
    for goal in goals.split(1):
        direct = values.distances(graph.states, goal)[:, 0].double().cpu().numpy() + config.arrival
        routes = Routes(graph, values.edges(graph.states, goal)[:, 0] + config.arrival)
        for vertex in torch.randint(len(graph.states), (_STARTS,), generator=generator).tolist():
            ways = routes.ways(config.trust * routes.bottlenecks[vertex])
            if 0 <= ways.following[vertex] < len(graph.states) and direct[vertex] > 0:
                ratios.append(ways.remaining[vertex] / direct[vertex])
    return float(np.median(ratios)) if ratios else 1.0


def _targets(values: Distances, store: TrajectoryStore, rows: Tensor, whole: bool) -> Tensor:
    """Dataset states as goals: their achieved goals, or whole."""
    rows = rows.to(store.device)
    achieved = store.achieved_goals[rows]
    return values.whole_goals(store.observations[rows], achieved) if whole else values.task_goals(achieved)
