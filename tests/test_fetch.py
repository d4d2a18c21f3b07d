"""FetchPush: the dynamics of Gymnasium-Robotics, a state that can be set, and 24 frozen cases."""

import gymnasium as gym
import mujoco
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from gymnasium_robotics.envs.fetch.push import MujocoFetchPushEnv
from gymnasium_robotics.utils.rotations import euler2mat

from curioplan.envs.fetch import CASES, GRIPPER, TABLE_HEIGHT, TASK, FetchPush, damped_least_squares
from curioplan.errors import EnvError

ARM = slice(6, 13)  # of qpos


@pytest.fixture(scope="module")
def env():
    return FetchPush()


def random_actions(seed, steps=50):
    return np.random.default_rng(seed).uniform(-1, 1, (steps, 4)).astype(np.float32)


def pushing_actions(seed, steps=50):
    """The same direction for ten steps at a time, which stretches the arm and lifts it off its limits."""
    rng = np.random.default_rng(seed)
    return np.repeat(np.clip(rng.uniform(-1.5, 1.5, (steps // 10, 4)), -1, 1), 10, axis=0).astype(np.float32)


def rollout(env, actions, seed=None, options=None):
    first, _ = env.reset(seed=seed, options=options)
    return np.array([first["observation"], *(env.step(action)[0]["observation"] for action in actions)])


@pytest.mark.filterwarnings("ignore:.*Box observation space m(in|ax)imum value is.*infinity.*")
@pytest.mark.usefixtures("graphics")
def test_gymnasium_checker_passes_with_frames():
    check_env(gym.make("curioplan/FetchPush-v0", render_mode="rgb_array").unwrapped)


def test_without_options_it_is_fetch_push_v4_bit_for_bit(env):
    reference = MujocoFetchPushEnv()
    for seed in range(4):
        goal = env.reset(seed=seed)[0]["desired_goal"]
        np.testing.assert_array_equal(goal, reference.reset(seed=seed)[0]["desired_goal"])
        actions = random_actions(seed)
        np.testing.assert_array_equal(rollout(env, actions, seed), rollout(reference, actions, seed))


def test_a_case_gives_the_same_bits_whatever_was_done_before_and_whatever_the_seed(env):
    options, actions = TASK.cases[3].options(np.random.default_rng(0)), pushing_actions(0)
    fresh = rollout(FetchPush(), actions, 1, options)
    rollout(env, pushing_actions(1), 7)
    np.testing.assert_array_equal(fresh, rollout(env, actions, 2, options))
    np.testing.assert_array_equal(fresh, rollout(env, actions, None, options))


@pytest.mark.usefixtures("graphics")
def test_rendering_does_not_change_the_episode(env):
    watched = FetchPush(render_mode="rgb_array")
    watched.reset(seed=0)
    actions = random_actions(0, steps=5)
    seen = []
    for action in actions:
        watched.render()
        seen.append(watched.step(action)[0]["observation"])
    watched.close()
    np.testing.assert_array_equal(rollout(env, actions, 0)[1:], seen)


def test_states_visited_by_rollouts_are_read_back_in_all_25_entries(env):
    visited = np.concatenate(
        [
            rollout(env, actions(seed), seed)
            for actions in (random_actions, pushing_actions)
            for seed in range(8)
        ]
    )[::5]
    assert np.ptp(visited[:, :3], axis=0).min() > 0.3  # the gripper went places
    assert np.abs(visited[:, 3:6] - visited[0, 3:6]).max() > 0.05
    restored = [env.reset(options={"state": state})[0]["observation"] for state in visited]
    np.testing.assert_allclose(restored, visited, rtol=0, atol=1e-8)


def test_a_tumbling_block_is_read_back(env):
    state = np.array(TASK.cases[0].state)
    state[5] += 0.3
    state[8] += 0.3
    state[11:25] = [0.5, -0.7, 2.0, 0.01, -0.02, 0.03, 0.04, -0.05, 0.06, 0.002, -0.003, 0.004, 1e-4, 2e-4]
    observation = env.reset(options={"state": state})[0]["observation"]
    np.testing.assert_allclose(observation, state, rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    "angles", [(0.3, 2.0, 0.4), (np.float32(np.pi), 0, 0), (0.2, np.float32(np.pi / 2), 1)]
)
def test_angles_outside_their_range_are_read_back_as_the_same_rotation(env, angles):
    state = np.array(TASK.cases[0].state)
    state[11:14] = angles
    observation = env.reset(options={"state": state})[0]["observation"]
    np.testing.assert_allclose(euler2mat(observation[11:14]), euler2mat(angles), rtol=0, atol=1e-6)


def test_a_restored_episode_goes_on_as_the_original_did(env):
    actions = random_actions(2, steps=30)
    original = rollout(env, actions, 2)
    again = rollout(env, actions[20:], options={"state": original[20]})
    # Where the posture is not observed it differs a little; a torso at rest alone makes 2.4 mm in one step.
    assert np.abs(again[1, :6] - original[21, :6]).max() < 1e-3
    assert np.abs(again[:, :6] - original[20:, :6]).max() < 5e-3


def test_the_arm_is_left_alone_where_the_gripper_already_is(env):
    env.reset(options={"state": np.array(TASK.cases[0].state)})
    np.testing.assert_array_equal(env.data.qpos[ARM], env.initial_qpos[ARM])
    np.testing.assert_allclose(GRIPPER, env.reset(seed=0)[0]["observation"][:3], rtol=0, atol=1e-9)


def test_the_gripper_keeps_its_orientation_where_the_arm_allows(env):
    env.reset(seed=0)
    upright = env.data.site("robot0:grip").xmat.copy()
    state = np.array(TASK.cases[0].state)
    for offset in ([0.1, 0.1, 0.1], [-0.1, 0.15, 0.05], [0.05, -0.2, 0.2]):
        moved = state.copy()
        moved[:3] += offset
        moved[6:9] -= offset
        env.reset(options={"state": moved})
        np.testing.assert_allclose(env.data.site("robot0:grip").xmat, upright, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({0: 9.0, 6: -7.654535}, "gripper position"),
        ({6: 0.3}, "relative position"),
        ({3: 1.3, 20: 0.1}, "relative position"),
    ],
)
def test_observations_of_no_simulator_state_are_refused(env, change, message):
    state = np.array(TASK.cases[0].state)
    state[list(change)] = list(change.values())
    with pytest.raises(EnvError, match=message):
        env.reset(options={"state": state})


def test_a_given_goal_leaves_the_start_as_drawn(env):
    drawn, _ = env.reset(seed=5)
    observation, info = env.reset(seed=5, options={"goal": drawn["achieved_goal"] + [0.04, 0, 0]})
    np.testing.assert_array_equal(observation["observation"], drawn["observation"])
    np.testing.assert_array_equal(observation["desired_goal"], drawn["achieved_goal"] + [0.04, 0, 0])
    assert info["is_success"] is True
    _, reward, terminated, truncated, info = env.step(np.zeros(4, np.float32))
    assert (reward, terminated, truncated, info) == (1.0, False, False, {"is_success": True})


def test_cases_are_the_frozen_draw():
    rng = np.random.default_rng(0)
    centre = np.array([1.345507106, 0.749025249])
    for (block, goal), case in zip(CASES, TASK.cases, strict=True):
        drawn_goal = centre + rng.uniform(-0.15, 0.15, 3)[:2]
        drawn_block = centre
        while np.linalg.norm(drawn_block - centre) < 0.1:
            drawn_block = centre + rng.uniform(-0.15, 0.15, 2)
        np.testing.assert_allclose((block, goal), (drawn_block, drawn_goal), rtol=0, atol=1e-6)
        assert case.goal == (*goal, TABLE_HEIGHT)
        assert case.state[:6] == (*GRIPPER, *block, TABLE_HEIGHT)
        assert case.state[9:] == (0.0,) * 16
    assert len({case.name for case in TASK.cases}) == 24


def test_doing_nothing_solves_the_two_cases_that_start_solved(env):
    solved = []
    for case in TASK.cases:
        _, info = env.reset(seed=0, options=case.options(np.random.default_rng(0)))
        success = info["is_success"]
        for _ in range(TASK.episode_length):
            _, reward, _, _, info = env.step(np.zeros(4, np.float32))
            assert reward == info["is_success"]
            success |= info["is_success"]
        solved.append(success)
    assert np.flatnonzero(solved).tolist() == [16, 22]


def test_success_is_within_5_cm_on_arrays_and_tensors(env):
    desired = np.array(TASK.cases[0].goal)
    achieved = desired + np.array([[[0, 0, 0], [0.049, 0, 0]], [[0.036, 0.036, 0], [0, 0, 0.051]]])
    expected = np.array([[True, True], [False, False]])
    np.testing.assert_array_equal(TASK.success(achieved, desired), expected)
    assert torch.equal(TASK.success(torch.tensor(achieved), torch.tensor(desired)), torch.tensor(expected))
    np.testing.assert_array_equal(env.compute_reward(achieved, desired, {}), expected.astype(float))


@pytest.mark.usefixtures("graphics")
def test_frames_show_the_goal_and_the_motion():
    env = FetchPush(render_mode="rgb_array")
    options = TASK.cases[1].options(np.random.default_rng(0))
    env.reset(options=options)
    first = env.render()
    assert first.dtype == np.uint8
    assert first.shape == (480, 480, 3)
    assert first.std() > 30
    env.reset(options=options | {"goal": TASK.cases[2].options(np.random.default_rng(0))["goal"]})
    other_goal = env.render()
    assert 50 < (first != other_goal).any(-1).sum() < 2000  # the marker, twice
    for _ in range(5):
        env.step(np.array([-1, 1, 1, 0], np.float32))
    assert (env.render() != other_goal).any(-1).sum() > 5000
    env.close()
    assert (env.render() == env.render()).all()  # frames come again after close
    env.close()
    assert FetchPush().render() is None


@pytest.mark.usefixtures("graphics")
def test_missing_opengl_is_told_in_one_sentence(monkeypatch):
    def no_context(width, height):
        raise ImportError("Cannot initialize a EGL device display.")

    monkeypatch.setattr(mujoco.gl_context, "GLContext", no_context)
    env = FetchPush(render_mode="rgb_array")
    env.reset(seed=0)
    with pytest.raises(EnvError, match="libegl1"):
        env.render()
    monkeypatch.undo()
    assert env.render().std() > 30
    env.close()


@pytest.mark.usefixtures("graphics")
def test_close_frees_the_graphics_memory(monkeypatch):
    alive = set()

    class Context(mujoco.gl_context.GLContext):
        def __init__(self, width, height):
            super().__init__(width, height)
            alive.add(id(self))

        def free(self):
            super().free()
            alive.discard(id(self))

    monkeypatch.setattr(mujoco.gl_context, "GLContext", Context)
    env = FetchPush(render_mode="rgb_array")
    env.reset(seed=0)
    env.render()
    env.render()
    assert len(alive) == 1
    env.close()
    assert not alive


def test_damped_least_squares_solves_a_linear_system_within_bounds():
    matrix, target = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]]), np.array([3.0, 0.5])

    def evaluate(x):
        return target - matrix @ x, matrix

    low, high = np.full(3, -1.0), np.full(3, 1.5)
    found = damped_least_squares(evaluate, np.ones(2), np.zeros(3), low, high)
    np.testing.assert_allclose(matrix @ found, target, atol=1e-9)
    assert ((low <= found) & (found <= high)).all()
