"""What is measured and drawn of an exploration, on small cases with known answers."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from curioplan.analysis.exploration import coverage_over_steps, exploration_figure
from curioplan.analysis.model_error import model_error
from curioplan.data import TrajectoryStore, displacements
from curioplan.envs import make_task
from curioplan.seeding import seed_for


def filled(task, episodes=3, length=8, seed=0):
    rng = np.random.default_rng(seed)
    store = TrajectoryStore(task.observation_dim, task.goal_dim, task.action_dim)
    for _ in range(episodes):
        observations = np.cumsum(rng.normal(0, 0.4, (length + 1, task.observation_dim)), 0) + 1.8
        store.add_episode(
            observations, rng.uniform(-1, 1, (length, task.action_dim)), task.goal_of(observations)
        )
    return store


@pytest.mark.parametrize("name", ["maze_large", "pinpad"])
def test_coverage_over_steps_equals_counting_one_state_after_the_other(name):
    task = make_task(name)
    store = filled(task, episodes=5, length=30)
    steps, counts, unit = coverage_over_steps(store, task)
    assert unit == task.coverage.unit
    rows = [(row, number) for number, e in enumerate(store) for row in e.observations]
    visits = [(k - number, int(task.coverage.index(row))) for k, (row, number) in enumerate(rows)]
    for step in range(store.transitions + 1):
        seen = {cell for when, cell in visits if when <= step and cell >= 0}
        assert ([0, *counts][np.searchsorted(steps, step, side="right")]) == len(seen)
    assert steps[-1] == store.transitions


def test_without_a_partition_a_grid_of_goals_is_counted():
    task = replace(make_task("maze_umaze"), coverage=None)
    store = filled(task)
    _, counts, unit = coverage_over_steps(store, task)
    assert "grid" in unit
    assert 1 < counts[-1] <= store.states


def test_displacements_are_the_largest_distance_from_the_start_of_each_episode():
    task = make_task("fetch_push")
    store = filled(task)
    expected = [
        max(np.linalg.norm(row[3:6] - e.observations[0, 3:6]) for row in e.observations) for e in store
    ]
    np.testing.assert_allclose(displacements(store, task.objects[0]), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["maze_umaze", "pinpad", "fetch_push", "kitchen", "unknown"])
def test_every_kind_of_exploration_figure_is_drawn_the_same_twice(name, tmp_path):
    task = (
        replace(make_task("maze_umaze"), coverage=None, floor_plan=None)
        if name == "unknown"
        else make_task(name)
    )
    store = filled(task)
    for copy in ("a", "b"):
        exploration_figure(store, task, tmp_path / f"{copy}.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")


class Exact:
    """A model that knows the dynamics s' = s + b(s, a)."""

    def __init__(self, change):
        self.change, self.elites = change, [0, 1]

    def predict(self, states, actions):
        following = states + self.change(states, actions)
        return torch.stack([following, following]), torch.ones(2, *following.shape)


def rolled(change, episodes=6, length=40, dim=2):
    generator = torch.Generator().manual_seed(0)
    store = TrajectoryStore(dim, dim, 2)
    for _ in range(episodes):
        states, actions = [torch.randn(dim, generator=generator)], torch.randn(length, 2, generator=generator)
        for action in actions:
            states.append(states[-1] + change(states[-1], action))
        path = torch.stack(states).numpy()
        store.add_episode(path, actions.numpy(), path)
    return store


def test_a_perfect_model_has_no_error_and_a_linear_one_only_where_the_world_is_not():
    def straight(states, actions):
        return 0.1 * actions - 0.05 * states

    def bent(states, actions):
        return 0.3 * torch.sin(3 * states) + 0.1 * actions

    for change, linear_is_right in ((straight, True), (bent, False)):
        store = rolled(change)
        for error in model_error(Exact(change), store, store, horizons=(1, 5, 20)):
            assert error.model < 1e-8
            assert (error.linear < 1e-4) == linear_is_right


def test_predicting_no_change_has_error_one():
    def still(states, actions):
        return torch.zeros_like(states)

    store = rolled(lambda states, actions: 0.1 * actions)
    for error in model_error(Exact(still), store, store):
        assert error.model == pytest.approx(1.0)


def test_a_dimension_that_hardly_moves_does_not_decide_the_error():
    weights = torch.tensor([1.0, 1.0, 1e-5])  # what actions do to each dimension

    def world(states, actions):
        return 0.1 * weights * actions[..., :1]

    def model(states, actions):  # off by a thousandth, which is a hundred times what moves the last
        return world(states, actions) + 1e-4

    store = rolled(world, dim=3)
    for error in model_error(Exact(model), store, store):
        assert error.model < 0.1


def test_seeds_depend_on_what_they_are_for_and_nothing_else():
    assert seed_for(0, "planner", 3) == seed_for(0, "planner", 3)
    seeds = {seed_for(s, p, n) for s in range(5) for p in ("planner", "environment") for n in range(20)}
    assert len(seeds) == 200
    assert all(0 <= seed < 2**63 for seed in seeds)
