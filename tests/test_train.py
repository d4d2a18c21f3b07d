"""Value learning as a stage: what it leaves, how it continues, what it refuses."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import curioplan
from curioplan.cli import main
from curioplan.config import ExploreConfig
from curioplan.data import TrajectoryStore, save_minari
from curioplan.envs import make_task
from curioplan.errors import ConfigError, CurioplanError, DataError, RunError
from curioplan.presets import preset
from curioplan.stages.train import ValueTrainer, find_values, resample_trajectories, train
from curioplan.storage import load_tree
from curioplan.values import LEARNERS, learner_class, learner_config

STEPS = 900
SMALL = {"updates": 30, "checkpoint_every": 10, "figure_every": 10**6, "batch_size": 32, "units": 16}


@pytest.fixture(scope="module")
def explored(tmp_path_factory):
    """A run with a few random episodes in the small maze, and a model."""
    run = tmp_path_factory.mktemp("runs") / "maze"
    config = replace(preset("smoke", ExploreConfig), steps=STEPS, warmup_steps=STEPS - 30)
    curioplan.explore("maze_umaze", run, config, progress=False)
    return run


@pytest.fixture
def run(explored, tmp_path):
    """A run of its own for each test, with the same exploration."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "run.json").write_bytes((explored / "run.json").read_bytes())
    (folder / "explore").symlink_to(explored / "explore")
    return folder


def small(algo, **changes):
    return replace(learner_config(algo, "smoke"), **{**SMALL, "threads": 1, **changes})


def weights(folder, seed=0):
    networks = load_tree(folder / f"seed-{seed}.safetensors")["networks"]
    return [tensor for name in sorted(networks) for tensor in networks[name]]


def same(ours, theirs):
    return len(ours) == len(theirs) and all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("algo", LEARNERS)
def test_every_learner_killed_in_the_middle_ends_with_the_same_weights(algo, run):
    whole = train(run, algo, small(algo), name="whole", progress=False)
    script = (
        "import sys; from curioplan.stages.train import train; "
        "from test_train import small; "
        "train(sys.argv[1], sys.argv[2], small(sys.argv[2]), name='broken', progress=False)"
    )
    process = subprocess.Popen([sys.executable, "-c", script, run, algo], cwd=Path(__file__).parent)
    manifests = run / "values" / "broken" / "checkpoints"
    while process.poll() is None and not list(manifests.glob("*.json")):
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert list(manifests.glob("*.json")), "it was killed after a checkpoint"
    broken = train(run, algo, small(algo), name="broken", progress=False)
    assert same(weights(broken), weights(whole))
    lines = [(each / "metrics.jsonl").read_text().splitlines() for each in (whole, broken)]
    first, second = ([{**json.loads(line), "time": 0} for line in some] for some in lines)
    assert first == second


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(run):
    first, again = (train(run, "td3", small("td3"), name=name, progress=False) for name in ("a", "b"))
    other = train(run, "td3", small("td3", seed=1), name="c", progress=False)
    assert same(weights(first), weights(again))
    assert not same(weights(first), weights(other, seed=1))


