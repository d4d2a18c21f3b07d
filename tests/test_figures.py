"""Every kind of figure, drawn from small real runs: that it is there, the same twice, and wide enough."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import curioplan
from curioplan.analysis.exploration import coverage_over_steps
from curioplan.analysis.figures import coverage_curves, success_bars, success_curves
from curioplan.analysis.figures_diagnostics import accuracy_figure, outcomes_figure
from curioplan.analysis.figures_maps import (
    AlongPath,
    aggregation_figure,
    graph_figure,
    occupancy_figure,
    trapped_figure,
)
from curioplan.analysis.landscape import steps_over_map
from curioplan.analysis.statistics import Interval, mean_interval
from curioplan.config import EvaluateConfig, ReachConfig
from curioplan.envs import make_task
from curioplan.errors import DataError
from curioplan.presets import preset
from curioplan.stages.control import Parts
from curioplan.stages.evaluate import load_outcomes, run_evaluation
from curioplan.stages.optimal import OverGraph, expert_paths

MAZE = make_task("maze_umaze")
KEPT = Path(__file__).parent.parent / "artefacts" / "figures"


def kept(name, draw):
    """The figure that `draw` makes, after checking that it is the same twice; kept to be looked at."""
    path = KEPT / f"{name}.png"
    draw(path)
    first = path.read_bytes(), path.with_suffix(".pdf").read_bytes()
    draw(path)
    assert (path.read_bytes(), path.with_suffix(".pdf").read_bytes()) == first
    with Image.open(path) as image:
        assert image.width >= 300
        assert len(image.convert("RGB").getcolors(2**24)) > 20
    return path


@pytest.fixture(scope="module")
def outcomes(trained, tmp_path_factory):
    """What three controllers of a smoke run did, by controller."""
    run = tmp_path_factory.mktemp("figures") / "run"
    run.mkdir()
    (run / "run.json").write_bytes((trained / "run.json").read_bytes())
    for part in ("explore", "values"):
        (run / part).symlink_to(trained / part)
    found = {}
    for controller in ("actor", "mbp", "mbp+graph"):
        config = replace(preset("smoke", EvaluateConfig), controller=controller)
        found[controller] = load_outcomes(run_evaluation(run, config, progress=False))
    return found


@pytest.fixture(scope="module")
def success(outcomes):
    return {
        name: mean_interval(np.array([[each.success] for each in some]), np.random.default_rng(0))
        for name, some in outcomes.items()
    }


@pytest.fixture(scope="module")
def parts(trained):
    return Parts(trained, MAZE, preset("smoke", ReachConfig))


def interval(estimate, width=0.08, runs=9):
    return Interval(estimate, max(0, estimate - width), min(1, estimate + width), runs)


def test_actors_against_planning(success):
    learners = {"TD3": {"actor": success["actor"], "planning": success["mbp"]}}
    learners |= {name: {"actor": interval(a), "planning": interval(p)} for name, a, p in PAPER}
    kept("actor-against-planning", lambda path: success_bars({"maze_umaze": learners}, path))


PAPER = [("CRR", 0.173, 0.031), ("MBPO", 0.0, 0.06), ("MOPO", 0.049, 0.025)]


def test_the_method_against_its_parts_with_the_line_of_sparse_costs(success):
    ours = {"": {"actor": success["actor"], "planning": success["mbp"], "with graph": success["mbp+graph"]}}
    four = {
        name: {
            "": {"actor": interval(0.1 * k), "planning": interval(0.2 * k), "with graph": interval(0.22 * k)}
        }
        for k, name in enumerate(("pinpad", "fetch_push", "kitchen"), start=1)
    }
    line = {"maze_umaze": 0.03, "pinpad": 0.1, "fetch_push": 0.73, "kitchen": 0.43}
    results = {"maze_umaze": ours, **four}
    kept(
        "method-against-parts",
        lambda path: success_bars(results, path, line=line, line_label="planning with sparse costs"),
    )


def test_graph_methods_and_polo(success):
    methods = {"inverse density": success["mbp+graph"], "uniform": interval(0.5)}
    methods |= {f"SORB, {steps} steps": interval(0.1 + 0.05 * k) for k, steps in enumerate((5, 10, 50, 100))}
    kept("graph-methods", lambda path: success_bars({"maze_umaze": {"": methods}}, path))
    polo = {"ours": success["mbp+graph"], "POLO*": interval(0.2), "POLO**": interval(0.0, 0.0)}
    kept("polo", lambda path: success_bars({"maze_umaze": {"": polo}, "pinpad": {"": polo}}, path))


def test_sample_efficiency_and_data_mixtures(success):
    sizes = {50: interval(0.3), 100: interval(0.5), 200: success["mbp+graph"]}
    plain = {50: interval(0.1), 100: interval(0.2), 200: success["mbp"]}
    results = {name: {"with graph": sizes, "planning": plain} for name in ("maze_umaze", "pinpad")}
    kept("sample-efficiency", lambda path: success_curves(results, path, "thousand transitions"))
    mixed = {share: interval(0.9 - 0.5 * share) for share in (0, 0.2, 0.4, 0.6, 0.8, 1)}
    other = {share: interval(0.8 - 0.7 * share) for share in mixed}
    panels = {"expert": {"model of exploration": mixed, "model of the mixture": other}, "random": {}}
    panels["random"] = {"model of exploration": other}
    kept("data-mixtures", lambda path: success_curves(panels, path, "share of exploration"))


def test_explorations_side_by_side(trained):
    store = curioplan.load_data(trained / "explore" / "data", MAZE)
    steps, counts, unit = coverage_over_steps(store, MAZE)
    runs = {
        "disagreement": [(steps, counts), (steps, np.maximum(counts - 1, 1))],
        "random": [(steps, counts // 2)],
    }
    kept("exploration", lambda path: coverage_curves(runs, path, unit, MAZE.coverage.total))


def test_occupancy_by_source(trained, outcomes):
    store = curioplan.load_data(trained / "explore" / "data", MAZE)
    tried = torch.cat([each.observations[:, :2] for each in outcomes["mbp"]]).numpy()
    sources = {"exploration": store.observations[:, :2].numpy(), "planning": tried}
    kept("occupancy", lambda path: occupancy_figure(sources, MAZE.floor_plan, path))


def test_a_landscape_with_the_trajectory_it_traps(parts, outcomes):
    values, shown = parts.values(), outcomes["mbp"][-1]
    steps = steps_over_map(values.value, MAZE, MAZE.floor_plan, shown.case, values.gamma)
    way = shown.observations[:, :2].numpy()
    kept(
        "trapped",
        lambda path: trapped_figure(steps, MAZE.floor_plan, shown.goal, way, path, optima=way[-1:]),
    )


def test_landscapes_with_and_without_aggregation_beside_values_along_the_optimal_path(parts):
    values, path = parts.values(), expert_paths(MAZE)[-1]
    over = OverGraph(parts, values, parts.config.graph, path.case.goal)
    start = path.states[0]
    maps = {
        name: steps_over_map(value, MAZE, MAZE.floor_plan, path.case, values.gamma)
        for name, value in (("without", values.value), ("with aggregation", over.seen_from(start)))
    }
    states, goal = path.states[::15], torch.tensor(path.case.goal)
    along = AlongPath(
        path.steps[::15],
        values.gamma ** path.steps[::15],
        values.value(states, goal.expand(len(states), -1)).detach().numpy(),
        over.along(states),
    )
    way = path.states[:, :2].numpy()
    kept(
        "aggregation",
        lambda file: aggregation_figure(maps, MAZE.floor_plan, path.case.goal, way, along, file),
    )
    kept("accuracy", lambda file: accuracy_figure({path.case.name: along, "again": along}, file))


def test_the_graph_over_the_maze_with_the_chosen_path(trained):
    agent = curioplan.Agent.load(trained, config=preset("smoke", ReachConfig))
    agent.reset([3.0, 1.0])
    start = [0.8, 0.8, 0.0, 0.0]
    agent.act(start)
    seen = agent.graph
    kept(
        "graph",
        lambda path: graph_figure(
            MAZE.floor_plan,
            seen.vertices[:, :2],
            seen.lengths,
            seen.threshold,
            seen.path,
            seen.remaining,
            start,
            (3.0, 1.0),
            path,
        ),
    )


def test_optima_and_non_monotonicities_of_successes_and_failures():
    rng = np.random.default_rng(0)
    shares = {"successes": rng.beta(1, 12, 14), "failures": rng.beta(2, 6, 22)}
    climbing = {"successes": rng.beta(2, 6, 14), "failures": []}
    kept(
        "optima",
        lambda path: outcomes_figure({"T-local optima": shares, "non-monotonicity": climbing}, path),
    )


@pytest.mark.parametrize(
    "draw",
    [
        lambda path: success_bars({"maze": {"": {}}}, path),
        lambda path: success_curves({"maze": {}}, path, "steps"),
        lambda path: coverage_curves({}, path, "cells"),
        lambda path: occupancy_figure({}, MAZE.floor_plan, path),
        lambda path: occupancy_figure({"data": np.zeros((0, 2))}, MAZE.floor_plan, path),
        lambda path: outcomes_figure({"optima": {"successes": [], "failures": []}}, path),
        lambda path: accuracy_figure({}, path),
    ],
)
def test_where_there_is_nothing_to_draw_it_is_said(draw, tmp_path):
    with pytest.raises(DataError, match="There are no"):
        draw(tmp_path / "figure.png")
    assert not list(tmp_path.iterdir())
