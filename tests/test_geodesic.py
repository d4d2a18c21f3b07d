"""True times in mazes, against the simulator, the scripted expert and brute force on small maps."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from curioplan.analysis.geodesic import DIAGONAL, MazeTimes
from curioplan.envs import make_env, make_task
from curioplan.envs.point_mass import OFFSET, parse_map
from curioplan.envs.task import FloorPlan
from curioplan.envs.waypoints import WaypointController
from curioplan.errors import EnvError

MAZES = ["maze_umaze", "maze_medium", "maze_large"]
U_TURN = "##### #OOO# ###O# #OOO# #####"
HOOK = "###### #OOOO# #O##O# #O#OO# ######"
CORNER = "#### #O## ##O# ####"  # two cells that touch in a point
AROUND = "###### ##OOO# ##O#O# ###OO# ######"
APART = "####### #OO#OO# #######"


def times(text, radius=0.5):
    return MazeTimes(replace(make_task("maze_umaze"), floor_plan=FloorPlan(parse_map(text), OFFSET)), radius)


def at(*cells):
    return np.array(cells, float) - OFFSET


def octile(offset):
    return abs(offset).max() + (DIAGONAL - 1) * abs(offset).min()


def corner_to_corner(free, start, goal):
    """The shortest way over the corners that the ball can touch, by trying all straight lines between."""

    def is_open(places):  # whether the ball, as a square, is clear of walls in all of these
        corners = np.array(list(product((-0.0999, 0.0999), repeat=2)))[:, None] + places + OFFSET
        cells = np.clip(np.round(corners).astype(int), 0, np.array(free.shape) - 1)
        return free[cells[..., 0], cells[..., 1]].all()

    bends = [middle + corner for middle in np.argwhere(~free) for corner in product((-0.6, 0.6), repeat=2)]
    bends = [bend for bend in np.unique(bends, axis=0) - OFFSET if is_open(bend[None])]
    places = [start, goal, *bends]
    length = np.full((len(places), len(places)), np.inf)
    for (i, a), (j, b) in product(enumerate(places), repeat=2):
        if is_open(np.linspace(a, b, 100)):
            length[i, j] = octile(b - a)
    for k in range(len(places)):
        length = np.minimum(length, length[:, k, None] + length[k])
    return length[0, 1]


@pytest.mark.parametrize("speed", [-5.0, -2.0, 0.0, 3.0, 5.0])
def test_in_a_corridor_the_time_is_what_full_thrust_takes_in_the_simulator(speed):
    env = make_env("maze_large").unwrapped
    start, goal = np.array([2.8, 2.3, 0.0, speed]), np.array([2.8, 5.8])
    env.reset(seed=0, options={"state": start, "goal": goal})
    taken = next(n for n in range(1, 200) if env.step(np.array([0.0, 1.0], np.float32))[4]["is_success"])
    assert MazeTimes(env.task).steps(start[None], goal[None])[0] == pytest.approx(taken, abs=1.5)


@pytest.mark.parametrize("name", MAZES)
def test_no_case_takes_the_scripted_expert_less_or_a_fifth_more(name):
    env = make_env(name).unwrapped
    expert = WaypointController(env.free)
    for case in env.task.cases:
        start = np.array([1.0, 1.0, 0.0, 0.0])
        observation, info = env.reset(seed=0, options={"state": start, "goal": np.array(case.goal)})
        taken = 0
        while not info["is_success"]:
            action = expert.act(observation["observation"], observation["desired_goal"])
            observation, *_, info = env.step(action)
            taken += 1
        least = MazeTimes(env.task).steps(start[None], np.array([case.goal]))[0]
        assert least <= taken < 1.25 * least


@pytest.mark.parametrize("text", [U_TURN, HOOK])
def test_lengths_equal_brute_force_over_the_corners_of_the_walls(text):
    free, rng = parse_map(text), np.random.default_rng(0)
    cells = np.argwhere(free)
    places = cells[rng.integers(len(cells), size=(12, 2))] - OFFSET + rng.integers(-2, 3, (12, 2, 2)) / 5
    expected = [corner_to_corner(free, start, goal) for start, goal in places]
    np.testing.assert_allclose(times(text, 0).lengths(places[:, 0], places[:, 1]), expected, atol=1e-5)


def test_between_lattice_points_lengths_are_close_to_brute_force():
    free, rng = parse_map(U_TURN), np.random.default_rng(1)
    cells = np.argwhere(free)
    places = cells[rng.integers(len(cells), size=(12, 2))] - OFFSET + rng.uniform(-0.4, 0.4, (12, 2, 2))
    expected = [corner_to_corner(free, start, goal) for start, goal in places]
    np.testing.assert_allclose(times(U_TURN, 0).lengths(places[:, 0], places[:, 1]), expected, atol=0.1)


def test_the_radius_shortens_a_straight_way_by_itself_and_ends_it_within():
    start, goal = at((1, 1)), at((1, 3))
    for radius in (0.0, 0.25, 0.5):
        assert times(U_TURN, radius).lengths(start, goal)[0] == pytest.approx(2 - radius)
    near, leaving = at((1, 2.51)), [[0.0, -5.0]]
    assert times(U_TURN).steps(np.hstack([near, leaving]), goal)[0] == 0


def test_positions_alone_are_taken_to_be_at_rest():
    start, goal = at((1, 1)), at((3, 1))
    at_rest = np.hstack([start, np.zeros((1, 2))])
    assert times(U_TURN).steps(start, goal) == times(U_TURN).steps(at_rest, goal)


def test_speed_counts_along_the_way_and_not_as_the_crow_flies():
    start, goal = at((1, 2)), at((3, 1))  # below and to the left, but the way leads to the right
    rest, left, right = (
        times(U_TURN).steps(np.hstack([start, [[0.0, speed]]]), goal)[0] for speed in (0.0, -4.0, 4.0)
    )
    assert right < rest < left


def test_running_into_a_wall_gains_nothing():
    start, goal = at((1.4, 1)), at((1, 3))
    pushing = np.hstack([start, [[5.0, 0.0]]])
    assert times(U_TURN).steps(pushing, goal) == times(U_TURN).steps(start, goal)
    start, goal = at((2.4, 2.4)), at((3, 3))  # cells that touch in a point, and the way around is long
    pushing = np.hstack([start, [[5.0, 5.0]]])
    assert times(AROUND).steps(pushing, goal) == times(AROUND).steps(start, goal) > 80


@pytest.mark.parametrize(("text", "start", "goal"), [(APART, (1, 1), (1, 5)), (CORNER, (1, 1), (2, 2))])
def test_without_a_way_the_time_is_infinite_whatever_the_speed(text, start, goal):
    speeds = np.array(list(product((-5.0, 0.0, 5.0), repeat=2)))
    states = np.hstack([np.tile(at(start), (9, 1)), speeds])
    assert np.isposinf(times(text).steps(states, np.tile(at(goal), (9, 1)))).all()


@pytest.mark.parametrize("text", [CORNER, "#### ##O# #O## ####"])
def test_the_ball_does_not_squeeze_between_cells_that_touch_in_a_point(text):
    side = 1 if text == CORNER else -1
    one, other = at((1.41, 1.5 - 0.09 * side)), at((1.59, 1.5 + 0.09 * side))  # pressed into the corner
    for start, goal in ((one, other), (other, one)):
        assert np.isposinf(times(text, radius=0).steps(start, goal)).all()
        assert times(text, radius=0.5).steps(start, goal) == 0  # but so near, the goal counts as reached
        middle = np.round(start + OFFSET) - OFFSET
        assert times(text, radius=0).lengths(start, middle)[0] == pytest.approx(0.4 * DIAGONAL, abs=0.01)


def test_positions_inside_walls_count_as_the_nearest_free_ones():
    goal = at((3, 1))
    inside, nearest = at((1.7, 1)), at((1.4, 1))
    assert times(U_TURN).lengths(inside, goal) == times(U_TURN).lengths(nearest, goal)
    assert np.isfinite(times(U_TURN).lengths(at((-3, 9)), goal)).all()


def test_maps_of_the_same_name_are_not_confused():
    start, goal = at((1, 1)), at((3, 1))
    through = U_TURN.replace("###O#", "#O#O#")
    assert times(U_TURN).steps(start, goal) > 2 * times(through).steps(start, goal)


def test_no_pairs_have_no_times():
    assert times(U_TURN).steps(np.zeros((0, 4)), np.zeros((0, 2))).shape == (0,)


@pytest.mark.parametrize("name", ["pinpad", "fetch_push"])
def test_tasks_without_positions_as_goals_are_refused(name):
    with pytest.raises(EnvError, match=name):
        MazeTimes(make_task(name))