@pytest.mark.parametrize("bootstrap", ["none", "trajectories"])
def test_seeds_trained_together_are_those_trained_alone(bootstrap, run):
    together = train(run, "td3", small("td3", seeds=3, bootstrap=bootstrap), progress=False)
    assert together.name == "td3-0-to-2"
    for seed in range(3):
        alone = train(run, "td3", small("td3", seed=seed, bootstrap=bootstrap), progress=False)
        for ours, theirs in zip(weights(together, seed), weights(alone, seed), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_a_bootstrap_draws_whole_trajectories_with_replacement():
    store = TrajectoryStore(1, 1, 1)
    rng = np.random.default_rng(0)
    for length in (3, 5, 2, 7):
        store.add_episode(
            rng.normal(size=(length + 1, 1)), rng.normal(size=(length, 1)), np.zeros((length + 1, 1))
        )
    counts = []
    for seed in range(200):
        rows = resample_trajectories(store, seed)
        times = torch.bincount(rows, minlength=store.states)
        per_episode = []
        for episode in range(4):
            mine = store.transition_rows[store.episode_of[store.transition_rows] == episode]
            assert len(set(times[mine].tolist())) == 1, "all transitions of a trajectory, equally often"
            per_episode.append(int(times[mine[0]]))
        assert sum(per_episode) == 4
        counts.append(per_episode)
    np.testing.assert_allclose(np.mean(counts, 0), 1, atol=0.25)


def test_what_was_learned_can_be_loaded_and_used(run):
    train(run, "td3", small("td3", seeds=2), progress=False)
    values = curioplan.load_values(run, "td3", seed=1)
    states, goals = torch.randn(5, 4), torch.randn(5, 2)
    value, distance, action = (f(states, goals) for f in (values.value, values.distance, values.act))
    assert value.shape == distance.shape == (5,)
    assert action.shape == (5, 2)
    assert ((value > 0) & (value < 1)).all()
    assert (action.abs() <= 1).all()
    torch.testing.assert_close(values.gamma**distance, value)


def test_a_picture_and_calibration_are_left_behind(run):
    folder = train(run, "td3", small("td3"), progress=False)
    assert (folder / "values.png").stat().st_size > 10_000
    last = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["step"] == 30
    assert {"td_error", "q", "value_5", "steps_5", "bound_5", "steps_random"} <= last.keys()
    judged = json.loads((folder / "values.json").read_text())["seed-0"]
    assert judged["pairs"] == 5000
    assert all(-1 <= judged[key] <= 1 for key in ("rank", "rank_near", "rank_far"))


def test_the_step_sizes_fall_to_zero_in_the_cooldown(run):
    config = small("td3", cooldown=0.5)
    store = curioplan.load_data(run / "explore" / "data")
    trainer = ValueTrainer(store, make_task("maze_umaze"), config, None)
    paces = []
    for updates in (0, 15, 20, 25, 29):
        trainer.learner.updates = updates
        paces.append(trainer.pace)
    np.testing.assert_allclose(paces, [1, 1, 2 / 3, 1 / 3, 1 / 15])


def test_the_updates_of_the_paper_are_epochs_of_the_data(run):
    config = small("td3", updates=0, epochs=2.0)
    store = curioplan.load_data(run / "explore" / "data")
    assert ValueTrainer(store, make_task("maze_umaze"), config, None).total == round(2 * STEPS / 32)


def test_a_new_run_can_be_made_from_a_file_alone(explored, tmp_path):
    curioplan.cli.main(["data", "convert", str(explored / "explore" / "data"), str(tmp_path / "d.npz")])
    config = small("td3", data=f"{tmp_path / 'd.npz'}")
    folder = train(tmp_path / "new", "td3", config, env="maze_umaze", progress=False)
    assert (folder / "seed-0.safetensors").exists()
    with pytest.raises(ConfigError, match="name the environment"):
        train(tmp_path / "newer", "td3", small("td3"), progress=False)


def test_data_that_changed_cannot_be_continued_with(explored, tmp_path):
    store = curioplan.load_data(explored / "explore" / "data")
    task = make_task("maze_umaze")
    first, second = (list(store)[: 1 + k] for k in range(2))
    config = small("td3", data=str(tmp_path / "data"))
    for number, episodes in enumerate((first, second)):
        part = TrajectoryStore(4, 2, 2)
        for episode in episodes:
            part.add_episode(*episode)
        save_minari(part, tmp_path / "data", task=task, overwrite=True)
        if number == 0:
            train(tmp_path / "run", "td3", config, env="maze_umaze", progress=False)
    with pytest.raises(RunError, match="data have changed"):
        train(tmp_path / "run", "td3", config, env="maze_umaze", progress=False)


def test_a_diverging_run_stops_with_a_sentence_and_keeps_its_last_good_checkpoint(run, monkeypatch, capsys):
    kind = learner_class("td3")
    update = kind.update

    def diverge(self, batch):
        if self.updates == 15:
            batch.rewards[:] = torch.nan
        return update(self, batch)

    monkeypatch.setattr(kind, "update", diverge)
    with pytest.raises(CurioplanError, match=r"After 15 updates .* not finite \(seed 0\): try a lower"):
        train(run, "td3", small("td3"), progress=False)
    saved = [path.stem for path in (run / "values" / "td3-0" / "checkpoints").glob("*.json")]
    assert [int(step) for step in saved] == [10]
    monkeypatch.undo()
    resumed = train(run, "td3", small("td3"), progress=False)
    whole = train(run, "td3", small("td3"), name="whole", progress=False)
    assert same(weights(resumed), weights(whole))


def test_bad_data_are_refused_before_anything_is_written(run, tmp_path):
    for spoil in ("goal", "nan"):
        store = {
            "observations": np.zeros((6, 4), np.float32),
            "actions": np.zeros((6, 2), np.float32),
            "terminals": np.array([0, 0, 1, 0, 0, 1], np.float32),
        }
        if spoil == "nan":
            store["observations"][2, 1] = np.nan
        else:
            store["achieved_goals"] = np.zeros((6, 5), np.float32)
        np.savez(tmp_path / f"{spoil}.npz", **store)
        with pytest.raises(DataError):
            train(run, "td3", small("td3", data=str(tmp_path / f"{spoil}.npz")), progress=False)
    assert not (run / "values").exists()


def test_constant_dimensions_are_learned_from_without_trouble(tmp_path):
    task = make_task("maze_umaze")
    store = TrajectoryStore(4, 2, 2)
    rng = np.random.default_rng(0)
    for _ in range(3):
        states = rng.normal(size=(21, 4))
        states[:, 3] = 0.5
        store.add_episode(states, rng.uniform(-1, 1, (20, 2)), states[:, :2])
    save_minari(store, tmp_path / "data", task=task)
    config = small("td3", data=str(tmp_path / "data"))
    train(tmp_path / "run", "td3", config, env="maze_umaze", progress=False)
    values = curioplan.load_values(tmp_path / "run")
    assert torch.isfinite(values.value(store.observations, store.achieved_goals)).all()


def test_what_is_not_there_is_named_with_what_is(run):
    train(run, "td3", small("td3"), progress=False)
    with pytest.raises(RunError, match="no values of td3 with seed 7; finished are td3-0"):
        find_values(run, "td3", seed=7)
    with pytest.raises(RunError, match="no values of crr"):
        find_values(run, "crr")


def test_the_command_line_offers_each_learners_own_settings(run, capsys):
    assert (
        main(
            [
                "train",
                str(run),
                "--algo",
                "td3",
                "--preset",
                "smoke",
                "--updates",
                "5",
                "--target-noise",
                "0.1",
            ]
        )
        == 0
    )
    saved = json.loads((run / "values" / "td3-0" / "config.json").read_text())["settings"]
    assert saved["algo"] == "td3"
    assert saved["target_noise"] == 0.1
    assert main(["train", str(run), "--algo", "td4"]) == 2
    assert "did you mean td3?" in capsys.readouterr().err
    assert main(["train", str(run), "--algo", "crr", "--target-noise", "0.1"]) == 2
    assert main(["train", str(run), "--algo", "td3", "--preset", "smoke", "--updates", "9"]) == 2
    assert "begun with other settings" in capsys.readouterr().err
