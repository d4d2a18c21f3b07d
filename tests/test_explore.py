"""Exploration: what it leaves behind, and that interruptions leave no trace."""

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

import curioplan
from curioplan.config import ExploreConfig, ModelConfig
from curioplan.envs import make_env, make_task
from curioplan.errors import ConfigError
from curioplan.metrics import read_metrics
from curioplan.models import GaussianEnsemble
from curioplan.presets import preset
from curioplan.runs import open_stage
from curioplan.stages.explore import Explorer
from curioplan.stages.train_model import load_model
from curioplan.storage import load_tree

TINY = replace(
    preset("smoke", ExploreConfig), steps=500, warmup_steps=200, checkpoint_every=150, updates_per_step=0.1
)


def explore(out, config=TINY, env="maze_umaze"):
    return curioplan.explore(env, out, config, progress=False)


@pytest.fixture(scope="module")
def explored(tmp_path_factory):
    out = tmp_path_factory.mktemp("run")
    explore(out)
    return out


def result(out):
    """The bytes of everything an exploration is for."""
    folder = out / "explore"
    names = (
        "data/main_data.hdf5",
        "data/metadata.json",
        "model.safetensors",
        "metrics.jsonl",
        "exploration.png",
    )
    return {name: (folder / name).read_bytes() for name in names}


def test_a_run_leaves_data_model_metrics_and_figure(explored):
    task = make_task("maze_umaze")
    store = curioplan.load_data(explored / "explore" / "data", task)
    assert store.transitions == 500
    assert store.episode_lengths.tolist() == [300, 200]
    model = GaussianEnsemble(4, 2, TINY.model)
    model.load(load_tree(explored / "explore" / "model.safetensors"))
    mean, variance = model.predict(store.observations[:5], store.actions[:5])
    assert mean.shape == variance.shape == (TINY.model.members, 5, 4)
    rows = list(read_metrics(explored / "explore"))
    assert [row["step"] for row in rows] == [300, 500]
    assert rows[-1]["coverage"] >= 2
    assert np.isfinite(rows[-1]["loss"])
    assert (explored / "explore" / "exploration.pdf").stat().st_size > 1000


def test_the_same_command_after_the_end_changes_nothing(explored):
    before = result(explored)
    explore(explored)
    assert result(explored) == before


def test_same_seed_same_bits_and_another_seed_other_data(explored, tmp_path):
    explore(tmp_path / "same")
    assert result(tmp_path / "same") == result(explored)
    explore(tmp_path / "other", replace(TINY, seed=1))
    assert result(tmp_path / "other")["data/main_data.hdf5"] != result(explored)["data/main_data.hdf5"]


def test_more_steps_continue_a_run_as_if_it_had_been_that_long(explored, tmp_path):
    explore(tmp_path / "grown", replace(TINY, steps=300))
    explore(tmp_path / "grown")
    assert result(tmp_path / "grown") == result(explored)


def test_the_model_left_behind_has_settled_and_the_one_to_go_on_with_has_not(explored):
    data = curioplan.load_data(explored / "explore" / "data", make_task("maze_umaze"))
    with open_stage(explored, "explore", "maze_umaze", TINY) as stage:
        model = GaussianEnsemble(4, 2, TINY.model)
        model.load(stage.resumed.state["model"])

    def predicted(by):
        return by.predict(data.observations, data.actions)[0]

    assert not torch.equal(predicted(load_model(explored)), predicted(model))
    for left in range(TINY.settle, 0, -1):
        model.update(data.observations, data.actions, 1, pace=left / TINY.settle)
    assert torch.allclose(predicted(load_model(explored)), predicted(model))


def test_a_model_that_has_settled_is_not_trained_again(explored, monkeypatch):
    monkeypatch.setattr(GaussianEnsemble, "update", None)
    explore(explored)


def test_other_settings_are_refused(explored):
    with pytest.raises(ConfigError, match=r"planner\.population"):
        explore(explored, replace(TINY, planner=replace(TINY.planner, population=17)))


