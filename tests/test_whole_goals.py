"""Whole states as goals: how networks see them, and what values they come to."""

from dataclasses import replace

import pytest
import torch

from curioplan.data import TrajectoryStore
from curioplan.envs import make_task
from curioplan.errors import ConfigError
from curioplan.stages.train import ValueTrainer
from curioplan.values import LEARNERS, Problem, Values, learner_config

TASK = make_task("maze_umaze")


@pytest.fixture(scope="module")
def store():
    """Random walks, of which only the statistics matter."""
    made, generator = TrajectoryStore(4, 2, 2), torch.Generator().manual_seed(0)
    for _ in range(12):
        observations = torch.randn(31, 4, generator=generator).cumsum(0) * 0.1 + 2
        actions = torch.rand(30, 2, generator=generator) * 2 - 1
        made.add_episode(observations.numpy(), actions.numpy(), observations[:, :2].numpy())
    return made


def trainer(store, algo="td3", **changes):
    config = replace(learner_config(algo, "smoke"), units=16, batch_size=64, threads=1, **changes)
    return ValueTrainer(store, TASK, config, None)


def test_a_whole_goal_shows_its_state_and_a_goal_of_the_task_the_mean(store):
    problem = Problem.of(TASK, store, whole=True)
    states, achieved = store.observations[:2], store.achieved_goals[:2]
    goals = problem.goals_of(achieved, states, torch.tensor([True, False]))
    assert goals.shape == (2, 2 + 4 + 1)
    assert torch.equal(goals[0, 2:6], states[0])
    assert torch.equal(goals[:, -1], torch.tensor([1.0, 0.0]))
    assert torch.allclose(problem.goals.normalise(goals)[1, 2:], torch.zeros(5), atol=1e-5)
    assert torch.equal(problem.task_goals(achieved)[1], goals[1])
    assert torch.equal(problem.task_goals(goals), goals)  # nothing is done twice


def test_without_whole_goals_goals_stay_as_they_are(store):
    problem = Problem.of(TASK, store)
    achieved = store.achieved_goals[:3]
    assert problem.task_goals(achieved) is achieved
    assert problem.goals_of(achieved, store.observations[:3], torch.ones(3, dtype=torch.bool)) is achieved


def test_the_share_of_whole_goals_is_as_asked(store):
    training = trainer(store, p_state=0.3)
    flags = torch.cat([training.batch().goals[0, :, -1] for _ in range(60)])
    assert flags.mean().item() == pytest.approx(0.3, abs=0.03)


def test_whole_goals_are_the_states_whose_goals_they_are(store):
    batch = trainer(store, p_state=1.0).batch()
    rows = batch.goal_rows[0]
    assert torch.equal(batch.goals[0, :, :2], store.achieved_goals[rows])
    assert torch.equal(batch.goals[0, :, 2:6], store.observations[rows])


def test_success_rewards_goals_of_the_task_and_whole_states_only_themselves(store):
    batch = trainer(store, p_state=0.5, reward="success", p_near=1.0).batch()
    whole, rewarded = batch.goals[0, :, -1] == 1, batch.rewards[0] == 1
    near = TASK.success(batch.next_observations[0, :, :2], batch.goals[0, :, :2])
    next_row = batch.steps[0] == 1
    assert torch.equal(rewarded, torch.where(whole, next_row, near))
    assert (near & ~next_row & whole).any()
    assert (near & ~next_row & ~whole).any()
    assert torch.equal(batch.terminals, batch.rewards)


@pytest.mark.parametrize("algo", [name for name in LEARNERS if name not in ("mbpo", "mopo")])
def test_every_learner_takes_both_kinds_of_goals(store, algo):
    training = trainer(store, algo, p_state=0.5)
    for _ in range(2):
        training.learner.update(training.batch())
    values, states = Values(training.learner), store.observations[:5]
    whole = values.whole_goals(states, store.achieved_goals[:5])
    for goals in (store.achieved_goals[:5], whole):
        assert values.value(states, goals).shape == (5,)
        assert values.act(states, goals).shape == (5, 2)
    assert not torch.equal(values.value(states, whole), values.value(states, store.achieved_goals[:5]))


def test_values_of_task_goals_alone_refuse_whole_ones(store):
    values = Values(trainer(store, p_state=0.0).learner)
    with pytest.raises(ConfigError, match="p_state"):
        values.whole_goals(store.observations[:1], store.achieved_goals[:1])


def test_the_quick_network_learns_the_values_of_the_learner(store):
    training = trainer(store, quick_units=32, quick_learning_rate=3e-3)
    before = training.learner.distil(training.batch())["quick_error"]
    for _ in range(150):
        after = training.learner.distil(training.batch())["quick_error"]
    assert after < 0.3 * before
