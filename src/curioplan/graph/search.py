"""Paths to a goal over a directed graph with all edges: bottlenecks, and shortest paths below a limit.

``lengths[u, v]`` is the length of the edge from vertex u to vertex v, ``to_goal[v]`` that of the edge from v
to the goal; infinite lengths are no edges.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import dijkstra

Lengths = NDArray[np.float64]
Indices = NDArray[np.int64]


class Ways(NamedTuple):
    """Shortest ways from every vertex to the goal.

    Attributes:
        remaining: Length of the way from each vertex, infinite where there is none.
        following: The next vertex on it: the number of vertices stands for the goal, −1 for no way.
    """

    remaining: Lengths
    following: Indices


class Edges:
    """Edges between vertices in the order of their lengths: those within a limit come first.

    Only as many as are asked for are put in order, which are few of all, and then somewhat more.

    Args:
        lengths: Of all edges, (n, n).
    """

    def __init__(self, lengths: Lengths) -> None:
        self._all, self._up_to = lengths, -np.inf

    def within(self, limit: float) -> tuple[Indices, Indices, Lengths]:
        """Starts, ends and lengths of the edges no longer than a limit."""
        if limit > self._up_to:
            self._up_to = 2 * limit
            flat = self._all.ravel()
            short = np.flatnonzero((flat <= self._up_to) & np.isfinite(flat))
            short = short[np.argsort(flat[short])]
            self._starts, self._ends = np.divmod(short, len(self._all))
            self._lengths = flat[short]
        count = int(np.searchsorted(self._lengths, limit, side="right"))
        return self._starts[:count], self._ends[:count], self._lengths[:count]


def bottlenecks(lengths: Lengths, to_goal: Lengths) -> Lengths:
    """The longest edge of the best path from each vertex to the goal: min over paths of max over edges.

    Dijkstra's algorithm with the longest edge of a path as its cost, backwards from the goal, in O(n²).
    """
    into = np.ascontiguousarray(lengths.T)
    best = to_goal.astype(np.float64)
    unsettled = best.copy()  # infinite once settled
    for _ in range(len(best)):
        vertex = int(unsettled.argmin())
        if not np.isfinite(unsettled[vertex]):
            break
        through = np.maximum(into[vertex], best[vertex])
        shorter = through < best  # never a settled one: those are at most best[vertex]
        best[shorter] = unsettled[shorter] = through[shorter]
        unsettled[vertex] = np.inf
    return best


def shortest_ways(edges: Edges, to_goal: Lengths, limit: float) -> Ways:
    """Shortest ways to the goal over edges no longer than `limit`."""
    count = len(to_goal)
    starts, ends, lengths = edges.within(limit)
    last = np.flatnonzero(to_goal <= limit)
    # Backwards, hence transposed, with the goal as the last node.
    weights = np.concatenate([lengths, to_goal[last]])
    tails = np.concatenate([ends, np.full(len(last), count)])
    heads = np.concatenate([starts, last])
    graph = csr_matrix((weights, (tails, heads)), shape=(count + 1, count + 1))
    remaining, following = dijkstra(graph, indices=count, return_predecessors=True)
    following = np.where(np.isfinite(remaining), following, -1)
    return Ways(remaining[:count], following[:count].astype(np.int64))


def path_from(vertex: int, following: Indices) -> list[int]:
    """The vertices from one on to the last before the goal."""
    path = []
    while 0 <= vertex < len(following):
        path.append(vertex)
        vertex = int(following[vertex])
    return path