COMMAND = (
    *("explore", "maze_umaze", "--preset", "smoke", "--steps", "3000", "--warmup-steps", "200"),
    *("--checkpoint-every", "600", "--updates-per-step", "0.05", "--settle", "600"),
    *("--planner.replan-every", "20"),
)
EPISODES = 10


def start(out):
    script = "import sys; from curioplan.cli import main; sys.exit(main())"
    return subprocess.Popen(
        [sys.executable, "-c", script, *COMMAND, "--out", str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def kill(out, ready, delay=0.0):
    """Start the command, and kill it some seconds after something about its folder holds."""
    process = start(out)
    while not ready():
        assert process.poll() is None
        time.sleep(0.005)
    time.sleep(delay)
    assert process.poll() is None, "it ended before it could be killed"
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_killed_ten_times_it_ends_with_the_same_bytes_as_if_it_had_not_been(tmp_path):
    started = time.monotonic()
    assert start(tmp_path / "whole").wait() == 0
    duration = time.monotonic() - started
    rng, folder = random.Random(0), tmp_path / "broken" / "explore"
    for episodes in range(EPISODES):

        def reached(episodes=episodes):
            return sum(1 for _ in read_metrics(folder)) >= episodes

        kill(tmp_path / "broken", reached, rng.uniform(0, duration / (2 * EPISODES)))
    for written in ("data", "exploration.png"):  # one after the other, after all steps and before the model
        assert not (folder / written).exists()
        kill(tmp_path / "broken", (folder / written).exists)
        assert not (folder / "model.safetensors").exists()
    assert start(tmp_path / "broken").wait() == 0
    assert result(tmp_path / "broken") == result(tmp_path / "whole")


OTHERS = [{"explorer": "novelty"}, {"explorer": "random"}, {"foresight": 0.9}, {"whims": 0.3}]


@pytest.mark.parametrize("setting", OTHERS, ids=str)
def test_other_explorers_run_and_resume(setting, explored, tmp_path):
    config = replace(TINY, **setting)
    explore(tmp_path / "whole", config)
    explore(tmp_path / "parts", replace(config, steps=300))
    explore(tmp_path / "parts", config)
    assert result(tmp_path / "parts") == result(tmp_path / "whole") != result(explored)


@pytest.mark.parametrize("foresight", [0.0, 0.9])
def test_training_by_epochs_before_each_episode_as_in_the_paper(foresight, tmp_path):
    config = replace(TINY, steps=400, warmup_steps=300, updates_per_step=0.0, epochs=2, foresight=foresight)
    explore(tmp_path, config)
    rows = list(read_metrics(tmp_path / "explore"))
    assert rows[0]["loss"] is None
    assert np.isfinite(rows[1]["loss"])


def test_updates_per_step_are_fixed_whatever_the_amount_of_data():
    config = replace(TINY, steps=10_000, updates_per_step=0.5)
    explorer = Explorer(make_env("maze_umaze"), make_task("maze_umaze"), config)
    for _ in range(3):
        explorer.episode()
    assert explorer.store.transitions == 900
    assert explorer.updates == 450
    assert explorer.learned == 900


def test_a_users_environment_is_explored_by_its_id(tmp_path):
    config = replace(TINY, steps=120, warmup_steps=100, model=ModelConfig(3, 2, 2, 16, batch_size=32))
    folder = explore(tmp_path, config, env="FetchReach-v4")
    store = curioplan.load_data(folder / "data")
    assert store.observations.shape[1] == 10
    assert torch.equal(store.achieved_goals, store.observations[:, :3])


def test_exploration_moves_objects_where_there_are_any(tmp_path):
    config = replace(TINY, steps=150, warmup_steps=100)
    folder = explore(tmp_path, config, env="fetch_push")
    rows = list(read_metrics(folder))
    assert all("displacement/block" in row for row in rows)
