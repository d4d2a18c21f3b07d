"""The grid of known values, on which others are judged, held against independent reckoning."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import shortest_path

from curioplan.analysis.values import along_path, expected_value
from curioplan.config import PlannerConfig
from curioplan.planning import Dynamics, GoalValue, Planner
from gridworld import REST, Grid, plans

ROOM = """
a..#.
.#.#.
.#...
.#>.b
"""

HALL = """
..............
s............g
..............
"""


def test_the_larger_component_of_an_action_decides_unless_a_wall_is_in_the_way():
    grid, start = Grid(ROOM), torch.tensor([[2.0, 2.0]])
    for action, expected in (
        ([-0.9, 0.5], [1, 2]),
        ([0.3, 0.2], [3, 2]),
        ([0.1, 0.8], [2, 3]),
        ([0.1, -0.8], [2, 2]),
        ([REST, -REST], [2, 2]),
    ):
        assert grid.step(start, torch.tensor([action])).tolist() == [expected]


def test_an_arrow_is_left_its_way_only():
    grid, arrow = Grid(ROOM), torch.tensor([[3.0, 2.0]])
    reached = {
        tuple(grid.step(arrow, torch.tensor([a]))[0].tolist()) for a in ([-1.0, 0], [1, 0], [0, -1], [0, 1])
    }
    assert reached == {(3, 2), (3, 3)}
    above = grid.number(torch.tensor([2.0, 2.0]))
    assert grid.distances[above, grid.number(arrow[0])] == 1
    assert grid.distances[grid.number(arrow[0]), above] == 3


def test_uniformly_random_actions_take_all_four_directions_alike():
    grid = Grid("...\n...\n...")
    actions = 2 * torch.rand(40_000, 2, generator=torch.Generator().manual_seed(0)) - 1
    reached = grid.number(grid.step(torch.ones(40_000, 2), actions))
    shares = torch.bincount(reached, minlength=9) / 40_000
    expected = torch.zeros(9)
    expected[[1, 3, 5, 7]], expected[4] = (1 - REST**2) / 4, REST**2
    torch.testing.assert_close(shares, expected, atol=0.01, rtol=0)


def test_a_rollout_is_a_sequence_of_steps():
    grid = Grid(ROOM)
    actions = 2 * torch.rand(2, 5, 7, 2, generator=torch.Generator().manual_seed(0)) - 1
    starts = grid.states[[grid.at("a"), grid.at("b")]]
    rollout = grid.rollout(starts, actions, [], disagreement=False)
    assert isinstance(grid, Dynamics)
    assert rollout.states.shape == (2, 5, 1, 8, 2)
    torch.testing.assert_close(rollout.states[:, :, 0, 0], starts[:, None].expand(-1, 5, -1))
    for step in range(7):
        after = grid.step(rollout.states[:, :, 0, step], actions[:, :, step])
        torch.testing.assert_close(rollout.states[:, :, 0, step + 1], after)


@settings(deadline=None)
@given(plan=plans())
def test_distances_are_shortest_paths(plan):
    grid = Grid(plan)
    starts = np.tile(np.arange(len(grid)), 5)
    graph = csr_matrix((np.ones(len(starts)), (starts, grid.successors.flatten().numpy())))
    np.testing.assert_array_equal(grid.distances.numpy(), shortest_path(graph, unweighted=True))


@settings(deadline=None)
@given(plan=plans())
def test_optimal_values_solve_the_bellman_equation(plan):
    grid = Grid(plan)
    arrived = torch.eye(len(grid))
    outcome = arrived + grid.gamma * (1 - arrived) * grid.optimal  # of arriving in a cell, (cells, goals)
    torch.testing.assert_close(outcome[grid.successors].amax(0), grid.optimal)


@settings(deadline=None)
@given(plan=plans())
def test_shortest_ways_are_as_long_as_their_distance_and_worth_what_they_should_be(plan):
    grid = Grid(plan)
    goal = len(grid) - 1
    for start in grid.distances[:, goal].isfinite().nonzero().flatten().tolist():
        way = grid.path(start, goal)
        assert len(way) - 1 == grid.distances[start, goal]
        values, expected = along_path(grid.value(), grid.states[way], grid.states[goal], grid.gamma)
        np.testing.assert_allclose(values, expected, rtol=1e-5)
        np.testing.assert_allclose(
            values, expected_value(grid.distances[way, goal].numpy(), grid.gamma), rtol=1e-5
        )


@settings(deadline=None)
@given(plan=plans(), data=st.data())
def test_a_planted_optimum_has_its_depth_and_is_the_only_one(plan, data):
    grid = Grid(plan)
    goal = data.draw(st.integers(0, len(grid) - 1))
    away = grid.distances[:, goal]
    far = ((away >= 3) & away.isfinite()).nonzero().flatten().tolist()
    if far:
        cell = data.draw(st.sampled_from(far))
        depth = data.draw(st.integers(1, int(away[cell]) - 2))
        found = grid.depths(grid.planted(grid.optimal, goal, cell, depth), goal)
        assert found[cell] == depth
        assert found.sum() == depth


def test_where_nothing_better_is_that_far_no_optimum_is_planted():
    grid = Grid("s...g")
    with pytest.raises(ValueError, match="exactly 4 steps"):
        grid.planted(grid.optimal, grid.at("g"), grid.at("s"), 3)


@pytest.mark.parametrize(("depth", "escapes"), [(1, True), (3, True), (6, False), (8, False)])
def test_planning_escapes_optima_less_deep_than_its_horizon_and_no_others(depth, escapes):
    grid = Grid(HALL)
    start, goal = grid.at("s"), grid.at("g")
    table = grid.planted(grid.optimal, goal, start, depth)
    config = PlannerConfig(population=300, execute="best", initial_std=0.5)
    planner = Planner(config, 6, grid.low, grid.high, grid, GoalValue(grid.value(table), grid.states[[goal]]))
    planner.reset([0])
    state, best = grid.states[[start]], table[start, goal]
    for _ in range(12):
        state = grid.step(state, planner.act(state))
    assert (grid.value(table)(state, grid.states[[goal]]) > best).item() == escapes
