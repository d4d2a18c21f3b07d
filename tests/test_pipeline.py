"""The whole way in one command."""

import shutil
import signal
import subprocess
import sys
import time

import pytest

import curioplan
from curioplan.cli import main
from curioplan.stages.pipeline import success_table
from curioplan.storage import read_json

ARGUMENTS = ("run", "maze_umaze", "--preset", "smoke", "--steps", "620")


def results(out):
    """Success by controller."""
    folders = sorted((out / "evaluations").iterdir())
    found = [read_json(folder / "result.json") for folder in folders]
    return {each["controller"]: (each["success"], each["seed"]) for each in found}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("pipeline") / "run"
    assert main([*ARGUMENTS, "--out", str(out), "--seed", "3"]) == 0
    return out


def test_one_command_explores_trains_and_evaluates_with_three_controllers(finished):
    assert (finished / "explore" / "model.safetensors").is_file()
    assert (finished / "values" / "td3-3" / "seed-3.safetensors").is_file()
    assert {name: seed for name, (_, seed) in results(finished).items()} == {
        "actor": 3,
        "mbp": 3,
        "mbp+graph": 3,
    }


def test_again_it_only_tells_the_success_rates(finished, capsys):
    weights = finished / "values" / "td3-3" / "seed-3.safetensors"
    before = weights.read_bytes()
    folders = curioplan.run_pipeline(
        "maze_umaze", finished, preset_name="smoke", steps=620, seed=3, progress=False
    )
    assert list(folders) == [
        "explore",
        "train",
        "evaluate actor",
        "evaluate mbp",
        "evaluate mbp+graph",
        "diagnose",
        "report",
    ]
    assert all(folder.exists() for folder in folders.values())
    assert weights.read_bytes() == before
    lines = success_table(folders).splitlines()
    assert [line.split()[0] for line in lines] == ["controller", "actor", "mbp", "mbp+graph"]
    for line in lines[1:]:
        name, rate = line.split()[:2]
        assert float(rate) == pytest.approx(results(finished)[name][0], abs=1e-3)


def test_it_reaches_for_other_goals_and_films_the_first(finished, tmp_path):
    run = shutil.copytree(finished, tmp_path / "run")
    folders = curioplan.run_pipeline(
        *("maze_umaze", run),
        **{"preset_name": "smoke", "steps": 620, "seed": 3, "cases": "own,random:4"},
        video=True,
        progress=False,
    )
    own = len(curioplan.make_task("maze_umaze").cases)
    for name in ("actor", "mbp", "mbp+graph"):
        assert read_json(folders[f"evaluate {name}"] / "result.json")["episodes"] == own + 4
    assert len(list((folders["evaluate mbp+graph"] / "videos").iterdir())) == 3


def test_killed_on_the_way_it_ends_the_same(finished, tmp_path):
    script = "import sys; from curioplan.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", script, *ARGUMENTS, "--out", str(tmp_path / "run"), "--seed", "3"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (tmp_path / "run" / "values").exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
    assert results(tmp_path / "run") == results(finished)
    for name in ("explore/model.safetensors", "values/td3-3/seed-3.safetensors"):
        assert (tmp_path / "run" / name).read_bytes() == (finished / name).read_bytes()
