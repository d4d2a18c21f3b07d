"""Users' environments: what is missing is told in plain words, what fits gets a task."""

import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from curioplan.envs import check_env, make_env, make_task
from curioplan.errors import EnvError


class Line(gym.Env):
    """A user's own goal environment: walk along a line."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, dense=False, early=False, noisy=False):
        self.dense, self.early, self.noisy = dense, early, noisy
        box = spaces.Box(-10, 10, (1,), np.float64)
        self.observation_space = spaces.Dict(
            observation=spaces.Box(-10, 10, (2,), np.float64), achieved_goal=box, desired_goal=box
        )
        self.action_space = spaces.Box(-1, 1, (1,), np.float32)

    def compute_reward(self, achieved_goal, desired_goal, info):
        distance = np.linalg.norm(achieved_goal - desired_goal, axis=-1)
        return -distance if self.dense else -(distance > 0.2).astype(float)

    def _observe(self):
        return {
            "observation": np.array([0.5, self.x]),
            "achieved_goal": np.array([self.x]),
            "desired_goal": self.goal,
        }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.goal = 0.0, self.np_random.uniform(-2, 2, 1)
        return self._observe(), {}

    def step(self, action):
        self.x += 0.1 * float(action[0]) + (np.random.default_rng().normal() if self.noisy else 0)
        reached = bool(abs(self.x) > 0.3) and self.early
        return self._observe(), 0.0, reached, False, {}


def limited(env):
    return gym.wrappers.TimeLimit(env, 80)


def make_line():
    return limited(Line())


def texts(env, level):
    return " ".join(finding.text for finding in check_env(env) if finding.level == level)


def test_a_users_environment_by_module_and_callable_gets_a_complete_task():
    task = make_task("test_check_env:make_line")
    assert (task.observation_dim, task.goal_dim, task.action_dim, task.episode_length) == (2, 1, 1, 80)
    assert task.goal_indices == (1,)
    assert task.gamma == 0.95
    assert len(task.cases) == 20
    achieved, desired = np.array([[0.0], [0.5], [1.0]]), np.array([[0.1], [0.1], [1.0]])
    assert task.success(achieved, desired).tolist() == [True, False, True]
    assert task.success(torch.tensor(achieved), torch.tensor(desired)).tolist() == [True, False, True]
    assert not texts(make_line(), "missing")


def test_a_reward_that_knows_no_batches_still_tells_success():
    env = make_line()
    batched = env.unwrapped.compute_reward
    env.unwrapped.compute_reward = lambda a, d, info: float(batched(a.ravel()[:1], d.ravel()[:1], info))
    task = make_task("line", env)
    assert task.success(np.zeros((2, 3, 1)), np.ones((2, 3, 1))).shape == (2, 3)
    assert not task.success(np.zeros((2, 3, 1)), np.ones((2, 3, 1))).any()


@pytest.mark.parametrize("name", ["FetchReach-v4", "PointMaze_UMaze-v3"])
def test_gymnasium_robotics_environments_fit_by_their_id(name):
    env = make_env(name)
    assert not texts(env, "missing")
    task = make_task(name, env)
    observation, _ = env.reset(seed=0)
    assert task.observation_dim == len(observation["observation"])
    assert task.goal_indices is not None
    np.testing.assert_array_equal(task.goal_of(observation["observation"]), observation["achieved_goal"])
    goals = np.stack([observation["achieved_goal"], observation["achieved_goal"] + 5])
    assert task.success(goals, goals[:1]).tolist() == [True, False]


def test_a_goal_that_is_no_part_of_the_observation_is_fine_but_cannot_be_imagined():
    env = make_env("AntMaze_UMaze-v5")
    task = make_task("AntMaze_UMaze-v5", env)
    assert task.goal_indices is None
    assert "not a part of the observation" in texts(env, "note")
    with pytest.raises(EnvError, match="not a part of the observation"):
        task.goal_of(np.zeros((1, task.observation_dim)))


def test_what_is_missing_is_said_for_each_part():
    assert "must be a Dict" in texts(make_env("CartPole-v1"), "missing")
    assert "actions must be a flat Box" in texts(make_env("CartPole-v1"), "missing")
    assert "compute_reward" in texts(make_env("Pendulum-v1"), "missing")
    assert "no length" in texts(Line(), "missing")
    unbounded = limited(Line())
    unbounded.action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    assert "finite bounds" in texts(unbounded, "missing")


def test_what_is_worth_knowing_is_noted():
    assert "dense" in texts(limited(Line(dense=True)), "note")
    assert "end early" in texts(limited(Line(early=True)), "note")
    assert "different trajectories" in texts(limited(Line(noisy=True)), "note")
    assert "does not set the goal" in texts(make_line(), "note")
    assert texts(make_env("maze_umaze"), "note") == ""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("maze_lage", "did you mean maze_large?"),
        ("FetchPsh-v4", "did you mean Fetch"),
        ("qqqqqqqqqqqqqqqq", "curioplan envs lists ours"),
        ("no_such_module:make", "could not be imported"),
        ("test_check_env:nothing", "has no nothing"),
        ("test_check_env:__name__", "is a str"),
        ("test_check_env:texts", "could not be made"),
        ("builtins:dict", "returned a dict"),
        ("no_such_module:Env-v0", "could not be made"),
        ("", "There is no environment"),
    ],
)
def test_an_environment_that_cannot_be_made_gives_one_sentence(name, message):
    with pytest.raises(EnvError, match=message.replace("?", r"\?")) as caught:
        make_env(name)
    assert "\n" not in str(caught.value)


def test_making_an_environment_prints_nothing():
    script = "import curioplan; curioplan.make_env('fetch_push').reset(seed=0)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout == done.stderr == b""


def test_an_environment_without_the_goal_interface_has_no_task():
    with pytest.raises(EnvError, match="CartPole-v1 cannot be used: observations must be a Dict"):
        make_task("CartPole-v1")
