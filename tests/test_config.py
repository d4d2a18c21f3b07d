"""Settings: presets, flags for every field, and refusal of what cannot be."""

import contextlib
from dataclasses import asdict, fields, is_dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curioplan.config import (
    DiagnoseConfig,
    EvaluateConfig,
    ExploreConfig,
    LearnConfig,
    ReachConfig,
    differences,
    from_dict,
)
from curioplan.errors import ConfigError
from curioplan.options import Parser, add_config, field_docs, read_config
from curioplan.presets import PRESETS, preset

STAGES = (ExploreConfig, LearnConfig, ReachConfig, EvaluateConfig, DiagnoseConfig)


def parse(config, *arguments):
    parser = Parser(prog="curioplan explore")
    add_config(parser, config)
    return read_config(config, parser.parse(arguments))


def classes(config):
    yield type(config)
    for entry in fields(config):
        value = getattr(config, entry.name)
        if is_dataclass(value):
            yield from classes(value)


def test_paper_preset_holds_the_values_of_the_paper():
    explore, learn, reach, evaluate, diagnose = (preset("paper", stage) for stage in STAGES)
    model, planner = explore.model, explore.planner
    assert (explore.steps, explore.warmup_steps, explore.epochs) == (200_000, 3000, 12)
    assert (model.members, model.elites, model.layers, model.units) == (7, 5, 4, 200)
    assert (model.learning_rate, model.weight_decay, model.batch_size, model.beta) == (2.8e-4, 1e-4, 512, 0)
    assert (model.log_variance_min, model.log_variance_max) == (-10, 0.5)
    assert (planner.iterations, planner.population, planner.elite_ratio) == (3, 400, 0.01)
    assert (planner.momentum, planner.noise_exponent, planner.keep_fraction) == (0.1, 3, 0.3)
    assert (planner.particles, planner.propagation, planner.execute) == (20, "ts1", "mean")
    assert (planner.initial_std, planner.population_decay, planner.variance_limit) == (0.25, 1, 100)
    assert (learn.epochs, learn.batch_size, learn.layers, learn.units) == (200, 512, 2, 512)
    assert (learn.actor_learning_rate, learn.critic_learning_rate, learn.polyak) == (1e-5, 1e-5, 0.995)
    assert (learn.p_goal, learn.p_geometric) == (0.75, 0.2)
    assert reach.planner == planner
    graph = reach.graph
    assert (graph.vertices, graph.sampling, graph.through, graph.evaluate) == (
        0,
        "inverse-density",
        "goals",
        "exact",
    )
    assert (graph.density_goals, graph.density_scale, graph.max_distance) == (1000, 20, 500)
    assert (graph.near_vertices, graph.preselect, graph.arrival, graph.candidates) == (100, "nearest", 0, 0)
    assert evaluate.reach == reach
    assert (diagnose.sequences, diagnose.stride, diagnose.graph) == (50, 1, reach.graph)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", PRESETS)
def test_every_field_is_explained_and_survives_json(stage, name):
    config = preset(name, stage)
    for cls in classes(config):
        assert set(field_docs(cls)) == {entry.name for entry in fields(cls)}
    assert from_dict(stage, asdict(config)) == config


def test_any_field_can_be_set_by_its_flag():
    config = parse(
        preset("cpu", ExploreConfig),
        "--planner.population",
        "64",
        "--model.beta=0.25",
        "--steps",
        "9",
        "--explorer",
        "random",
    )
    assert (config.planner.population, config.model.beta, config.steps, config.explorer) == (
        64,
        0.25,
        9,
        "random",
    )
    assert config.planner.iterations == preset("cpu", ExploreConfig).planner.iterations


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--planner.populaton", "3"],
            "has no option --planner.populaton; did you mean --planner.population?",
        ),
        (["--planner.population", "many"], "--planner.population: invalid int value: 'many'"),
        (["--planner.method", "icm"], "--planner.method cannot be icm; did you mean icem?"),
        (["--planner.population", "0"], "population must be at least 1, not 0"),
        (["--model.learning-rate", "nan"], "learning_rate must be above 0, not nan"),
        (["--model.learning-rate", "inf"], "learning_rate must be above 0, not inf"),
        (["--model.elites", "9"], r"elites \(9\) must not exceed members"),
        (["--steps", "-5"], "steps must be at least 1"),
        (["--foresight", "1"], "foresight must be at least 0 and below 1, not 1"),
        (["--foresight", "nan"], "foresight must be at least 0 and below 1, not nan"),
        (["--planner.elite-ratio", "1.5"], "elite_ratio must be above 0 and at most 1"),
        (["surprise"], "does not expect the argument surprise"),
        (["--steps"], "expected one argument"),
    ],
)
def test_unknown_and_impossible_values_are_refused_with_a_way_out(arguments, message):
    with pytest.raises(ConfigError, match=message.replace("?", r"\?")):
        parse(preset("cpu", ExploreConfig), *arguments)


@settings(deadline=None)  # how long it takes depends on what else the machine does
@given(st.lists(st.text(max_size=12), max_size=4))
def test_any_arguments_are_parsed_or_refused(arguments):
    if {"-h", "--help"} & set(arguments):
        return
    with contextlib.suppress(ConfigError):
        assert parse(preset("smoke", ExploreConfig), *arguments).steps >= 1


def test_differences_name_nested_fields_once():
    old = {"a": 1, "b": {"c": 2, "d": 3}, "gone": 0}
    new = {"a": 1, "b": {"c": 5, "d": 3}, "new": 1}
    assert differences(old, new) == {"b.c": (2, 5), "new": (None, 1), "gone": (0, None)}


def test_unknown_settings_in_a_file_are_refused():
    with pytest.raises(ConfigError, match="has no setting colour"):
        from_dict(ExploreConfig, {"colour": 1})
    with pytest.raises(ConfigError, match="There is no preset fast"):
        preset("fast", ExploreConfig)
