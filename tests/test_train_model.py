"""Models trained offline: what they leave behind, how they are found, and that kills leave no trace."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import curioplan
from curioplan.cli import main
from curioplan.config import ExploreConfig, ModelConfig, TrainModelConfig
from curioplan.data import TrajectoryStore
from curioplan.envs import make_task
from curioplan.errors import ConfigError, CurioplanError, RunError
from curioplan.metrics import read_metrics
from curioplan.models import GaussianEnsemble
from curioplan.presets import preset
from curioplan.stages.train_model import (
    ModelTrainer,
    find_model,
    load_model,
    measure_errors,
    split_episodes,
)
from curioplan.storage import load_tree, save_tree

TINY = replace(
    preset("smoke", TrainModelConfig),
    updates=60,
    checkpoint_every=20,
    held_out_episodes=0.1,
    model=ModelConfig(3, 2, 2, 16, learning_rate=5e-3, batch_size=32, beta=0.5),
)


def record(path, seed=0, episodes=20, length=40):
    """A file of episodes of a point mass that noise pushes about."""
    rng = np.random.default_rng(seed)
    states, actions = [], rng.uniform(-1, 1, (episodes, length + 1, 2))
    for taken in actions:
        state = rng.uniform(0, 3, 4)
        for action in taken:
            states.append(state)
            state = np.concatenate([state[:2] + 0.1 * state[2:], 0.9 * state[2:] + 0.2 * action])
    ends = np.zeros(len(states))
    ends[length :: length + 1] = 1
    np.savez(path, observations=np.array(states, np.float32), actions=actions.reshape(-1, 2), terminals=ends)
    return path


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    return record(tmp_path_factory.mktemp("data") / "recording.npz")


def train(out, recording, config=TINY, env="maze_umaze", **keywords):
    return curioplan.train_model(
        out, replace(config, data=str(recording)), env=env, progress=False, **keywords
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory, recording):
    out = tmp_path_factory.mktemp("run")
    train(out, recording)
    return out


def result(out, name="offline"):
    """The bytes of everything a training is for."""
    folder = out / "models" / name
    names = ("model.safetensors", "errors.json", "errors.png", "metrics.jsonl")
    return {name: (folder / name).read_bytes() for name in names}


def test_a_training_leaves_model_errors_metrics_and_figure(trained):
    folder = trained / "models" / "offline"
    rows = list(read_metrics(folder))
    assert [row["step"] for row in rows] == [20, 40, 60]
    assert all(np.isfinite([row["loss"], row["likelihood"]]).all() for row in rows)
    report = json.loads((folder / "errors.json").read_text())
    assert report["episodes"] == {"training": 18, "held out": 2}
    assert [row["steps"] for row in report["errors"]["all dimensions"]] == [1, 2, 3, 5, 10, 15, 20, 30]
    assert (folder / "errors.pdf").stat().st_size > 1000


def test_a_trained_model_predicts_better_than_no_change(tmp_path, recording):
    folder = train(tmp_path, recording, replace(TINY, updates=600))
    for row in json.loads((folder / "errors.json").read_text())["errors"]["all dimensions"]:
        assert row["model"] < 0.5
        assert row["linear"] < 1e-3  # this world is linear


class Still:
    """A model that predicts no change."""

    elites = [0]  # noqa: RUF012

    def predict(self, observations, actions):
        return observations[None], torch.zeros_like(observations)[None]


def test_objects_that_rest_do_not_hide_how_the_robot_is_predicted():
    task, rng = make_task("kitchen"), np.random.default_rng(0)
    robot = np.cumsum(rng.normal(size=(400, 9)), 0).astype(np.float32)
    states = np.zeros((400, task.observation_dim), np.float32)
    states[:, :9], states[:, 9:] = robot, np.linspace(0, 1, 400)[:, None]  # what is no robot's moves steadily
    store = TrajectoryStore(task.observation_dim, task.goal_dim, task.action_dim)
    store.add_episode(states, rng.uniform(-1, 1, (399, task.action_dim)), states[:, : task.goal_dim])
    errors = measure_errors(Still(), store, store, task)
    assert list(errors) == ["all dimensions", "objects", "all else"]
    assert all(row.model == pytest.approx(1) for rows in errors.values() for row in rows)
    assert errors["objects"][0].linear < 1e-3 < errors["all else"][0].linear


def test_without_objects_what_goals_are_of_is_told_apart_from_the_rest():
    task, rng = make_task("pinpad"), np.random.default_rng(0)
    states = rng.normal(size=(400, 7)).astype(np.float32)  # presses
    states[:, :4] = np.linspace(0, 1, 400)[:, None]  # of a ball that moves steadily
    store = TrajectoryStore(7, 3, 2)
    store.add_episode(states, rng.uniform(-1, 1, (399, 2)), states[:, 4:])
    errors = measure_errors(Still(), store, store, task)
    assert list(errors) == ["all dimensions", "goals", "all else"]
    assert errors["all else"][0].linear < 1e-3 < errors["goals"][0].linear


def test_the_same_command_after_the_end_changes_nothing(trained, recording):
    before = result(trained)
    train(trained, recording)
    assert result(trained) == before


def test_same_seed_same_bits_and_another_seed_another_model(trained, recording, tmp_path):
    train(tmp_path / "same", recording)
    assert result(tmp_path / "same") == result(trained)
    train(tmp_path / "other", recording, replace(TINY, seed=1))
    assert result(tmp_path / "other")["model.safetensors"] != result(trained)["model.safetensors"]


def start(out, recording):
    script = "import sys; from curioplan.cli import main; sys.exit(main())"
    arguments = (
        *("train-model", out, "--env", "maze_umaze", "--data", recording, "--preset", "smoke"),
        *("--updates", "1000", "--checkpoint-every", "50"),
    )
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def test_killed_twice_it_ends_with_the_same_bytes_as_if_it_had_not_been(tmp_path, recording):
    assert start(tmp_path / "whole", recording).wait() == 0
    broken = tmp_path / "broken"
    manifests = broken / "models" / "offline" / "checkpoints"
    for enough in (100, 400):
        process = start(broken, recording)
        while process.poll() is None:
            if any(int(path.stem) >= enough for path in manifests.glob("*.json")):
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(0.005)
        assert process.wait() == -signal.SIGKILL
        assert not (broken / "models" / "offline" / "model.safetensors").exists()
    assert start(broken, recording).wait() == 0
    assert result(broken) == result(tmp_path / "whole")


@pytest.fixture(scope="module")
def explored(tmp_path_factory):
    out = tmp_path_factory.mktemp("explored")
    config = replace(
        preset("smoke", ExploreConfig), steps=400, warmup_steps=250, updates_per_step=0.02, model=TINY.model
    )
    curioplan.explore("maze_umaze", out, config, progress=False)
    return out


def test_an_explored_run_trains_on_its_own_data_in_its_own_environment(explored, caplog):
    folder = curioplan.train_model(explored, TINY, name="again", progress=False)
    assert folder == explored / "models" / "again"
    assert "No episode was kept from training" in caplog.text  # of two episodes
    assert not (folder / "errors.json").exists()
    assert find_model(explored) == explored / "explore" / "model.safetensors"
    assert find_model(explored, "again") == folder / "model.safetensors"
    store = curioplan.load_data(explored / "explore" / "data")
    trainer = ModelTrainer(store, TINY)
    while trainer.updates < TINY.updates:
        trainer.advance()
    ours, saved = (
        model.predict(store.observations, store.actions)
        for model in (trainer.model, load_model(explored, "again"))
    )
    assert torch.equal(ours[0], saved[0])
    assert torch.equal(ours[1], saved[1])


def test_the_model_of_an_exploration_is_loaded_with_its_elites(explored):
    model = load_model(explored)
    assert (model.observation_dim, model.action_dim, model.config) == (4, 2, TINY.model)
    assert len(model.elites) == 2
    assert model.bootstrap.count + model.bootstrap.held_out_count > 0


def test_a_new_run_needs_an_environment_and_data(tmp_path, recording):
    for env, data in ((None, ""), (None, str(recording)), ("maze_umaze", "")):
        with pytest.raises(ConfigError, match=r"not a run yet: name the environment .* and the data"):
            curioplan.train_model(tmp_path / "new", replace(TINY, data=data), env=env, progress=False)
    assert not (tmp_path / "new").exists()


def test_missing_data_and_another_environment_are_refused_before_anything_is_written(trained, tmp_path):
    with pytest.raises(CurioplanError, match=r"none.npz does not exist"):
        train(tmp_path / "new", tmp_path / "none.npz")
    assert not (tmp_path / "new").exists()
    with pytest.raises(ConfigError, match="a run on maze_umaze, not on maze_large"):
        train(trained, record(tmp_path / "data.npz"), env="maze_large")


def test_other_settings_and_changed_data_are_refused(trained, recording, tmp_path):
    with pytest.raises(ConfigError, match=r"updates \(60 there, 80 here\)"):
        train(trained, recording, replace(TINY, updates=80))
    path = record(tmp_path / "data.npz")
    train(tmp_path / "run", path)
    before = result(tmp_path / "run")
    record(path, seed=1)
    with pytest.raises(RunError, match=r"The data have changed .* another name"):
        train(tmp_path / "run", path)
    assert result(tmp_path / "run") == before


def test_missing_unfinished_and_ill_named_models_are_told_apart(trained, tmp_path):
    with pytest.raises(RunError, match="no run folder"):
        find_model(tmp_path / "absent")
    with pytest.raises(RunError, match=r"no model from exploration.*there are offline"):
        find_model(trained)
    with pytest.raises(RunError, match="no finished model other; there are offline"):
        find_model(trained, "other")
    for name in ("../explore", "a/b", ".", ".hidden", " "):
        with pytest.raises(ConfigError, match="letters, digits"):
            find_model(trained, name)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"settings": 3}', b'{"settings": {"model": 3}}'])
def test_a_damaged_model_gives_one_sentence(trained, tmp_path, content):
    shutil.copytree(trained, tmp_path / "run")
    folder = tmp_path / "run" / "models" / "offline"
    (folder / "config.json").write_bytes(content)
    with pytest.raises(RunError, match=r"config.json is damaged"):
        load_model(tmp_path / "run", "offline")
    shutil.copy(trained / "models" / "offline" / "config.json", folder)
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(RunError, match=r"model.safetensors is damaged"):
        load_model(tmp_path / "run", "offline")


def test_a_model_of_another_version_gives_one_sentence(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    path = find_model(tmp_path / "run", "offline")
    state = load_tree(path)
    del state["inputs"]["low"]
    save_tree(path, state)
    with pytest.raises(RunError, match="of another version of curioplan; train the model again"):
        load_model(tmp_path / "run", "offline")


@settings(deadline=None)
@given(episodes=st.integers(1, 60), share=st.floats(0, 0.5))
def test_episodes_go_to_training_or_apart_and_few_are_all_trained_on(episodes, share):
    store = TrajectoryStore(1, 1, 1)
    for number in range(episodes):
        store.add_episode([[number], [number]], [[0]], [[0], [0]])
    known, unseen = split_episodes(store, share)
    numbers = [[int(episode.observations[0, 0]) for episode in part] for part in (known, unseen)]
    assert sorted(numbers[0] + numbers[1]) == list(range(episodes))
    assert len(numbers[1]) == (max(1, round(share * episodes)) if episodes >= 10 and share else 0)


def test_the_step_size_falls_to_zero_over_the_cooldown(recording):
    store = curioplan.load_data(recording, curioplan.make_task("maze_umaze"))
    trainer = ModelTrainer(store, replace(TINY, updates=100, cooldown=0.2))
    paces = []
    for trainer.updates in range(101):
        paces.append(trainer.pace)
    assert paces[:80] == [1.0] * 80
    np.testing.assert_allclose(paces[80:], np.linspace(1, 0, 21), atol=1e-12)
    assert ModelTrainer(store, replace(TINY, cooldown=0.0)).pace == 1.0


def test_pace_scales_the_updates_of_an_ensemble_and_one_changes_no_bit():
    states = torch.randn(200, 3, generator=torch.Generator().manual_seed(0)).cumsum(0)
    actions = torch.zeros(200, 1)

    def after(*paces):
        model = GaussianEnsemble(3, 1, TINY.model)
        model.add(states, actions, torch.arange(199))
        for pace in paces:
            model.update(states, actions, 1, **({} if pace is None else {"pace": pace}))
        return [weight.detach().clone() for weight in model.network.parameters()]

    def same(one, other):
        return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))

    assert same(after(1.0, 1.0), after(None, None))
    assert same(after(0.0), after())
    assert not same(after(0.5), after(1.0))
    assert same(after(1.0, 0.0), after(1.0))


def test_the_command_says_where_the_model_is_and_shows_examples(capsys, tmp_path, recording):
    arguments = ["--preset", "smoke", "--updates", "20", "--data", str(recording), "--name", "mine"]
    assert main(["train-model", str(tmp_path / "run"), "--env", "maze_umaze", *arguments]) == 0
    assert str(tmp_path / "run" / "models" / "mine") in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["train-model", "--help"])
    assert "examples:\n  curioplan train-model" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["new"], "not a run yet"),
        (["new", "--env", "maze_umaze", "--data", "a.npz="], "share of a.npz"),
        (["new", "--env", "maze_umaze", "--data", "a.npz", "--updates", "0"], "updates must be at least 1"),
        (
            ["new", "--env", "maze_umaze", "--data", "a.npz", "--cooldown", "2"],
            "cooldown must be between 0 and 1",
        ),
        (["new", "--env", "maze_umaze", "--data", "a.npz", "--held-out-episodes", "0.9"], "at most 0.5"),
        (["new", "--env", "maze_umaze", "--data", "a.npz", "--name", "../x"], "letters, digits"),
    ],
)
def test_bad_calls_cost_one_sentence_and_write_nothing(capsys, tmp_path, monkeypatch, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    assert main(["train-model", *arguments]) == 2
    err = capsys.readouterr().err
    assert err.startswith("curioplan: ")
    assert err.count("\n") == 1
    assert sentence in err
    assert list(tmp_path.iterdir()) == []
