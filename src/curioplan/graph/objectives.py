"""Planning objectives over a graph: the aggregated value, and SORB's next subgoal."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from curioplan.config import Preselect, Valuing
from curioplan.graph.graph import Graph, Routes
from curioplan.graph.search import Indices, Lengths
from curioplan.planning.objectives import final_states
from curioplan.planning.rollout import Rollout
from curioplan.values import Distances, Values

_BLOCK = 8
"""Vertices whose edges are evaluated at a time, before it is seen which others can still win."""
_PAIRS = 4096
"""Edges evaluated at a time."""


@dataclass(frozen=True)
class Whereabouts:
    """Where an episode stands on the graph.

    Attributes:
        state: The state, (observation,), on the CPU.
        from_here: d(s, v) to every vertex, (n,).
        direct: d(s, g).
        threshold: Edges longer than this are not trusted: the bottleneck, or somewhat more.
    """

    state: Tensor
    from_here: Lengths
    direct: float
    threshold: float


class Wayfinder:
    """The routes and whereabouts of episodes, each with a goal of its own, found once per goal and state.

    Args:
        values: The value function.
        graph: The graph.
        goals: Goal of each slot (slots, goal).
        arrival: Steps added to the length of every edge, as in `graph`.
        trust: How many times the bottleneck an edge may be long.
    """

    def __init__(
        self, values: Distances, graph: Graph, goals: Tensor, arrival: float = 0.0, trust: float = 1.0
    ) -> None:
        self.values, self.graph, self.arrival, self.trust = values, graph, arrival, trust
        self.goals = values.task_goals(goals)
        self._routes: dict[int, Routes] = {}
        self._here: dict[int, Whereabouts] = {}

    def routes(self, slot: int) -> Routes:
        """The ways to a slot's goal."""
        if slot not in self._routes:
            goal = self.goals[slot : slot + 1]
            lengths = self.values.edges(self.graph.states, goal)[:, 0] + self.arrival
            self._routes[slot] = Routes(self.graph, lengths)
        return self._routes[slot]

    def lengths(self, states: Tensor, targets: Tensor) -> Tensor:
        """Lengths of the edges from all states (N, ·) to all targets (M, ·), (N, M)."""
        return self.values.distances(states, targets).add_(self.arrival)

    def locate(self, slot: int, state: Tensor) -> Whereabouts:
        """Where a slot's episode is, now that it is in this state, on the CPU."""
        known = self._here.get(slot)
        if known is not None and torch.equal(known.state, state):
            return known
        here = state[None].to(self.goals.device)
        lengths = self.lengths(here, self.graph.targets)[0].double().cpu().numpy()
        direct = float(self.lengths(here, self.goals[slot : slot + 1])[0, 0])
        threshold = self.trust * self.routes(slot).threshold(lengths, direct)
        self._here[slot] = Whereabouts(state.clone(), lengths, direct, threshold)
        return self._here[slot]


def aggregate_pruned(
    values: Values,
    states: Tensor,
    targets: Tensor,
    remaining: Tensor,
    threshold: float,
    promise: Tensor,
    arrival: float,
) -> Tensor:
    """As `aggregate` of lengths between states (N, ·) and targets (m, ·), of which only few are evaluated.

    Vertices are taken in the order of what they promise (m,), a few at a time. A state's edge to one is
    evaluated only if the rest of the way from there is shorter than the best way found so far.
    """
    best = torch.full((len(states),), torch.inf, device=states.device)
    order = promise.argsort()
    blocks = [order[:4], *order[4:].split(_BLOCK)]
    for block in blocks:
        left = remaining[block]
        limits = (best[:, None] - left - arrival).clamp_(max=threshold - arrival)
        row, column = torch.nonzero(limits > 0, as_tuple=True)
        for part in torch.arange(len(row), device=row.device).split(_PAIRS):
            r, c = row[part], column[part]
            steps = values.distances_within(states[r], targets[block[c]], limits[r, c]) + arrival
            total = torch.where(steps <= threshold, steps + left[c], torch.inf)
            best.scatter_reduce_(0, r, total, "amin")
    lost = torch.nonzero(torch.isinf(best))[:, 0]
    if len(lost):
        lengths = values.distances(states[lost], targets).add_(arrival)
        best[lost] = aggregate(lengths, remaining, threshold)
    return best


@dataclass(frozen=True)
class GraphView:
    """A graph as an episode sees it, to look at.

    Attributes:
        vertices: The states of the vertices, (n, observation).
        lengths: Lengths of the edges between them, (n, n).
        threshold: Edges longer than this are not trusted now.
        path: Numbers of the vertices on the way from the current state to the goal.
        remaining: Length of the way from each vertex to the goal, infinite where there is none, (n,).
    """

    vertices: Lengths
    lengths: Lengths
    threshold: float
    path: list[int]
    remaining: Lengths


