"""Whims: how long, how often, and where."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from curioplan.config import ExploreConfig
from curioplan.envs import make_env, make_task
from curioplan.presets import preset
from curioplan.stages.explore import Explorer
from curioplan.stages.whims import Whims

BOUNDS = ((-1.0, -1.0), (1.0, 1.0))


def a_room_and_a_corridor(rng):
    """Goals of which a twentieth are in a corridor as large as the room that the others are in."""
    goals = rng.uniform(0, 1, (20_000, 2))
    goals[:1000, 0] += 1
    return torch.from_numpy(goals.astype(np.float32))


def test_rareness_is_uniform_over_the_data_and_highest_where_they_are_few():
    rng = np.random.default_rng(0)
    goals = a_room_and_a_corridor(rng)
    whims = Whims(0.2, 50, 10, *BOUNDS)
    whims.recall(goals, rng)
    found = np.array([whims.rareness(goal) for goal in goals[::20].numpy()])
    assert np.abs(np.quantile(found, [0.1, 0.25, 0.5, 0.75, 0.9]) - [0.1, 0.25, 0.5, 0.75, 0.9]).max() < 0.06
    assert (found[:50] > 0.9).mean() > 0.95  # the corridor's
    assert whims.rareness(np.array([0.5, 0.5])) < 0.9
    assert whims.rareness(np.array([9.0, 9.0])) == 1


@pytest.mark.parametrize("share", [0.1, 0.4])
def test_whims_take_about_their_share_and_mostly_where_the_agent_has_seldom_been(share):
    rng = np.random.default_rng(0)
    goals = a_room_and_a_corridor(rng)
    whims = Whims(share, 45, 10, *BOUNDS)
    assert whims.steps == 50  # the least whole turns of planning that are as long as a plan
    whims.recall(goals, rng)
    began = np.array([whims.begins(goal, rng) for goal in goals[::4].numpy()])
    acted = whims.steps * began.sum()
    assert acted / (acted + 10 * (~began).sum()) == pytest.approx(share, rel=0.25)
    assert began[:250].mean() > 4 * began[250:].mean()


def test_rareness_does_not_depend_on_units_or_on_what_never_changes():
    rng = np.random.default_rng(0)
    goals = a_room_and_a_corridor(rng)
    both = []
    for scaled in (goals, torch.cat([goals * torch.tensor([1000.0, 0.001]), torch.ones(len(goals), 1)], 1)):
        whims = Whims(0.2, 50, 10, *BOUNDS)
        whims.recall(scaled, np.random.default_rng(1))
        both.append([whims.rareness(goal) for goal in scaled[::100].numpy()])
    assert np.abs(np.subtract(*both)).max() < 0.02


def held(actions, least):
    """The actions that are held for at least so many steps, and for how many."""
    chosen, lengths = torch.unique_consecutive(actions, dim=0, return_counts=True)
    return chosen[lengths >= least], lengths[lengths >= least]


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_an_explorer_holds_whims_as_long_as_it_plans_ahead(share):
    config = replace(
        preset("smoke", ExploreConfig), steps=2100, warmup_steps=200, updates_per_step=0.02, horizon=9
    )
    config = replace(config, whims=share, planner=replace(config.planner, replan_every=5))
    explorer = Explorer(make_env("maze_umaze"), make_task("maze_umaze"), config)
    for _ in range(7):
        explorer.episode()
    warmup, *episodes = (torch.tensor(episode.actions) for episode in explorer.store)
    assert not len(held(warmup, 10)[0])
    found = [held(actions, 10) for actions in episodes]
    whims, lengths = (torch.cat(parts) for parts in zip(*found, strict=True))
    assert (lengths == 10).all()  # two turns of planning
    assert len(whims.unique(dim=0)) == len(whims)
    assert lengths.sum() / sum(map(len, episodes)) == pytest.approx(share, abs=0.15)
    assert ("objective" in explorer.metrics) == (share < 1)
