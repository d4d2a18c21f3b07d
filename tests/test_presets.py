"""Presets, and the exceptions they make for environments."""

from dataclasses import replace

import pytest

import curioplan
from curioplan import presets
from curioplan.cli import main
from curioplan.config import (
    DiagnoseConfig,
    EvaluateConfig,
    ExploreConfig,
    GraphConfig,
    LearnConfig,
    ReachConfig,
    TrainModelConfig,
)
from curioplan.envs import SHORT_NAMES
from curioplan.presets import PRESETS, preset
from curioplan.stages.polo import polo_config
from curioplan.studies.arguments import resolve_settings, settings
from curioplan.studies.catalogue import define
from curioplan.values import learner_config
from curioplan.values.registry import LEARNERS, learner_class
from curioplan.values.td3 import TD3Config

STAGES = (ExploreConfig, TrainModelConfig, LearnConfig, ReachConfig, EvaluateConfig, DiagnoseConfig)


@pytest.fixture
def exceptions(monkeypatch):
    """A table of exceptions of one's own."""
    found = {}
    monkeypatch.setattr(presets, "_EXCEPTIONS", found)
    return found


@pytest.mark.parametrize("env", ["pinpad", "curioplan/PinPad-v0"])
def test_curiosity_looks_further_ahead_in_pinpad(env):
    usual = preset("cpu", ExploreConfig)
    assert preset("cpu", ExploreConfig, env) == replace(usual, horizon=50)
    assert polo_config("cpu", env) == replace(polo_config("cpu"), horizon=50)
    assert preset("paper", ExploreConfig, env) == preset("paper", ExploreConfig)


def test_every_exception_is_of_a_known_environment_and_can_be_made():
    for name, _, env in presets._EXCEPTIONS:
        assert env in SHORT_NAMES
        assert any(preset(name, stage, env) != preset(name, stage) for stage in STAGES)


@pytest.mark.parametrize("env", ["", "fetch_push", "FetchReach-v4", "my_package.my_env:make"])
@pytest.mark.parametrize("name", PRESETS)
def test_other_environments_get_the_preset_as_it_is(name, env):
    for stage in STAGES:
        assert preset(name, stage, env) == preset(name, stage)


def test_exceptions_hold_wherever_the_settings_occur_and_the_outer_ones_win(exceptions):
    exceptions["cpu", GraphConfig, "kitchen"] = {"vertices": 70, "candidates": 700}
    exceptions["cpu", ReachConfig, "kitchen"] = {"horizon": 20, "graph.vertices": 80}
    exceptions["cpu", EvaluateConfig, "kitchen"] = {"reach.planner.population": 7}
    reach = preset("cpu", ReachConfig, "kitchen")
    assert (reach.horizon, reach.graph.vertices, reach.graph.candidates) == (20, 80, 700)
    evaluate = preset("cpu", EvaluateConfig, "curioplan/Kitchen-v0").reach
    assert evaluate == replace(reach, planner=replace(reach.planner, population=7))
    assert preset("cpu", DiagnoseConfig, "kitchen").graph.vertices == 70
    assert preset("cpu", ReachConfig, "pinpad") == preset("cpu", ReachConfig)


def test_what_an_environment_needs_goes_before_what_a_learner_sets_for_itself(exceptions):
    exceptions["cpu", LearnConfig, "fetch_push"] = {"updates": 33, "polyak": 0.5}
    config, usual = learner_config("td3", "cpu", "fetch_push"), learner_config("td3", "cpu")
    assert {"updates", "polyak"} <= set(type(config).presets["cpu"])
    assert config == replace(usual, updates=33, polyak=0.5)
    assert usual == learner_config("td3", "cpu", "maze_medium")


@pytest.mark.parametrize("env", ["pinpad", "curioplan/PinPad-v0"])
def test_learners_make_exceptions_of_their_own_before_those_of_all(exceptions, monkeypatch, env):
    exceptions["cpu", LearnConfig, "pinpad"] = {"updates": 33, "polyak": 0.5}
    monkeypatch.setattr(TD3Config, "exceptions", {("cpu", "pinpad"): {"polyak": 0.7, "lookahead": 4}})
    config, usual = learner_config("td3", "cpu", env), learner_config("td3", "cpu")
    assert config == replace(usual, updates=33, polyak=0.7, lookahead=4)
    assert learner_config("mbpo", "cpu", env).lookahead == 1
    assert learner_config("td3", "paper", env) == TD3Config()


def test_exceptions_of_learners_are_of_known_environments_and_can_be_made():
    for algo in LEARNERS:
        for name, env in learner_class(algo).Config.exceptions:
            assert env in SHORT_NAMES
            assert learner_config(algo, name, env) != learner_config(algo, name)


def test_stages_take_the_exceptions_for_the_environment_of_the_run(trained_run, exceptions, monkeypatch):
    exceptions["cpu", ReachConfig, "maze_umaze"] = {"horizon": 3}
    exceptions["cpu", LearnConfig, "maze_umaze"] = {"updates": 1}
    exceptions["cpu", TrainModelConfig, "maze_umaze"] = {"updates": 1}
    exceptions["cpu", DiagnoseConfig, "maze_umaze"] = {"horizon": 4}
    assert curioplan.Agent.load(trained_run, "mbp").controller.planner.horizon == 3

    taken = {}

    def open_stage(run, name, env, config, may_grow=()):
        taken[name.split("/")[0]] = config
        raise InterruptedError

    for stage in ("explore", "train", "train_model", "evaluate"):
        monkeypatch.setattr(f"curioplan.stages.{stage}.open_stage", open_stage)
    exceptions["cpu", ExploreConfig, "maze_umaze"] = {"steps": 77}
    for call in (
        lambda: curioplan.explore("maze_umaze", trained_run, progress=False),
        lambda: curioplan.train(trained_run, progress=False),
        lambda: curioplan.train_model(trained_run, progress=False),
        lambda: curioplan.evaluate(trained_run, "actor", progress=False),
    ):
        with pytest.raises(InterruptedError):
            call()
    assert taken["explore"].steps == 77
    assert taken["values"].updates == taken["models"].updates == 1
    assert taken["evaluations"].reach.horizon == 3
    by_function = dict(taken)
    for words in (
        ["explore", "maze_umaze", "--out", str(trained_run)],
        ["train", str(trained_run)],
        ["train-model", str(trained_run)],
        ["evaluate", str(trained_run), "--controller", "actor"],
    ):
        taken.clear()
        assert main(words) == 2
        [(name, config)] = taken.items()
        assert config == by_function[name]


def test_a_study_makes_the_exceptions_and_leaves_jobs_of_other_environments_as_they_were(exceptions):
    def jobs():
        [study] = define("method", ["maze_large", "pinpad"], 1)
        return study.plan.jobs

    before = jobs()
    exceptions["cpu", ExploreConfig, "pinpad"] = {"horizon": 50}
    after = jobs()
    changed = [name for name in before if before[name] != after[name]]
    assert changed == ["explore/pinpad/0"]
    assert resolve_settings(after["explore/pinpad/0"].arguments["config"]).horizon == 50
    given = settings("explore", "cpu", {"horizon": 40}, env="pinpad")
    assert resolve_settings(given).horizon == 40


def test_unknown_settings_in_a_table_are_refused(exceptions):
    exceptions["cpu", ReachConfig, "pinpad"] = {"planer.population": 3}
    with pytest.raises(curioplan.CurioplanError, match="has no setting planer"):
        preset("cpu", EvaluateConfig, "pinpad")