class AggregatedValue:
    """V̄(s_H; g) = γ^d̄ of the last imagined state, with distances aggregated over the graph.

    d̄(x, g) = min over v of d(x, v) + d̄(v, g), over the goal itself and vertices v within the threshold of x,
    where d̄(v, g) is the length of the shortest path of edges within the threshold. Where no vertex is within
    the threshold, the nearest that reaches the goal counts. The threshold is that of the current state: the
    lowest that keeps it connected to the goal. Whatever results is divided by the detour of the graph.

    Args:
        wayfinder: The routes of all slots.
        near: Only this many of the vertices that reach the goal are looked at; 0 looks at all.
        preselect: Which: those nearest to the current state s, or those v with the least d(s, v) + d̄(v, g)
            among all whose distance is at most the threshold and the horizon together.
        valuing: Whether every particle is valued, and values averaged, or the mean of the particles.
    """

    needs_disagreement = False

    def __init__(
        self,
        wayfinder: Wayfinder,
        near: int = 0,
        preselect: Preselect = "nearest",
        valuing: Valuing = "particles",
    ) -> None:
        self.wayfinder, self.near, self.preselect, self.valuing = wayfinder, near, preselect, valuing

    def __call__(self, rollout: Rollout, actions: Tensor, slots: Tensor) -> Tensor:
        """See `Objective`."""
        finals = final_states(rollout, self.valuing)  # (B, P, K, obs)
        now, horizon = rollout.states[:, 0, 0, 0].cpu(), actions.shape[2]
        gamma = self.wayfinder.values.gamma
        worth = [
            (gamma ** self.distance(slot, state, final.flatten(0, 1), horizon)).view(final.shape[:2]).mean(1)
            for slot, state, final in zip(slots.tolist(), now, finals, strict=True)
        ]
        return torch.stack(worth)

    def distance(self, slot: int, state: Tensor, others: Tensor, horizon: int) -> Tensor:
        """d̄(x, g), (N,), of states x (N, observation) that an episode may be in after `horizon` steps.

        The state it is in now is on the CPU, where the ways are found; the others are wherever they are.
        """
        find, device = self.wayfinder, self.wayfinder.goals.device
        here, graph = find.locate(slot, state), find.graph
        remaining = find.routes(slot).ways(here.threshold).remaining
        connected = self.preselected(here, remaining, horizon)
        # The goal is one more vertex, with nothing left to go.
        others = others.to(device)
        left = torch.from_numpy(np.append(remaining[connected], 0.0)).float().to(device)
        near = graph.targets[torch.from_numpy(connected).to(device)]
        targets = torch.cat([near, find.goals[slot : slot + 1]])
        if isinstance(find.values, Values):  # each edge costs an actor and two critics
            promise = torch.from_numpy(np.append((here.from_here + remaining)[connected], here.direct))
            found = aggregate_pruned(
                find.values, others, targets, left, here.threshold, promise.to(device), find.arrival
            )
        else:
            found = aggregate(find.lengths(others, targets), left, here.threshold)
        return found / graph.detour

    def preselected(self, here: Whereabouts, remaining: Lengths, horizon: int) -> Indices:
        """The vertices to look at."""
        connected = np.flatnonzero(np.isfinite(remaining))
        cost = here.from_here
        if self.preselect == "promising":
            cost = np.where(cost <= here.threshold + horizon, cost + remaining, np.inf)
        if 0 < self.near < len(connected):
            connected = np.sort(connected[np.argpartition(cost[connected], self.near)[: self.near]])
        return connected


def aggregate(lengths: Tensor, remaining: Tensor, threshold: float) -> Tensor:
    """d̄ of states (N,) from their distances to vertices (N, m) and those of the vertices to the goal (m,).

    Edges longer than the threshold do not count, unless a state has no other: then its shortest does.
    """
    trusted = lengths <= threshold
    total = torch.where(trusted, lengths + remaining, torch.inf).amin(1)
    nearest, vertex = lengths.min(1)
    return torch.where(torch.isinf(total), nearest + remaining[vertex], total)


def view(finder: Wayfinder, slot: int, state: Tensor, limit: float | None = None) -> GraphView:
    """The graph as a slot's episode sees it from a state, with its own threshold or a fixed limit."""
    here, routes = finder.locate(slot, state), finder.routes(slot)
    threshold = here.threshold if limit is None else limit
    path = routes.path(here.from_here, here.direct, threshold) or []
    graph = finder.graph
    remaining = routes.ways(threshold).remaining
    return GraphView(graph.states.cpu().numpy(), graph.lengths.cpu().numpy(), threshold, path, remaining)


class NextSubgoal:
    """SORB (Eysenbach et al., 2019): V(s_H; v) for the next vertex v on the shortest path to the goal.

    A vertex less than a step away is passed over, since the value cannot tell it from being there. Where no
    path leads to the goal over edges within the limit, the goal itself is aimed at.

    Args:
        wayfinder: The routes of all slots.
        limit: Longest edge that is trusted, in steps: log_γ V_min.
        valuing: Whether every particle is valued, and values averaged, or the mean of the particles.
    """

    needs_disagreement = False

    def __init__(self, wayfinder: Wayfinder, limit: float, valuing: Valuing = "particles") -> None:
        self.wayfinder, self.limit, self.valuing = wayfinder, limit, valuing

    def __call__(self, rollout: Rollout, actions: Tensor, slots: Tensor) -> Tensor:
        """See `Objective`."""
        finals = final_states(rollout, self.valuing)
        values, worth = self.wayfinder.values, []
        now = rollout.states[:, 0, 0, 0].cpu()
        for slot, state, final in zip(slots.tolist(), now, finals, strict=True):
            lengths = values.distances(final.flatten(0, 1), self.subgoal(slot, state)[None])[:, 0]
            worth.append((values.gamma**lengths).view(final.shape[:2]).mean(1))
        return torch.stack(worth)

    def subgoal(self, slot: int, state: Tensor) -> Tensor:
        """What a slot's episode should reach next, as a goal of the value function."""
        find = self.wayfinder
        here = find.locate(slot, state)
        path = find.routes(slot).path(here.from_here, here.direct, self.limit) or []
        ahead = [vertex for vertex in path if here.from_here[vertex] - find.arrival >= 1]
        return find.graph.targets[ahead[0]] if ahead else find.goals[slot]
