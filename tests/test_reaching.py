"""Planning over exact values of a grid: what reaches goals, and what T-local optima do to it."""

import pytest
import torch

from curioplan.config import PlannerConfig
from curioplan.graph import AggregatedValue, Graph, NextSubgoal, Wayfinder
from curioplan.planning import GoalValue, Planner, Sparse
from exact_values import GridValues
from gridworld import Grid

ROOMS = """
.....#...b
.....#....
..........
.....#....
a....#....
#.########
.....#....
.....#....
c.......d.
"""
CORRIDOR = "s" + ">" * 58 + "g"  # once left, the start is out of reach: so who stays is trapped
PLANNER = PlannerConfig(population=300, initial_std=0.5)


def graph_of(values, every=1):
    states = values.grid.states[::every]
    return Graph(states, states, values.distances(states, states) + 1)


def objective_of(name, values, goals):
    if name == "mbp":
        return GoalValue(values.value, goals)
    if name == "mbp+sparse":
        return Sparse(lambda achieved, goal: (achieved == goal).all(-1), lambda states: states, goals)
    if name == "mbp+sorb":
        return NextSubgoal(Wayfinder(values, graph_of(values, every=5), goals, 1.0), 12.0)
    return AggregatedValue(Wayfinder(values, graph_of(values), goals, 1.0))


def steps_to(grid, objective, start, goal, horizon, limit):
    """Steps in which a planner gets from one cell to another, or None if it does not within the limit."""
    planner = Planner(PLANNER, horizon, grid.low, grid.high, grid, objective)
    planner.reset([0])
    state = grid.states[start][None]
    for step in range(limit):
        if grid.number(state).item() == goal:
            return step
        state = grid.step(state, planner.act(state))
    return None


@pytest.mark.parametrize("name", ["mbp", "mbp+graph", "mbp+sorb"])
@pytest.mark.parametrize("way", ["ab", "bc", "cd", "da"])
def test_with_exact_values_every_planner_reaches_every_goal(name, way):
    grid = Grid(ROOMS)
    start, goal = map(grid.at, way)
    objective = objective_of(name, GridValues(grid), grid.states[goal][None])
    steps = steps_to(grid, objective, start, goal, 4, 80)
    assert steps is not None
    assert steps <= 1.5 * grid.distances[start, goal] + 2


def test_a_sparse_cost_reaches_what_lies_within_the_horizon_alone():
    grid = Grid("a...b" + "." * 30 + "c")
    near, far = grid.at("b"), grid.at("c")
    for goal, reached in ((near, True), (far, False)):
        objective = objective_of("mbp+sparse", None, grid.states[goal][None])
        assert (steps_to(grid, objective, grid.at("a"), goal, 8, 60) is not None) is reached


def trapped_values(depth):
    """Values of a corridor with a T-local optimum of this depth at its start."""
    grid = Grid(CORRIDOR)
    start, goal = grid.at("s"), grid.at("g")
    table = grid.planted(grid.optimal, goal, start, depth)
    assert grid.depths(table, goal)[start] == depth
    return GridValues(grid, table), start, goal


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_planning_escapes_an_optimum_exactly_if_it_looks_further_than_its_depth(depth):
    values, start, goal = trapped_values(depth)
    objective = objective_of("mbp", values, values.grid.states[goal][None])
    assert steps_to(values.grid, objective, start, goal, depth, 100) is None
    assert steps_to(values.grid, objective, start, goal, depth + 1, 100) is not None


@pytest.mark.parametrize("depth", [3, 10, 40])
def test_aggregation_escapes_optima_deeper_than_the_horizon(depth):
    values, start, goal = trapped_values(depth)
    objective = objective_of("mbp+graph", values, values.grid.states[goal][None])
    steps = steps_to(values.grid, objective, start, goal, 3, 100)
    assert steps is not None
    assert steps <= 1.3 * values.grid.distances[start, goal]


def test_the_graph_ignores_what_an_optimum_promises():
    values, start, goal = trapped_values(40)
    grid = values.grid
    finder = Wayfinder(values, graph_of(values), grid.states[goal][None], 1.0)
    here = finder.locate(0, grid.states[start])
    assert here.direct < 0.5 * grid.distances[start, goal]  # the planted value is far too high
    distance = AggregatedValue(finder).distance(0, grid.states[start], grid.states[start][None], 3)
    assert torch.allclose(distance, grid.distances[start, goal], atol=1e-3)
