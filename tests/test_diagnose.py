"""Diagnosis of a run: the numbers, the figures, and what is refused."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import curioplan
from curioplan.cli import main
from curioplan.config import DiagnoseConfig, EvaluateConfig, ReachConfig
from curioplan.envs import make_task
from curioplan.envs.maze import SUCCESS_RADIUS
from curioplan.errors import RunError
from curioplan.presets import preset
from curioplan.stages.control import Parts
from curioplan.stages.diagnose import diagnose
from curioplan.stages.evaluate import load_outcomes, run_evaluation
from curioplan.stages.optimal import ARRIVED, OverGraph, expert_paths

SMOKE = preset("smoke", DiagnoseConfig)
FIGURES = ("optima", "accuracy", "aggregation", "model_error", "occupancy")


@pytest.fixture(scope="module")
def diagnosed(trained, tmp_path_factory):
    """A run with two value functions trained together, evaluated and diagnosed."""
    run = tmp_path_factory.mktemp("diagnosed") / "run"
    run.mkdir()
    (run / "run.json").write_bytes((trained / "run.json").read_bytes())
    (run / "explore").symlink_to(trained / "explore")
    learning = replace(
        curioplan.learner_config("td3", "smoke"),
        updates=50,
        units=16,
        batch_size=32,
        seeds=2,
        bootstrap="trajectories",
    )
    curioplan.train(run, "td3", learning, progress=False)
    success = replace(learning, updates=1, seeds=1, reward="success")
    curioplan.train(run, "td3", success, name="success", progress=False)
    run_evaluation(run, replace(preset("smoke", EvaluateConfig), controller="actor"), progress=False)
    diagnose(run, SMOKE)
    return run


def numbers(run, name="td3-0-to-1"):
    return json.loads((run / "diagnosis" / name / "diagnosis.json").read_text())


def test_every_part_is_measured_and_drawn(diagnosed):
    folder = diagnosed / "diagnosis" / "td3-0-to-1"
    for name in FIGURES:
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (folder / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    found = numbers(diagnosed)
    assert (found["task"], found["seeds"], found["evaluations"]) == ("maze_umaze", [0, 1], ["actor-td3-0"])
    assert found["occupancy"]["data"]["coverage"]["total"] == 7
    assert [error["steps"] for error in found["model_error"]["all dimensions"]][:2] == [1, 2]


def test_trajectories_are_told_apart_by_their_outcome_and_every_value_function_counts(diagnosed):
    found = numbers(diagnosed)["trajectories"]
    outcomes = load_outcomes(diagnosed / "evaluations" / "actor-td3-0")
    assert [entry["success"] for entry in found["episodes"]] == [outcome.success for outcome in outcomes]
    assert found["successes"]["episodes"] == sum(outcome.success for outcome in outcomes)
    assert found["failures"]["episodes"] == sum(not outcome.success for outcome in outcomes)
    for entry, outcome in zip(found["episodes"], outcomes, strict=True):
        assert entry["states"] == -(-len(outcome.observations) // SMOKE.stride)
        assert len(entry["optima"]) == len(entry["non_monotonicity"]) == 2
        assert all(deep <= share for deep, share in zip(entry["deep"], entry["optima"], strict=True))
        assert len(entry["traps"]) == round(entry["deep"][0] * entry["states"])
        assert all(step % SMOKE.stride == 0 for step in entry["traps"])
    failed = [np.mean(entry["optima"]) for entry in found["episodes"] if not entry["success"]]
    if failed:
        assert found["failures"]["optima"]["estimate"] == pytest.approx(np.mean(failed))
        assert found["failures"]["optima"]["runs"] == 2


def test_values_are_compared_with_true_times_along_the_optimal_paths(diagnosed):
    found = numbers(diagnosed)["accuracy"]
    assert list(found["cases"]) == [case.name for case in make_task("maze_umaze").cases]
    for along in found["cases"].values():
        assert along["steps"] == sorted(along["steps"], reverse=True)
        np.testing.assert_allclose(along["expected"], 0.99 ** np.maximum(np.array(along["steps"]) - 1, 0))
        assert all(0 <= value <= 1 for key in ("values", "aggregated") for value in along[key])
    wrong = [
        abs(value - true)
        for along in found["cases"].values()
        for value, true in zip(along["values"], along["expected"], strict=True)
    ]
    assert found["values"]["mean_absolute_error"] == pytest.approx(np.mean(wrong))


@pytest.mark.parametrize("seed", [0, 1])
def test_values_and_aggregated_values_are_of_the_same_value_function(diagnosed, seed):
    diagnose(diagnosed, replace(SMOKE, seed=seed), name=f"of-{seed}")
    task = make_task("maze_umaze")
    value = Parts(diagnosed, task, ReachConfig(), seed=seed, values_name="td3-0-to-1").values().value
    for path in expert_paths(task, SMOKE.draws, radius=0.0):
        along = numbers(diagnosed, f"of-{seed}")["accuracy"]["cases"][path.case.name]
        ends = value(path.states[[0, -1]], torch.tensor([path.case.goal] * 2))
        assert [along["values"][0], along["values"][-1]] == pytest.approx(ends.tolist(), abs=1e-6)


def test_true_times_count_to_where_the_reward_of_the_values_fell(diagnosed):
    diagnose(diagnosed, replace(SMOKE, values="success"))
    to_success, to_the_state = (
        numbers(diagnosed, name)["accuracy"]["cases"] for name in ("success", "td3-0-to-1")
    )
    for name, along in to_success.items():
        assert along["steps"][-1] == 0 < to_the_state[name]["steps"][-1]
        assert all(np.array(along["steps"]) < np.array(to_the_state[name]["steps"]))


def test_the_same_diagnosis_twice_gives_the_same_bytes(diagnosed):
    def snapshot():
        return {path.name: path.read_bytes() for path in (diagnosed / "diagnosis" / "td3-0-to-1").iterdir()}

    before = snapshot()
    diagnose(diagnosed, SMOKE)
    assert snapshot() == before


def test_the_expert_arrives_at_every_goal_and_its_true_times_end_there():
    task = make_task("maze_umaze")
    paths = expert_paths(task, radius=0.0)
    assert [path.case for path in paths] == list(task.cases)
    for path in paths:
        assert torch.linalg.norm(path.states[-1, :2] - torch.tensor(path.case.goal)) <= ARRIVED
        assert len(path.states) - 1 <= 1.35 * path.steps[0] + 10
        assert path.steps[-1] < 15
    for path, same in zip(expert_paths(task), paths, strict=True):
        within = torch.linalg.norm(path.states[:, :2] - torch.tensor(path.case.goal), dim=1) <= SUCCESS_RADIUS
        assert (path.steps[within] == 0).all()
        assert (path.steps[~within] > 0).all()
        assert (path.steps <= same.steps).all()
    assert expert_paths(make_task("pinpad")) == []


def test_over_a_graph_values_are_never_lower_than_within_one_edge(trained_run):
    task = make_task("maze_umaze")
    parts = Parts(trained_run, task, ReachConfig())
    values = parts.values()
    over = OverGraph(parts, values, replace(SMOKE.graph, evaluate="exact", calibrated=False), (1.0, 3.0))
    states, goal = parts.data().observations[::60], torch.tensor([1.0, 3.0])
    direct = values.value(states, goal.expand(len(states), -1))
    for state, alone in zip(states, direct, strict=True):
        threshold = over.view(state).threshold
        if threshold >= torch.log(alone) / np.log(values.gamma) + SMOKE.graph.arrival:
            assert over.along(state[None])[0] >= float(alone) - 1e-6


def test_without_evaluations_the_rest_is_diagnosed(trained_run, caplog):
    folder = diagnose(trained_run, SMOKE, name="bare")
    found = numbers(trained_run, "bare")
    assert "trajectories" not in found
    assert found["accuracy"]
    assert "no evaluations" in caplog.text
    assert not (folder / "optima.png").exists()


def test_what_is_not_there_is_refused_and_nothing_is_written(trained_run):
    with pytest.raises(RunError, match="no finished evaluation 'best'"):
        diagnose(trained_run, replace(SMOKE, evaluations="best"))
    with pytest.raises(RunError, match="no values of iql"):
        diagnose(trained_run, replace(SMOKE, algo="iql"))
    assert not (trained_run / "diagnosis").exists()


def test_the_command_prints_the_findings(diagnosed, capsys):
    assert main(["diagnose", str(diagnosed), "--preset", "smoke"]) == 0
    shown = capsys.readouterr().out
    for text in ("T-local optima", "non-monotonicity", "over graph", "model error after", "cells visited"):
        assert text in shown
