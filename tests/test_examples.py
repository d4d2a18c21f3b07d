"""Every example runs, at a tiny size, and says what it promises."""

import importlib.util
import re
import shlex
import sys
from pathlib import Path

import pytest

import curioplan
from curioplan.errors import ConfigError
from curioplan.values import LEARNERS, Learner, learner_class, register

EXAMPLES = Path(__file__).parent.parent / "examples"
SMALL = ["--preset", "smoke"]


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def reached(text):
    """The controllers, with the percentage of goals they reached."""
    return {
        name: int(share) for name, share in re.findall(r"^(\S+): (\d+)% of the goals", text, re.MULTILINE)
    }


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Runs an example in an empty folder and gives what it printed."""

    def run(name, *words):
        monkeypatch.chdir(tmp_path)
        load(name).main([str(word) for word in words])
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_every_example_says_what_it_shows_and_how_to_run_it(path, monkeypatch):
    module, calls = load(path.stem), []
    lines = [line.strip() for line in module.__doc__.splitlines()]
    assert lines[0].endswith(".")
    commands = [line for line in lines if line.startswith("python ")]
    assert commands
    monkeypatch.setattr("argparse.ArgumentParser.parse_args", lambda self, words: calls.append((self, words)))
    for command in commands:
        python, script, *words = shlex.split(command)
        assert (python, script) == ("python", f"examples/{path.name}")
        with pytest.raises(AttributeError):  # there are no arguments, so it ends there
            module.main(words)
    monkeypatch.undo()
    for parser, words in calls:
        parser.parse_args(words)


def test_an_environment_that_is_not_shipped(run, tmp_path):
    words = ("--steps", 200, "--updates", 20, "--goals", 2, "--out", tmp_path / "reach")
    shown = run("own_environment", *SMALL, *words)
    assert "  ok: " in shown
    assert set(reached(shown)) == {"actor", "mbp"}


def test_a_dataset_through_minari(run, tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    words = ("--episodes", 2, "--updates", 20, "--out", tmp_path / "recorded")
    shown = run("own_dataset", *SMALL, *words)
    assert "umaze/wandering-v0: 600 transitions in 2 episodes" in shown
    assert set(reached(shown)) == {"actor", "mbp+graph"}


def test_a_learner_in_one_file(run, trained_run):
    (trained_run / "values").unlink()
    shown = run("own_learner", *SMALL, "--updates", 200, "--seeds", 2, "--run", trained_run)
    assert set(reached(shown)) == {"actor", "mbp+graph"}
    values = curioplan.load_values(trained_run, "hindsight", 1)
    store = curioplan.load_data(trained_run / "explore" / "data")
    states, goals = store.observations[:-1], store.achieved_goals[1:]
    near = values.value(states, goals).mean()
    far = values.value(states, goals.flip(0)).mean()
    assert near > far


def test_a_loop_at_a_fixed_rate(run, trained_run):
    words = ("--rate", 20, "--seconds", 0.5, "--every", 5, "--population", 8, "--run", trained_run)
    shown = run("control_loop", *SMALL, *words)
    actions, rate = re.search(r"^(\d+) actions at ([\d.]+) Hz", shown).groups()
    assert int(actions) == 10
    assert float(rate) < 23  # it waits for the ticks, of which the first is at once
    assert "the goal was" in shown


def test_a_learner_cannot_take_the_name_of_another():
    class Impostor(Learner):
        Config = learner_class("td3").Config

    with pytest.raises(ConfigError, match="needs a name of its own"):
        register(Impostor)
    assert "td3" in LEARNERS
