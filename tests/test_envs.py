"""The contract that all six environments keep, and the particulars of the point-mass ones."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env as gymnasium_check

from curioplan.envs import SHORT_NAMES, make_env, make_task
from curioplan.envs.maze import MAPS
from curioplan.envs.pinpad import triples, zones
from curioplan.envs.point_mass import PointMassEnv, parse_map
from curioplan.envs.waypoints import WaypointController, shortest_path
from curioplan.errors import EnvError

SHAPES = {  # observation, goal, action, episode length, γ, horizons, vertices
    "maze_large": (4, 2, 2, 600, 0.99, 30, 15, 1000),
    "pinpad": (7, 3, 2, 300, 0.99, 30, 10, 100),
    "fetch_push": (25, 3, 4, 50, 0.95, 30, 15, 1000),
    "kitchen": (30, 17, 8, 280, 0.99, 30, 15, 1000),
}


def rollout(env, seed, steps=40, options=None):
    rng = np.random.default_rng(seed)
    observation, _ = env.reset(seed=seed, options=options)
    actions = rng.uniform(-1, 1, (steps, *env.action_space.shape)).astype(np.float32)
    rows = [observation, *(env.step(action)[0] for action in actions)]
    return {key: np.array([row[key] for row in rows]) for key in rows[0]}


def point_mass(name) -> PointMassEnv:
    env = make_env(name).unwrapped
    assert isinstance(env, PointMassEnv)
    return env


@pytest.mark.parametrize("name", SHAPES)
def test_task_has_the_sizes_of_the_paper(name):
    task = make_task(name)
    assert SHAPES[name] == (
        task.observation_dim,
        task.goal_dim,
        task.action_dim,
        task.episode_length,
        task.gamma,
        task.explore_horizon,
        task.reach_horizon,
        task.graph_vertices,
    )


@pytest.mark.parametrize("name", SHORT_NAMES)
@pytest.mark.filterwarnings("ignore:.*Box observation space m(in|ax)imum value is.*infinity.*")
@pytest.mark.filterwarnings("ignore:.*not within the observation space.*")
def test_gymnasium_checker_passes(name):
    env = gym.make(SHORT_NAMES[name]).unwrapped
    gymnasium_check(env, skip_render_check=True)


@pytest.mark.parametrize("name", SHORT_NAMES)
def test_same_seed_and_actions_give_the_same_bits_in_fresh_and_used_environments(name):
    used = make_env(name)
    rollout(used, seed=5)
    first, again, fresh = rollout(used, 3), rollout(used, 3), rollout(make_env(name), 3)
    other = rollout(used, 4)
    for key in first:
        np.testing.assert_array_equal(first[key], again[key])
        np.testing.assert_array_equal(first[key], fresh[key])
    assert not np.array_equal(first["observation"], other["observation"])


@pytest.mark.parametrize("name", SHORT_NAMES)
def test_episodes_never_terminate_and_truncate_at_the_episode_length(name):
    env = make_env(name)
    env.reset(seed=0, options=env.unwrapped.task.cases[0].options(np.random.default_rng(0)))
    for step in range(1, env.unwrapped.task.episode_length + 1):
        _, _, terminated, truncated, _ = env.step(np.zeros(env.action_space.shape, np.float32))
        assert not terminated
        assert truncated == (step == env.unwrapped.task.episode_length)


@pytest.mark.parametrize("name", SHORT_NAMES)
def test_a_state_and_goal_set_through_reset_are_read_back(name):
    env = make_env(name)
    visited = rollout(env, seed=1, steps=25)
    state, goal = visited["observation"][-1], visited["achieved_goal"][0] + 0.01
    observation, info = env.reset(seed=2, options={"state": state, "goal": goal})
    tolerance = 0.3 if name == "pinpad" else 1e-5  # the pinpad shows its history with fresh noise
    np.testing.assert_allclose(observation["observation"], state, atol=tolerance)
    np.testing.assert_array_equal(observation["desired_goal"], goal)
    if name == "pinpad":
        np.testing.assert_array_equal(observation["observation"][:4], state[:4])
    assert info["is_success"] == env.unwrapped.task.success(observation["achieved_goal"], goal)


@pytest.mark.parametrize("name", SHORT_NAMES)
@pytest.mark.parametrize(
    "options", [{"state": [0.0]}, {"goal": ["a"]}, {"start": [1.0]}, {"goal": [np.nan] * 17}, {"state": "x"}]
)
def test_impossible_reset_options_are_refused(name, options):
    with pytest.raises(EnvError, match="reset"):
        make_env(name).reset(seed=0, options=options)


@pytest.mark.parametrize("name", SHORT_NAMES)
def test_success_and_goals_work_alike_on_arrays_and_tensors(name):
    task = make_task(name)
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(5, 7, task.observation_dim))
    goals = task.goal_of(observations) + 0.1 * rng.normal(size=(5, 7, task.goal_dim))
    by_array = task.success(task.goal_of(observations), goals)
    by_tensor = task.success(task.goal_of(torch.tensor(observations)), torch.tensor(goals))
    assert by_array.shape == (5, 7)
    np.testing.assert_array_equal(by_array, by_tensor.numpy())
    assert task.success(goals, goals).all()
    env = make_env(name)
    np.testing.assert_array_equal(
        env.get_wrapper_attr("compute_reward")(task.goal_of(observations), goals, {}), by_array
    )


@pytest.mark.parametrize("name", ["maze_umaze", "maze_medium", "maze_large", "pinpad"])
def test_frames_show_the_scene_and_change_as_it_moves(name):
    env = make_env(name, render_mode="rgb_array")
    env.reset(seed=0)
    before = env.render()
    for _ in range(15):
        env.step(np.ones(env.action_space.shape, np.float32))
    after = env.render()
    env.close()
    assert before.dtype == np.uint8
    assert before.ndim == 3
    assert before.shape[2] == 3
    assert before.std() > 10
    assert (before != after).any()


def test_large_maze_has_46_free_cells_and_coverage_numbers_them():
    task = make_task("maze_large")
    assert task.coverage is not None
    free = parse_map(MAPS["maze_large"])
    centres = np.pad(np.argwhere(free) - 0.2, ((0, 0), (0, 2)))
    assert task.coverage.total == 46
    assert sorted(task.coverage.index(centres)) == list(range(46))
    assert task.coverage.index(np.array([-0.2, -0.2, 0, 0])) == -1


def test_ball_gains_the_stated_speed_and_stops_at_walls():
    env = point_mass("maze_large")
    env.reset(seed=0, options={"state": [2.8, 0.8, 0, 0], "goal": [0, 0]})
    speeds = [env.step(np.array([0, 1], np.float32))[0]["observation"][3] for _ in range(60)]
    assert speeds[0] == pytest.approx(0.238, abs=1e-3)
    assert max(speeds) == pytest.approx(5.23, abs=0.02)
    for _ in range(200):
        row = env.step(np.array([0, 1], np.float32))[0]["observation"]
    assert row[1] == pytest.approx(6.2, abs=0.01)  # cell (3, 6) ends at 6.3, less the radius
    env.reset(seed=0, options={"state": [2.8, 0.8, 0, 0], "goal": [0, 0]})
    times = {}
    for step in range(1, 80):
        position = env.step(np.array([0, 1], np.float32))[0]["observation"][1]
        for cell in (1, 2, 3):
            if position >= 0.8 + cell:
                times.setdefault(cell, step)
    assert times[1] == pytest.approx(30, abs=1)
    assert times[3] - times[2] == pytest.approx(19.5, abs=1)


def test_starts_of_the_maze_have_the_stated_distribution():
    env = point_mass("maze_large")
    starts = np.array([env.reset(seed=seed)[0]["observation"] for seed in range(400)])
    assert np.abs(starts[:, :2] - 1).max() < 0.1
    assert np.abs(starts[:, :2] - 1).max() > 0.095
    assert starts[:, 2:].std() == pytest.approx(0.1, rel=0.15)


@pytest.mark.parametrize(("goal", "steps"), [((1, 10), 226), ((7, 1), 126), ((5, 4), 257)])
def test_waypoint_controller_reaches_the_goals_of_the_large_maze_in_the_known_time(goal, steps):
    env = point_mass("maze_large")
    controller = WaypointController(env.free)
    for seed in range(3):
        observation, info = env.reset(seed=seed, options={"goal": goal})
        taken = 0
        while not info["is_success"]:
            action = controller.act(observation["observation"], np.array(goal))
            observation, _, _, _, info = env.step(action)
            taken += 1
            assert taken < 600
        assert taken == pytest.approx(steps, rel=0.25)


@pytest.mark.parametrize("name", ["maze_umaze", "maze_medium", "maze_large"])
def test_waypoint_controller_reaches_every_case(name):
    env = make_env(name)
    controller = WaypointController(env.unwrapped.free)
    for case in env.unwrapped.task.cases:
        observation, _ = env.reset(seed=0, options=case.options(np.random.default_rng(0)))
        done = reached = False
        while not done and not reached:
            action = controller.act(observation["observation"], observation["desired_goal"])
            observation, _, _, done, info = env.step(action)
            reached = info["is_success"]
        assert reached


def test_shortest_path_matches_distances_computed_by_relaxation():
    free = parse_map(MAPS["maze_medium"])
    cells = [tuple(cell) for cell in np.argwhere(free).tolist()]
    distance = {cell: 0 if cell == cells[0] else 99 for cell in cells}
    for _ in cells:
        for i, j in cells:
            near = [(i + 1, j), (i - 1, j), (i, j + 1), (i, j - 1)]
            distance[i, j] = min([distance[i, j], *(1 + distance.get(cell, 99) for cell in near)])
    for cell in cells:
        path = shortest_path(free, cells[0], cell)
        assert len(path) - 1 == distance[cell]
        assert all(free[step] for step in path)


def test_a_start_inside_a_wall_is_refused():
    with pytest.raises(EnvError, match="inside a wall"):
        make_env("maze_large").reset(options={"state": [1.8, 1.8, 0, 0]})


def test_maze_cases_are_the_frozen_goals():
    goals = [case.goal for case in make_task("maze_large").cases]
    assert goals == [(1, 10), (7, 1), (5, 4)]


def test_pinpad_cases_are_the_twelve_goals_from_the_centre():
    task = make_task("pinpad")
    goals = {case.goal for case in task.cases}
    assert len(task.cases) == 12
    assert goals == {(a, b, a) for a in range(1, 5) for b in range(1, 5) if a != b}
    states = np.array([case.options(np.random.default_rng(k))["state"] for k, case in enumerate(task.cases)])
    assert np.abs(states[:, :2] - 1.8).max() <= 0.1
    np.testing.assert_array_equal(states[:, 2:], np.tile([0, 0, 2, 3, 4], (12, 1)))


def test_pinpad_history_follows_a_scripted_walk():
    env = make_env("pinpad")
    observation, _ = env.reset(seed=0, options={"state": [0.8, 0.8, 0, 0, 1, 2, 3], "goal": [1, 2, 3]})
    expected = [1, 2, 3]  # starting inside a zone is not entering it
    presses = []
    corners = {1: (0.8, 0.8), 2: (0.8, 2.8), 3: (2.8, 2.8), 4: (2.8, 0.8), 0: (1.8, 0.8)}
    zone = 1
    for target in (0, 1, 2, 3, 4, 0, 4, 1, 2, 1):
        for _ in range(150):
            offset = np.array(corners[target]) - observation["observation"][:2]
            force = 3 * offset - 1.5 * observation["observation"][2:4]
            observation, _, _, _, _ = env.step(np.clip(force, -1, 1).astype(np.float32))
            here = int(zones(observation["observation"][:2]))
            if here and here != zone and here != expected[-1]:
                expected = [*expected[1:], here]
                presses.append(here)
            zone = here
            np.testing.assert_allclose(observation["observation"][4:], expected, atol=0.3)
            np.testing.assert_array_equal(observation["observation"][4:], observation["achieved_goal"])
    assert presses == [1, 2, 3, 4, 1, 2, 1]  # leaving zone 4 and coming back presses nothing new


def test_pinpad_noise_is_fresh_and_of_the_stated_size():
    env = make_env("pinpad")
    env.reset(seed=0, options={"state": [1.8, 1.8, 0, 0, 2, 3, 4]})
    still = np.zeros(2, np.float32)
    noise = np.array([env.step(still)[0]["observation"][4:] for _ in range(299)]) - [2, 3, 4]
    assert noise.std() == pytest.approx(0.05, rel=0.1)
    assert len(np.unique(noise)) == noise.size


def test_pinpad_starts_cover_nine_cells_and_valid_histories():
    env = make_env("pinpad")
    starts = np.array([env.reset(seed=seed)[0]["observation"] for seed in range(600)])
    cells = {tuple(cell) for cell in np.round(starts[:, :2] + 0.2).astype(int).tolist()}
    assert cells == {(i, j) for i in (1, 2, 3) for j in (1, 2, 3)}
    assert set(triples(starts).tolist()) == set(range(36))


def test_pinpad_triples_are_numbered_once_each_and_invalid_ones_refused():
    valid = [(a, b, c) for a in range(1, 5) for b in range(1, 5) for c in range(1, 5) if a != b != c]
    rows = np.pad(np.array(valid, dtype=float), ((0, 0), (4, 0)))
    assert sorted(triples(rows)) == list(range(36))
    bad = np.pad(np.array([[1, 1, 2], [0, 1, 2], [3, 5, 1], [2, 4, 4]], dtype=float), ((0, 0), (4, 0)))
    assert (triples(bad) == -1).all()
    with pytest.raises(EnvError, match="history"):
        make_env("pinpad").reset(options={"state": [1.8, 1.8, 0, 0, 2, 2, 4]})


@pytest.mark.parametrize(("name", "cases"), [("maze_umaze", 3), ("maze_large", 3), ("pinpad", 12)])
def test_doing_nothing_reaches_no_goal(name, cases):
    env = make_env(name)
    assert len(env.unwrapped.task.cases) == cases
    for case in env.unwrapped.task.cases:
        _, info = env.reset(seed=0, options=case.options(np.random.default_rng(0)))
        done = False
        while not done:
            assert not info["is_success"]
            _, _, _, done, info = env.step(np.zeros(2, np.float32))
