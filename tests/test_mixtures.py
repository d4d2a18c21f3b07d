"""Scripted experts, and runs whose data are a mixture."""

import numpy as np
import pytest
import torch

import curioplan
from curioplan.cli import main
from curioplan.envs import make_task
from curioplan.envs.experts import expert_for
from curioplan.errors import EnvError
from curioplan.stages.evaluate import run_cases
from curioplan.stages.mixtures import make_expert_data, mix_run
from scripted import Scripted


class Scripts(Scripted):
    def __init__(self, task):
        self.expert = expert_for(task)

    def one(self, slot, state):
        return self.expert.act(state, self.goals[slot])


@pytest.mark.parametrize("name", ["maze_umaze", "pinpad", "fetch_push"])
def test_experts_reach_every_goal(name):
    task = make_task(name)
    outcomes = run_cases(Scripts(task), task, task.cases)
    assert all(outcome.success for outcome in outcomes)


def test_there_is_no_expert_where_none_was_written():
    with pytest.raises(EnvError, match="no scripted expert for kitchen"):
        expert_for(make_task("kitchen"))


@pytest.fixture(scope="module")
def expert(tmp_path_factory):
    out = tmp_path_factory.mktemp("expert") / "data"
    assert (
        main(["data", "make-expert", "maze_umaze", "--out", str(out), "--steps", "650", "--seed", "2"]) == 0
    )
    return out


def test_expert_data_reach_goals_and_are_the_same_for_the_same_seed(expert, tmp_path):
    task = make_task("maze_umaze")
    store = curioplan.load_data(expert, task)
    assert store.transitions == 650
    for episode in list(store)[:2]:
        goals = np.array([case.goal for case in task.cases])
        assert any(task.success(episode.achieved_goals, goal).any() for goal in goals)
    again = curioplan.load_data(make_expert_data("maze_umaze", tmp_path / "again", 650, 2), task)
    assert torch.equal(again.observations, store.observations)


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_a_mixed_run_has_the_model_of_the_exploration_and_a_share_of_other_data(
    share, expert, trained_run, tmp_path
):
    folder = mix_run(trained_run, expert, share, tmp_path / "mixed", env="maze_umaze", seed=1)
    task = make_task("maze_umaze")
    own, mixed = (
        curioplan.load_data(run / "explore" / "data", task) for run in (trained_run, tmp_path / "mixed")
    )
    known = {tuple(row) for row in own.observations.tolist()}
    taken = sum(tuple(row) in known for row in mixed.observations.tolist()) / mixed.states
    assert taken == pytest.approx(1 - share, abs=0.05)
    assert mixed.transitions == pytest.approx(own.transitions, abs=60)
    assert (folder / "model.safetensors").read_bytes() == (
        trained_run / "explore" / "model.safetensors"
    ).read_bytes()
    assert curioplan.load_model(tmp_path / "mixed").observation_dim == 4
