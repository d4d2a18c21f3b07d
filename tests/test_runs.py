"""Run folders: one writer, the same settings, and continuing where they stopped."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from curioplan import runs
from curioplan.config import ExploreConfig
from curioplan.errors import ConfigError, RunError
from curioplan.metrics import read_metrics
from curioplan.presets import preset
from curioplan.runs import open_stage, read_run
from curioplan.storage import read_json

CONFIG = preset("smoke", ExploreConfig)


def opened(run, config=CONFIG, env="maze_umaze", **keywords):
    return open_stage(run, "explore", env, config, **keywords)


def test_a_stage_continues_with_what_it_saved(tmp_path):
    with opened(tmp_path) as stage:
        assert stage.resumed is None
        stage.metrics.write(1, {"loss": 0.5})
        stage.save(1, {"weights": torch.ones(3)}, {"data": {"rows": torch.zeros(2)}})
        stage.metrics.write(2, {"loss": 0.25})  # lost, as it came after the checkpoint
    with opened(tmp_path) as stage:
        assert stage.resumed.step == 1
        assert torch.equal(stage.resumed.state["weights"], torch.ones(3))
        assert len(stage.resumed.journals["data"]) == 1
        stage.metrics.write(2, {"loss": 0.125})
    assert [(row["step"], row["loss"]) for row in read_metrics(tmp_path / "explore")] == [
        (1, 0.5),
        (2, 0.125),
    ]
    assert list((tmp_path / "explore" / "tensorboard").iterdir())


def test_settings_versions_and_environment_are_saved_with_the_run(tmp_path):
    with opened(tmp_path):
        pass
    saved = read_json(tmp_path / "explore" / "config.json")
    assert saved["settings"]["planner"]["population"] == CONFIG.planner.population
    assert saved["versions"].keys() >= {"python", "torch", "mujoco", "curioplan"}
    assert read_run(tmp_path)["env"] == "maze_umaze"


def test_continuing_with_other_versions_is_said(tmp_path, monkeypatch, caplog):
    with opened(tmp_path) as stage:
        stage.save(1, {})
    with opened(tmp_path):
        assert not caplog.records
    now = runs.versions()
    monkeypatch.setattr(runs, "versions", lambda: now | {"torch": "9.9"})
    with opened(tmp_path):
        assert "torch" in caplog.text
        assert "is now 9.9" in caplog.text


def test_other_settings_are_refused_with_the_differing_fields_named(tmp_path):
    with opened(tmp_path):
        pass
    before = (tmp_path / "explore" / "config.json").read_bytes()
    other = replace(CONFIG, seed=3, planner=replace(CONFIG.planner, population=99))
    with pytest.raises(
        ConfigError, match=r"seed \(0 there, 3 here\), planner.population \(16 there, 99 here\)"
    ):
        opened(tmp_path, other).__enter__()
    assert (tmp_path / "explore" / "config.json").read_bytes() == before


def test_settings_that_were_not_there_yet_are_taken_to_have_been_as_by_default(tmp_path):
    with opened(tmp_path):
        pass
    path = tmp_path / "explore" / "config.json"
    saved = json.loads(path.read_text())
    del saved["settings"]["planner"]["temperature"]
    path.write_text(json.dumps(saved))
    with pytest.raises(ConfigError, match=r"planner.temperature \(0.3 there, 9.0 here\)"):
        opened(tmp_path, replace(CONFIG, planner=replace(CONFIG.planner, temperature=9.0))).__enter__()
    with opened(tmp_path):
        pass


def test_steps_may_grow_but_not_shrink(tmp_path):
    with opened(tmp_path):
        pass
    with opened(tmp_path, replace(CONFIG, steps=CONFIG.steps + 1), may_grow=("steps",)):
        pass
    with pytest.raises(ConfigError, match="steps"):
        opened(tmp_path, CONFIG, may_grow=("steps",)).__enter__()


def test_another_environment_in_the_same_folder_is_refused(tmp_path):
    with opened(tmp_path):
        pass
    with pytest.raises(ConfigError, match="a run on maze_umaze, not on pinpad"):
        opened(tmp_path, env="pinpad").__enter__()


def test_a_second_process_cannot_write_a_stage_and_a_dead_one_leaves_no_lock(tmp_path):
    script = (
        "import sys, os; from pathlib import Path; from curioplan.config import ExploreConfig\n"
        "from curioplan.presets import preset; from curioplan.runs import open_stage\n"
        "with open_stage(Path(sys.argv[1]), 'explore', 'maze_umaze', preset('smoke', ExploreConfig)):\n"
        "    print('open', flush=True); sys.stdin.read(); os.kill(os.getpid(), 9)\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdout.readline() == b"open\n"
    with pytest.raises(RunError, match="being written by another process"):
        opened(tmp_path).__enter__()
    other.communicate()
    assert other.returncode == -9
    with opened(tmp_path) as stage:
        assert stage.resumed is None


@pytest.mark.parametrize("content", [b"", b"[]", b'{"format": 99, "env": "x"}', b"\xff\xfe"])
def test_a_damaged_run_file_gives_one_sentence_and_is_left_alone(tmp_path, content):
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(RunError, match=r"run.json"):
        opened(tmp_path).__enter__()
    assert (tmp_path / "run.json").read_bytes() == content


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"nonsense"])
def test_a_damaged_config_file_gives_one_sentence_and_is_left_alone(tmp_path, content):
    with opened(tmp_path):
        pass
    path = tmp_path / "explore" / "config.json"
    path.write_bytes(content)
    with pytest.raises(RunError, match=r"config.json is damaged"):
        opened(tmp_path).__enter__()
    assert path.read_bytes() == content


def test_a_missing_or_foreign_folder_is_told_apart(tmp_path):
    with pytest.raises(RunError, match="no run folder"):
        read_run(tmp_path / "absent")
    with pytest.raises(RunError, match="not a run folder"):
        read_run(tmp_path)


def test_metrics_cut_by_hand_are_noticed(tmp_path):
    with opened(tmp_path) as stage:
        stage.metrics.write(1, {"loss": 0.5})
        stage.save(1, {})
    (tmp_path / "explore" / "metrics.jsonl").write_bytes(b"")
    with pytest.raises(RunError, match="shorter than its checkpoint"):
        opened(tmp_path).__enter__()


def test_a_torn_last_line_of_metrics_is_skipped(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2')
    assert list(read_metrics(tmp_path)) == [{"step": 1}]
    assert list(read_metrics(tmp_path / "absent")) == []
