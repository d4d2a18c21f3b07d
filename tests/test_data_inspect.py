"""What is in a dataset, as numbers, text and figure."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from curioplan.data import TrajectoryStore, coverage_figure, format_summary, summary
from curioplan.envs.task import Coverage, MovableObject
from trajectory_samples import TASK, make, refused

SEEN = replace(
    TASK,
    coverage=Coverage("halves", 3, lambda o: np.where(o[..., 0] > 5, -1, (o[..., 0] > 0).astype(np.int64))),
    objects=(MovableObject("ball", (2, 3), 1.0), MovableObject("rock", (0,), 1e6)),
)


def test_a_summary_counts_and_measures():
    store = make()
    result = summary(store, SEEN)
    assert json.loads(json.dumps(result)) == result
    assert (result["episodes"], result["transitions"], result["states"]) == (5, 22, 27)
    assert result["episode_length"] == {"min": 1, "median": 3.0, "max": 12}
    assert result["coverage"] == {"unit": "halves", "visited": 2, "total": 3}
    moved = [
        np.linalg.norm(part.observations[:, 2:] - part.observations[0, 2:], axis=1).max() > 1
        for part in store
    ]
    assert result["moved"] == {"ball": np.mean(moved), "rock": 0.0}
    actions = np.concatenate([part.actions for part in store])
    np.testing.assert_allclose(result["actions"]["mean"], actions.mean(0), atol=1e-6)
    np.testing.assert_allclose(result["observations"]["max"], store.observations.max(0).values)
    np.testing.assert_allclose(
        result["achieved_goals"]["std"], store.achieved_goals.numpy().std(0), rtol=1e-5
    )
    with refused("no transitions"):
        summary(TrajectoryStore(4, 2, 3))


def test_a_summary_reads_as_a_table():
    text = format_summary(summary(make(), SEEN))
    for words in (
        "22 transitions in 5 episodes",
        "2 of 3 halves (67%)",
        "ball",
        "observation[3]",
        "action[2]",
    ):
        assert words in text
    assert all(len(line) < 80 for line in text.splitlines())
    assert "coverage" not in format_summary(summary(make()))


@pytest.mark.parametrize(("goal_dim", "extra"), [(1, "neither"), (2, "coverage"), (3, "objects")])
def test_the_figure_is_drawn_for_goals_of_any_dimension(tmp_path, goal_dim, extra):
    store = TrajectoryStore(4, goal_dim, 3)
    for part in make():
        store.add_episode(part.observations, part.actions, part.observations[:, :goal_dim])
    task = replace(SEEN, goal_dim=goal_dim)
    task = task if extra == "coverage" else replace(task, coverage=None)
    task = task if extra != "neither" else replace(task, objects=())
    (tmp_path / "figure.png").write_text("an older one")
    coverage_figure(store, task, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
