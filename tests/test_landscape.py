"""Pictures of value functions: what is asked of them, and that every kind of task gets one."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from curioplan.analysis.landscape import PAIRS, landscape_figure, steps_over_map
from curioplan.data import TrajectoryStore
from curioplan.envs import make_task
from curioplan.errors import DataError

GAMMA = 0.99


def straight(states, goals):
    """Worth γ to the distance as the crow flies, at 20 steps a unit, of the first two dimensions."""
    return GAMMA ** (20 * torch.linalg.norm(states[:, :2] - goals[:, :2], dim=1))


class Recorded:
    def __init__(self):
        self.states, self.goals = [], []

    def __call__(self, states, goals):
        self.states.append(states)
        self.goals.append(goals)
        return straight(states, goals)


def wandering(task, lengths=(30, 8, 30)):
    rng = np.random.default_rng(0)
    store = TrajectoryStore(task.observation_dim, task.goal_dim, task.action_dim)
    for length in lengths:
        states = np.cumsum(rng.normal(0, 0.1, (length + 1, task.observation_dim)), 0)
        store.add_episode(states, np.zeros((length, task.action_dim)), task.goal_of(states))
    return store


@pytest.mark.parametrize("name", ["maze_umaze", "pinpad", "fetch_push", "kitchen"])
def test_every_task_gets_a_picture_that_is_the_same_twice_and_another_for_other_values(name, tmp_path):
    task = make_task(name)
    store = wandering(task)
    for copy, power in (("a", 1), ("b", 1), ("other", 3)):
        landscape_figure(
            lambda states, goals, power=power: straight(states, goals).sin().abs() ** power,
            task,
            tmp_path / f"{copy}.png",
            store=store,
        )
    first, again, other = ((tmp_path / f"{copy}.png").read_bytes() for copy in ("a", "b", "other"))
    assert first == again != other
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")


def test_steps_over_the_map_are_those_of_the_positions_and_none_in_walls():
    task = make_task("maze_umaze")
    plan, case = task.floor_plan, task.cases[0]
    steps = steps_over_map(straight, task, plan, case, GAMMA)
    size = steps.shape[0] // plan.free.shape[0]
    walls = np.kron(~plan.free, np.ones((size, size), bool))
    np.testing.assert_array_equal(np.isnan(steps), walls)
    middles = steps.reshape(5, size, 5, size).mean((1, 3))
    for i, j in np.argwhere(plan.free):
        distance = np.hypot(*(np.array([i, j]) - plan.offset - case.goal))
        assert middles[i, j] == pytest.approx(20 * distance, abs=5)
    corner = (np.array([1.0, 1.0]) - 0.5 + 0.5 / size) - plan.offset
    assert steps[size, size] == pytest.approx(20 * np.hypot(*(corner - case.goal)), rel=1e-4)


def test_steps_are_counted_in_the_discount_of_the_values():
    task = make_task("maze_umaze")
    slow, fast = (
        steps_over_map(straight, task, task.floor_plan, task.cases[0], gamma) for gamma in (0.99, 0.9)
    )
    np.testing.assert_allclose(slow / fast, np.log(0.9) / np.log(0.99) + 0 * slow)


def test_all_but_the_position_is_as_at_the_start_of_the_case(tmp_path):
    value, task = Recorded(), make_task("pinpad")
    landscape_figure(value, task, tmp_path / "values.png")
    states = torch.cat(value.states)
    assert states[:, 2:].unique(dim=0).tolist() == [[0, 0, 2, 3, 4]]
    assert len(states[:, :2].unique(dim=0)) > 500


def test_mazes_are_valued_at_rest_for_the_goals_of_their_cases_in_few_calls(tmp_path):
    value, task = Recorded(), make_task("maze_large")
    landscape_figure(value, task, tmp_path / "values.png")
    assert not torch.cat(value.states)[:, 2:].any()
    asked = {tuple(goal) for goals in value.goals for goal in goals.unique(dim=0).tolist()}
    assert asked == {case.goal for case in task.cases}
    assert len(value.states) == 3


def test_given_goals_are_drawn_instead_in_as_many_rows_as_they_take(tmp_path):
    value, task = Recorded(), make_task("maze_umaze")
    goals = [(1.0, 1.0), (1.0, 2.0), (2.0, 3.0), (3.0, 2.0), (3.0, 1.0)]
    landscape_figure(value, task, tmp_path / "many.png", goals=goals)
    landscape_figure(straight, task, tmp_path / "one.png", goals=goals[:1])
    assert [tuple(asked[0].tolist()) for asked in value.goals] == goals
    with Image.open(tmp_path / "many.png") as many, Image.open(tmp_path / "one.png") as one:
        assert many.height == 2 * one.height
        assert many.width > 2 * one.width
        unused = many.convert("L").crop(
            (many.width // 2, many.height // 2 + 20, many.width * 8 // 10, many.height)
        )
        assert unused.getextrema() == (255, 255)


def test_few_steps_are_bright_and_many_dark(tmp_path):
    task = make_task("maze_umaze")
    landscape_figure(straight, task, tmp_path / "values.png", goals=[(1.0, 1.0)])
    with Image.open(tmp_path / "values.png") as image:
        bright = np.asarray(image.convert("L")).astype(int)
    height, width = bright.shape
    near, far = bright[int(0.28 * height), int(0.22 * width)], bright[int(0.85 * height), int(0.5 * width)]
    assert near > far + 50


@pytest.mark.parametrize("constant", [0.0, 0.3, 1.0, np.nan])
@pytest.mark.parametrize("name", ["maze_umaze", "fetch_push"])
def test_values_that_are_all_alike_or_no_numbers_are_drawn_too(name, constant, tmp_path):
    task = make_task(name)
    landscape_figure(
        lambda states, goals: torch.full((len(states),), constant),
        task,
        tmp_path / "values.png",
        store=wandering(task),
    )
    assert (tmp_path / "values.png").stat().st_size > 1000


def test_without_a_map_later_states_of_the_same_trajectory_are_valued(tmp_path):
    value, task = Recorded(), replace(make_task("maze_umaze"), floor_plan=None)
    store = wandering(task)
    landscape_figure(value, task, tmp_path / "values.png", store=store)
    rows = {tuple(row): number for number, row in enumerate(store.achieved_goals.tolist())}
    lags = []
    for states, goals in zip(value.states, value.goals, strict=True):
        assert len(states) == PAIRS
        starts, ends = (
            np.array([rows[tuple(row)] for row in part.tolist()]) for part in (states[:, :2], goals)
        )
        ahead = set(ends - starts)
        if len(ahead) == 1:
            lags.append(ahead.pop())
            np.testing.assert_array_equal(store.episode_of[starts], store.episode_of[ends])
    assert len(lags) == len(value.states) - 1  # all but the random goals
    assert (lags[0], lags[-1]) == (1, 30)


def test_without_a_map_and_without_data_there_is_nothing_to_draw(tmp_path):
    with pytest.raises(DataError, match="fetch_push has no map"):
        landscape_figure(straight, make_task("fetch_push"), tmp_path / "values.png")
    with pytest.raises(DataError, match="no goals of maze_umaze"):
        landscape_figure(straight, replace(make_task("maze_umaze"), cases=()), tmp_path / "values.png")
    assert not list(tmp_path.iterdir())
