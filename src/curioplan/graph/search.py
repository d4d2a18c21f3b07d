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


def shortest_ways(lengths: Lengths, to_goal: Lengths, limit: float) -> Ways:
    """Shortest ways to the goal over edges no longer than `limit`."""
    count = len(to_goal)
    # Backwards, hence transposed, with the goal as the last node.
    ends, starts = np.nonzero((lengths <= limit).T)
    last = np.flatnonzero(to_goal <= limit)
    weights = np.concatenate([lengths[starts, ends], to_goal[last]])
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
