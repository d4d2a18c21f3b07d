"""The kitchen: the dynamics of FrankaKitchen-v1 at ten actions per second, and seven objects to move."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from gymnasium_robotics.envs.franka_kitchen import KitchenEnv
from gymnasium_robotics.envs.franka_kitchen.franka_env import FrankaRobot
from gymnasium_robotics.envs.franka_kitchen.kitchen_env import OBS_ELEMENT_GOALS, OBS_ELEMENT_INDICES

from curioplan.envs.kitchen import INITIAL, OBJECTS, TASK, Kitchen


@pytest.fixture(scope="module")
def env():
    return Kitchen()


def random_actions(seed, steps):
    return np.random.default_rng(seed).uniform(-1, 1, (steps, 8)).astype(np.float32)


def rollout(env, actions, seed=None, options=None):
    first, _ = env.reset(seed=seed, options=options)
    return np.array([first["observation"], *(env.step(action)[0]["observation"] for action in actions)])


@pytest.mark.filterwarnings("ignore:.*Box observation space m(in|ax)imum value is.*infinity.*")
@pytest.mark.usefixtures("graphics")
def test_gymnasium_checker_passes_with_frames():
    check_env(gym.make("curioplan/Kitchen-v0", render_mode="rgb_array").unwrapped)


def test_dynamics_and_start_are_those_of_franka_kitchen_without_noise(env, monkeypatch):
    for library in (FrankaRobot, KitchenEnv):
        assert library.metadata["render_fps"] == 12  # ours is set on our class alone
        monkeypatch.setitem(library.metadata, "render_fps", 10)
    reference = KitchenEnv(frame_skip=50, robot_noise_ratio=0.0, object_noise_ratio=0.0)
    joints = [*range(9), *range(18, 39)]
    actions = random_actions(0, 40)
    nine = np.concatenate([actions, actions[:, -1:]], axis=1)
    expected = rollout(reference, nine, 0)[:, joints]
    np.testing.assert_array_equal(rollout(env, actions, 0), expected)


def test_the_same_case_gives_the_same_bits_whatever_was_done_before_and_whatever_the_seed(env):
    options, actions = TASK.cases[5].options(np.random.default_rng(0)), random_actions(1, 30)
    fresh = rollout(Kitchen(), actions, 1, options)
    rollout(env, random_actions(2, 30), 7)
    np.testing.assert_array_equal(fresh, rollout(env, actions, 2, options))
    np.testing.assert_array_equal(fresh, rollout(env, actions, None, options))


def test_the_eighth_action_drives_both_fingers(env):
    env.reset(seed=0)
    for _ in range(20):
        opened = env.step(np.array([0, 0, 0, 0, 0, 0, 0, 1], np.float32))[0]["observation"]
    for _ in range(20):
        closed = env.step(np.array([0, 0, 0, 0, 0, 0, 0, -1], np.float32))[0]["observation"]
    assert (opened[7:9] > 0.03).all()
    assert (closed[7:9] < 0.01).all()


def test_visited_and_made_up_states_are_read_back_exactly_and_at_rest(env):
    visited = rollout(env, random_actions(3, 30), 3)[[10, 20, 30]]
    for state in [*visited, np.array(INITIAL) + 0.01]:
        observation, _ = env.reset(options={"state": state})
        np.testing.assert_array_equal(observation["observation"], state)
        np.testing.assert_array_equal(observation["achieved_goal"], state[list(TASK.goal_indices)])
        assert not env.data.qvel.any()


def test_without_a_goal_one_of_the_seven_is_drawn_from_the_seed(env):
    goals = [tuple(env.reset(seed=seed)[0]["desired_goal"]) for seed in range(40)]
    assert set(goals) == {case.goal for case in TASK.cases}
    assert goals[0] == tuple(env.reset(seed=0)[0]["desired_goal"])


def test_cases_are_those_of_the_library_one_object_at_a_time():
    assert [case.name.split()[0] for case in TASK.cases] == [name.split()[0] for name in OBS_ELEMENT_GOALS]
    assert TASK.goal_indices == tuple(np.concatenate(list(OBS_ELEMENT_INDICES.values())))
    for case, key in zip(TASK.cases, OBS_ELEMENT_GOALS, strict=True):
        expected = np.array(INITIAL)
        expected[OBS_ELEMENT_INDICES[key]] = OBS_ELEMENT_GOALS[key]
        np.testing.assert_array_equal(case.goal, expected[list(TASK.goal_indices)])
        assert case.state == INITIAL
    assert [thing.indices for thing in TASK.objects] == [tuple(x) for x in OBS_ELEMENT_INDICES.values()]


def test_doing_nothing_solves_no_case(env):
    # The start and the motion do not depend on the goal: one idle episode serves all seven.
    states = rollout(env, np.zeros((TASK.episode_length, 8), np.float32), 0)
    goals = np.array([case.goal for case in TASK.cases])
    solved = TASK.success(TASK.goal_of(states)[:, None], goals)  # (step, case)
    assert solved.shape == (TASK.episode_length + 1, 7)
    assert not solved.any()


def test_moving_the_object_solves_its_case_and_no_other(env):
    for name, (joints, target) in OBJECTS.items():
        state = np.array(INITIAL)
        state[list(joints)] = target
        solved = []
        for case in TASK.cases:
            _, info = env.reset(options={"state": state, "goal": case.goal})
            solved.extend([case.name] if info["is_success"] else [])
        assert solved == [name]


def test_reward_is_1_on_success_and_0_otherwise_and_episodes_go_on(env):
    reachable = {"goal": TASK.goal_of(np.array(INITIAL))}
    assert env.reset(options=reachable)[1] == {"is_success": True}
    assert env.step(np.zeros(8, np.float32))[1:] == (1.0, False, False, {"is_success": True})
    assert env.reset(options={"goal": TASK.cases[0].goal})[1] == {"is_success": False}
    assert env.step(np.zeros(8, np.float32))[1:] == (0.0, False, False, {"is_success": False})


def test_every_object_must_be_within_its_own_radius_on_arrays_and_tensors(env):
    desired = np.array(TASK.cases[0].goal)
    achieved = np.tile(desired, (2, 2, 1))
    achieved[0, 1] += 0.1  # near in every object, though 0.41 away over all 17 numbers
    achieved[1, 0, 6] += 0.31  # the slide cabinet alone
    achieved[1, 1, 10:] += 0.12  # the kettle: 0.317 over its seven numbers
    expected = np.array([[True, True], [False, False]])
    np.testing.assert_array_equal(TASK.success(achieved, desired), expected)
    assert torch.equal(TASK.success(torch.tensor(achieved), torch.tensor(desired)), torch.tensor(expected))
    np.testing.assert_array_equal(env.compute_reward(achieved, desired, {}), expected.astype(float))


@pytest.mark.usefixtures("graphics")
def test_frames_show_the_kitchen_and_the_motion():
    env = Kitchen(render_mode="rgb_array")
    env.reset(seed=0)
    first = env.render()
    assert first.dtype == np.uint8
    assert first.shape == (480, 480, 3)
    assert first.std() > 30
    for _ in range(10):
        env.step(np.ones(8, np.float32))
    assert (env.render() != first).any(-1).sum() > 2000  # the arm
    opened = np.array(INITIAL)
    opened[22] = -0.75
    env.reset(options={"state": opened})
    difference = (env.render() != first).any(-1)
    assert difference[:, :240].sum() > 2000  # the microwave, on the left
    assert difference[:, 240:].sum() < 200
    env.close()
    assert Kitchen().render() is None
