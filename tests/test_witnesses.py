"""Witnesses: edges that the triangle inequality shows to be too short."""

import math

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from curioplan.graph import Graph, Wayfinder
from curioplan.graph.witnesses import Witnesses
from exact_values import GridValues
from gridworld import Grid, plans

WALL = """
...........
.#########.
...........
"""


@settings(max_examples=50)
@given(plans(most=5), st.integers(0, 8))
def test_true_distances_stay_as_they_are(plan, count):
    distances = Grid(plan).distances
    assert torch.equal(Witnesses(distances, count).correct(distances), distances)


@given(st.integers(1, 7), st.integers(1, 4), st.integers(0, 6), st.integers(0, 2**31))
def test_lengths_are_raised_to_what_three_quarters_of_the_witnesses_agree_to(vertices, goals, count, seed):
    rng = np.random.default_rng(seed)
    between, to_goals = rng.uniform(0, 10, (vertices, vertices)), rng.uniform(0, 10, (vertices, goals))
    found = Witnesses(torch.tensor(between), count).correct(torch.tensor(to_goals)).numpy()
    for v in range(vertices):
        nearest = sorted((u for u in range(vertices) if u != v), key=lambda u, v=v: between[u, v])[:count]
        for g in range(goals):
            said = sorted(to_goals[u, g] - between[u, v] for u in nearest)
            agreed = said[math.ceil(0.75 * len(said)) - 1] if said else -math.inf
            assert found[v, g] == max(to_goals[v, g], agreed)


def test_what_is_out_of_reach_bears_witness_of_nothing():
    apart = torch.tensor([[0.0, math.inf], [math.inf, 0.0]])
    assert Witnesses(apart, 1).correct(apart).tolist() == apart.tolist()


def leaking(grid, cell, goal):
    """Values that are exact but for one cell, which takes the goal behind a wall for a step away."""
    table = grid.optimal.clone()
    table[cell, goal] = 1
    return GridValues(grid, table)


def test_a_vertex_that_alone_claims_to_be_near_is_not_believed():
    grid = Grid(WALL)
    cell, goal = grid.number(torch.tensor([[0.0, 5.0], [2.0, 5.0]])).tolist()
    values = leaking(grid, cell, goal)
    lengths = values.distances(grid.states, grid.states) + 1
    assert lengths[cell, goal] == 1
    assert Witnesses(lengths, 4).correct(lengths)[cell, goal] > grid.distances[cell, goal] - 5


def test_paths_go_around_the_wall_that_values_leak_through():
    grid = Grid(WALL)
    start, cell, goal = grid.number(torch.tensor([[0.0, 3.0], [0.0, 5.0], [2.0, 5.0]])).tolist()
    values = leaking(grid, cell, goal)
    exact = grid.gamma ** (grid.distances - 1).clamp(min=0)
    graph = Graph(grid.states, grid.states, exact.log() / math.log(grid.gamma) + 1)
    ends = []
    for witnesses in (0, 4):
        finder = Wayfinder(values, graph, grid.states[goal][None], 1.0, witnesses=witnesses)
        here = finder.locate(0, grid.states[start])
        path = finder.routes(0).path(here.from_here, here.direct, here.threshold)
        ends.append(path[-1])
    assert ends[0] == cell  # through the wall
    assert grid.distances[ends[1], goal] <= 1
