"""The graph: bottlenecks, shortest ways, aggregation, vertices."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from curioplan.config import GraphConfig
from curioplan.graph import AggregatedValue, Graph, NextSubgoal, Routes, Wayfinder
from curioplan.graph.density import draw_sparse
from curioplan.graph.graph import detour
from curioplan.graph.objectives import aggregate
from curioplan.graph.search import Edges, bottlenecks, shortest_ways
from curioplan.planning import Rollout
from exact_values import GridValues, MemoryValues
from gridworld import Grid, plans

LENGTH = st.one_of(st.integers(0, 4).map(float), st.just(math.inf), st.floats(0, 10, width=32))


@st.composite
def graphs(draw, most=5):
    """Lengths between vertices and to the goal, with ties, zeros and missing edges."""
    count = draw(st.integers(1, most))
    numbers = draw(st.lists(LENGTH, min_size=count * (count + 1), max_size=count * (count + 1)))
    lengths = np.array(numbers).reshape(count, count + 1)
    return lengths[:, :count], lengths[:, count]


def all_paths(lengths, to_goal, start):
    """The edges of every path without repetitions from a vertex to the goal."""
    others = [v for v in range(len(to_goal)) if v != start]
    for size in range(len(others) + 1):
        for between in itertools.permutations(others, size):
            stops = [start, *between]
            yield [lengths[u, v] for u, v in itertools.pairwise(stops)] + [to_goal[stops[-1]]]


@given(graphs())
def test_bottlenecks_equal_brute_force(graph):
    lengths, to_goal = graph
    brute = [min(max(path) for path in all_paths(lengths, to_goal, v)) for v in range(len(to_goal))]
    assert bottlenecks(lengths, to_goal).tolist() == brute


@given(graphs(), st.lists(st.one_of(LENGTH, st.floats(0, 10, width=32)), min_size=1, max_size=3))
def test_shortest_ways_equal_brute_force_whatever_limits_were_asked_for_before(graph, limits):
    lengths, to_goal = graph
    edges = Edges(lengths)
    for limit in limits:
        ways = shortest_ways(edges, to_goal, limit)
        for vertex, remaining in enumerate(ways.remaining):
            allowed = [sum(p) for p in all_paths(lengths, to_goal, vertex) if max(p) <= limit]
            assert remaining == pytest.approx(min(allowed, default=math.inf))


@given(graphs(), st.data())
def test_the_threshold_connects_and_nothing_below_it_does(graph, data):
    lengths, to_goal = graph
    count = len(to_goal)
    from_here = np.array(data.draw(st.lists(LENGTH, min_size=count, max_size=count)))
    direct = data.draw(LENGTH)
    routes = routes_of(lengths, to_goal)
    threshold = routes.threshold(from_here, direct)
    if math.isinf(threshold):
        assert routes.path(from_here, direct, 1e9) is None
        return
    assert routes.path(from_here, direct, threshold) is not None
    assert routes.path(from_here, direct, np.nextafter(threshold, -1)) is None


@given(graphs(), st.data())
def test_the_path_is_as_long_as_the_shortest_way_and_within_the_limit(graph, data):
    lengths, to_goal = graph
    count = len(to_goal)
    from_here = np.array(data.draw(st.lists(LENGTH, min_size=count, max_size=count)))
    direct, limit = data.draw(LENGTH), data.draw(st.integers(0, 6))
    # The state is one more vertex, which no edge leads to.
    everything = np.vstack([np.hstack([lengths, np.full((count, 1), np.inf)]), [*from_here, np.inf]])
    allowed = [sum(p) for p in all_paths(everything, np.append(to_goal, direct), count) if max(p) <= limit]
    path = routes_of(lengths, to_goal).path(from_here, direct, limit)
    if path is None:
        assert not allowed
        return
    edges = [direct]
    if path:
        inner = [lengths[u, v] for u, v in itertools.pairwise(path)]
        edges = [from_here[path[0]], *inner, to_goal[path[-1]]]
    assert max(edges) <= limit
    assert sum(edges) == pytest.approx(min(allowed))


def routes_of(lengths, to_goal):
    graph = Graph(torch.zeros(len(to_goal), 1), torch.zeros(len(to_goal), 1), torch.from_numpy(lengths))
    return Routes(graph, torch.from_numpy(to_goal))


@given(st.integers(1, 6), st.integers(1, 6), st.floats(0, 10), st.data())
def test_aggregation_equals_its_definition(states, vertices, threshold, data):
    number = st.floats(0, 20, width=32)
    rows = st.lists(number, min_size=vertices, max_size=vertices)
    lengths = data.draw(st.lists(rows, min_size=states, max_size=states))
    remaining = data.draw(rows)
    found = aggregate(torch.tensor(lengths), torch.tensor(remaining), threshold)
    for row, total in zip(lengths, found.tolist(), strict=True):
        trusted = [d + r for d, r in zip(row, remaining, strict=True) if d <= np.float32(threshold)]
        nearest = min(row)
        assert total == pytest.approx(min(trusted) if trusted else nearest + remaining[row.index(nearest)])


# Aggregated values of a grid of which everything is known


def full_graph(grid, values, arrival=1.0):
    return Graph(grid.states, grid.states, values.distances(grid.states, grid.states) + arrival)


def aggregated(grid, goal, arrival=1.0, near=0, table=None):
    values = GridValues(grid, table)
    finder = Wayfinder(values, full_graph(grid, values, arrival), grid.states[goal][None], arrival)
    return AggregatedValue(finder, near)


@settings(max_examples=30)
@given(plans(most=5), st.data())
def test_aggregated_exact_values_are_exact(plan, data):
    grid = Grid(plan)
    start, goal = (data.draw(st.integers(0, len(grid) - 1)) for _ in range(2))
    if torch.isinf(grid.distances[start, goal]):
        return
    reachable = torch.isfinite(grid.distances[:, goal])
    found = aggregated(grid, goal).distance(0, grid.states[start], grid.states[reachable], 5)
    # Being at a goal and being a step away have the same value, so lengths are at least one.
    assert found.tolist() == pytest.approx(grid.distances[reachable, goal].clamp(min=1).tolist(), abs=1e-3)


def test_a_goal_out_of_reach_is_told_by_its_value_alone():
    grid = Grid("s.#g")
    start, goal = grid.at("s"), grid.at("g")
    found = aggregated(grid, goal).distance(0, grid.states[start], grid.states[:2], 5)
    assert torch.isinf(found).all()


def test_whereabouts_are_found_once_per_state_and_routes_once_per_goal():
    grid = Grid("......")
    objective = aggregated(grid, 5)
    values = objective.wayfinder.values
    objective.distance(0, grid.states[0], grid.states[:1], 5)
    before = values.evaluated
    objective.distance(0, grid.states[0], grid.states[:1], 5)
    assert values.evaluated - before == len(grid) + 1  # one state to all vertices and the goal
    before = values.evaluated
    objective.distance(0, grid.states[1], grid.states[:1], 5)
    assert values.evaluated - before == 2 * (len(grid) + 1)  # and from where it is


def test_only_the_nearest_vertices_are_looked_at_if_so_asked():
    grid = Grid("." * 12)
    objective = aggregated(grid, 11, near=3)
    objective.distance(0, grid.states[0], grid.states[:1], 5)
    before = objective.wayfinder.values.evaluated
    objective.distance(0, grid.states[0], grid.states[:1], 5)
    assert objective.wayfinder.values.evaluated - before == 4


def test_promising_vertices_are_those_on_the_way():
    grid = Grid("." * 21)
    values = GridValues(grid)
    finder = Wayfinder(values, full_graph(grid, values), grid.states[20][None], 1.0)
    objective = AggregatedValue(finder, 5, "promising")
    ahead = objective.distance(0, grid.states[10], grid.states[10:14], 4)
    assert ahead.tolist() == pytest.approx([10, 9, 8, 7], abs=1e-3)


def test_more_trust_lets_longer_edges_count():
    # Straight to the goal takes 3 steps, by way of the vertex 4, of which no edge takes more than 2.
    grid = Grid("...")
    steps = torch.tensor([[0.0, 2.0, 3.0], [2.0, 0.0, 2.0], [3.0, 2.0, 0.0]])
    values = GridValues(grid, grid.gamma**steps)
    graph = Graph(grid.states[1:2], grid.states[1:2], torch.zeros(1, 1))
    found = []
    for trust in (1.0, 1.5):
        objective = AggregatedValue(Wayfinder(values, graph, grid.states[2:], trust=trust))
        found.append(float(objective.distance(0, grid.states[0], grid.states[:1], 1)))
    assert found == pytest.approx([4, 3], abs=1e-4)


class StretchedValues(GridValues):
    """Values whose edges, arrival included, are so many times as long as they should be."""

    def __init__(self, grid, times):
        super().__init__(grid)
        self.times = times

    def edges(self, states, goals):
        return self.times * (self.distances(states, goals) + 1) - 1


@pytest.mark.parametrize("times", [1.0, 1.5, 3.0])
def test_detours_are_how_many_times_as_long_ways_are_as_values_say(times):
    grid = Grid("." * 15)
    values, config = StretchedValues(grid, times), GraphConfig(arrival=1.0, calibrated=True)
    graph = Graph(grid.states, grid.states, values.edges(grid.states, grid.states) + 1)
    goals = grid.states[[0, 7, 14]]
    assert detour(graph, values, goals, config, torch.Generator().manual_seed(0)) == pytest.approx(times)


def test_where_every_way_is_a_single_edge_there_are_no_detours():
    grid = Grid("..")
    values = StretchedValues(grid, 2.0)
    graph = Graph(grid.states, grid.states, values.edges(grid.states, grid.states) + 1)
    found = detour(graph, values, grid.states, GraphConfig(arrival=1.0), torch.Generator().manual_seed(0))
    assert found == 1.0


def test_detours_make_distances_shorter_and_plans_no_different():
    grid = Grid("." * 12)
    found = []
    for times in (1.0, 1.5):
        objective = aggregated(grid, 11)
        objective.wayfinder.graph = replace(objective.wayfinder.graph, detour=times)
        found.append(objective.distance(0, grid.states[3], grid.states, 5))
    assert (found[0] / found[1]).tolist() == pytest.approx([1.5] * 12)
    assert found[0].argsort().equal(found[1].argsort())


def test_a_graph_comes_back_as_it_was_kept():
    grid = Grid("....")
    graph = replace(full_graph(grid, GridValues(grid)), detour=1.25)
    again = Graph.from_state(graph.state(), torch.device("cpu"))
    assert again.detour == 1.25
    assert all(
        torch.equal(getattr(again, name), getattr(graph, name)) for name in ("states", "targets", "lengths")
    )


def test_the_next_subgoal_is_the_first_vertex_of_the_shortest_path():
    grid = Grid("." * 9)
    values = GridValues(grid)
    vertices = grid.states[[0, 3, 6]]
    graph = Graph(vertices, vertices, values.distances(vertices, vertices) + 1)
    finder = Wayfinder(values, graph, grid.states[8][None], 1.0)
    assert NextSubgoal(finder, 4.0).subgoal(0, grid.states[1]).tolist() == [0, 3]
    assert NextSubgoal(finder, 4.0).subgoal(0, grid.states[6]).tolist() == [0, 8]
    assert NextSubgoal(finder, 1.0).subgoal(0, grid.states[1]).tolist() == [0, 8]  # no path: the goal itself


def test_a_planner_is_told_values_of_all_slots():
    grid = Grid("." * 9)
    values = GridValues(grid)
    goals = grid.states[[8, 0]]
    objective = AggregatedValue(Wayfinder(values, full_graph(grid, values), goals, 1.0))
    states = grid.states[[4, 4]]
    actions = torch.tensor([0.0, 1.0]).expand(2, 1, 3, 2)
    worth = objective(grid.rollout(states, actions, [], disagreement=False), actions, torch.tensor([0, 1]))
    assert worth[:, 0].tolist() == pytest.approx([grid.gamma**1, grid.gamma**7], rel=1e-3)


def two_particles(grid, first, last):
    """An imagined trajectory of one step, of two particles that begin together and end apart."""
    states = torch.stack([grid.states[[first, first]], grid.states[list(last)]], 1)  # (2, 2, obs)
    return Rollout(states[None, None], None, torch.zeros(1, 1))


def test_values_of_particles_are_averaged_or_their_mean_is_valued():
    grid = Grid("." * 9)
    objective, here = aggregated(grid, 8), (torch.zeros(1, 1, 1, 2), torch.tensor([0]))
    rollout = two_particles(grid, 2, (3, 7))
    each = objective(rollout, *here).item()
    objective.valuing = "mean"
    together = objective(rollout, *here).item()
    assert each == pytest.approx((grid.gamma**5 + grid.gamma**1) / 2, rel=1e-3)
    assert together == pytest.approx(grid.gamma**3, rel=1e-3)


# Goals that are a part of the state


def memory_distances(whole):
    """Aggregated and true steps from every state that remembers 0 to the goal of remembering 1."""
    values = MemoryValues(places=6)
    achieved, goal = values.states[:, 1:], torch.tensor([[1.0]])
    targets = values.whole_goals(values.states, achieved) if whole else values.task_goals(achieved)
    graph = Graph(values.states, targets, values.distances(values.states, targets) + 1)
    objective = AggregatedValue(Wayfinder(values, graph, goal, 1.0))
    starts = values.states[values.states[:, 1] == 0]
    found = [objective.distance(0, state, state[None], 3).item() for state in starts]
    return found, (values.distances(starts, goal)[:, 0] + 1).tolist()


def test_goals_that_are_a_part_of_the_state_let_vertices_teleport():
    found, true = memory_distances(whole=False)
    assert true == [5, 4, 3, 2, 1]
    assert max(found) <= 2  # the vertex beside the end has the same goal as all states that remember 0


def test_whole_states_as_goals_close_the_hole():
    found, true = memory_distances(whole=True)
    assert found == pytest.approx(true)


# Vertices


def test_vertices_are_drawn_where_data_are_sparse():
    density = torch.tensor([0.01] * 20 + [1.0] * 980)
    generator = torch.Generator().manual_seed(0)
    rare = [int((draw_sparse(density, 40, generator) < 20).sum()) for _ in range(50)]
    assert np.mean(rare) > 15  # of 20; uniformly it would be 0.8


def test_no_vertex_is_drawn_twice():
    chosen = draw_sparse(torch.rand(30), 30, torch.Generator().manual_seed(1))
    assert chosen.tolist() == list(range(30))
