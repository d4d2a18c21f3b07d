"""The figures of studies, of the paper's kind, from whatever has finished; and the study of optima."""

from pathlib import Path

import numpy as np
import pytest

from curioplan.data import TrajectoryStore, save_minari
from curioplan.envs import make_task
from curioplan.stages.diagnose import MEASURES
from curioplan.studies import figures
from curioplan.studies.arguments import resolve
from curioplan.studies.catalogue import STUDIES, define
from curioplan.studies.optima import MEASURED
from curioplan.studies.records import plain_result, require_json
from curioplan.studies.tables import bootstrap_interval, tabulate
from curioplan.studies.worker import function
from study_jobs import leave_record

KEPT = Path(__file__).parent.parent / "artefacts" / "studies"
TINY = {
    "explore.steps": 620,
    "explore.warmup_steps": 600,
    "learn.updates": 20,
    "learn.units": 16,
    "reach.horizon": 20,
    "reach.planner.population": 8,
    "reach.planner.replan_every": 20,
    "diagnose.horizon": 3,
    "diagnose.stride": 100,
    "diagnose.sequences": 3,
    "diagnose.graph.vertices": 10,
}


@pytest.fixture
def drawn(monkeypatch):
    """What figures were asked for, in place of the figures: the function, what is shown, and options."""
    found = []
    for name in ("success_bars", "success_curves", "outcomes_figure", "occupancy_figure", "coverage_curves"):

        def noting(what, *_, name=name, **keywords):
            found.append((name, what, keywords))

        monkeypatch.setattr(figures, name, noting)
    return found


def finish(study, folder, share):
    """Leave the results of the first share of the jobs."""
    rng = np.random.default_rng(0)
    for name in list(study.plan.jobs)[: round(share * len(study.plan.jobs))]:
        result = {"success": float(rng.uniform())}
        if name.startswith("optima"):
            shares = {
                measure: {"successes": [0.1], "failures": rng.uniform(size=5).tolist()}
                for measure in MEASURES
            }
            result = {row: float(np.mean(shares[m][o])) for row, (m, o) in MEASURED.items()}
            result["shares"] = shares
        leave_record(folder, study.plan, name, {"result": result})


def wandering(task, steps=30):
    """Trajectories that have come from somewhere, as far as a figure can tell."""
    rng = np.random.default_rng(0)
    store = TrajectoryStore(task.observation_dim, task.goal_dim, task.action_dim)
    for _ in range(2):
        observations = rng.uniform(1, 2, (steps + 1, task.observation_dim)).astype(np.float32)
        actions = rng.uniform(-1, 1, (steps, task.action_dim))
        store.add_episode(observations, actions, observations[:, list(task.goal_indices)])
    return store


def draw(study, folder):
    figures.draw(study, tabulate(study, folder, bootstrap_interval), folder)


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_draws_what_has_finished_and_nothing_of_nothing(name, tmp_path, caplog):
    [study] = define(name, ["maze_large", "pinpad"], 2, "smoke")
    draw(study, tmp_path)
    assert list(tmp_path.iterdir()) == []
    finish(study, tmp_path, 0.8)
    draw(study, tmp_path)
    assert caplog.text == ""
    assert (tmp_path / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    KEPT.mkdir(parents=True, exist_ok=True)
    for path in tmp_path.glob("*.png"):
        (KEPT / path.name).write_bytes(path.read_bytes())


def test_learners_stand_as_pairs_and_sparse_costs_as_a_line(tmp_path, drawn):
    for name in ("learners", "method"):
        [study] = define(name, ["maze_large"], 1, "smoke")
        finish(study, tmp_path, 1)
        draw(study, tmp_path)
    (_, learners, _), (_, method, keywords) = drawn
    assert list(learners["maze_large"]["TD3"]) == ["actor", "MBP"]
    assert len(learners["maze_large"]) == 9
    assert list(method["maze_large"][""]) == ["TD3", "TD3+MBP", "TD3+MBP+Aggregation"]
    assert list(keywords["line"]) == ["maze_large"]


def test_amounts_and_mixtures_of_data_are_curves(tmp_path, drawn):
    for name in ("sample-efficiency", "mixtures"):
        [study] = define(name, ["maze_umaze"], 1, "smoke")
        finish(study, tmp_path, 1)
        draw(study, tmp_path)
    (_, amounts, _), (_, mixtures, _) = drawn
    assert list(amounts["maze_umaze"]["TD3+MBP"]) == [0.375, 0.75, 1.5]
    assert list(mixtures) == ["maze_umaze, expert", "maze_umaze, random"]
    assert list(mixtures["maze_umaze, expert"]["offline model"]) == [0, 0.25, 0.5, 0.75, 1]


def test_explorations_are_compared_on_a_map_or_over_their_steps(tmp_path, drawn):
    [study] = define("exploration", ["maze_umaze", "fetch_push"], 2, "smoke")
    for job in study.plan.jobs.values():
        if job.name.startswith("explore") and not job.name.endswith("/polo-on-policy/1"):
            task = make_task(job.arguments["env"])
            store = wandering(task)
            save_minari(store, tmp_path / job.arguments["out"]["$folder"] / "explore" / "data", task=task)
    draw(study, tmp_path)
    (_, positions, _), (_, visited, _) = drawn
    assert set(positions) == set(visited) == {"disagreement", "value-driven", "random"}
    assert [len(visited[name]) for name in ("disagreement", "value-driven")] == [2, 1]


def test_thirty_value_functions_are_bootstrapped_on_three_datasets():
    [study] = define("optima", ["maze_large"])
    jobs = study.plan.jobs
    trained = [job for name, job in jobs.items() if name.startswith("train")]
    evaluated = [job for name, job in jobs.items() if name.startswith("evaluate")]
    assert [job.arguments["config"]["changed"]["seeds"] for job in trained] == [10, 10, 10]
    assert all(job.arguments["config"]["changed"]["bootstrap"] == "trajectories" for job in trained)
    assert len({(job.seeds["dataset"], job.seeds["values"]) for job in evaluated}) == 30
    assert len(jobs["optima/maze_large/0"].needs) == 10


def test_the_study_of_optima_looks_at_each_trajectory_with_the_values_it_was_planned_with(tmp_path, drawn):
    [study] = define("optima", ["maze_umaze"], 1, "smoke", TINY)
    for job in study.plan.jobs.values():
        arguments = resolve(dict(job.arguments), tmp_path)
        found = plain_result(
            function(job.call)(**arguments | ({} if "optima" in job.name else {"progress": False})), tmp_path
        )
        require_json(found)
        leave_record(tmp_path, study.plan, job.name, {"result": found})
    assert found["functions"] == 2
    trajectories = sum(len(some) for some in found["shares"]["optima"].values())
    assert trajectories == 2 * len(make_task("maze_umaze").cases)
    for measure, outcome in MEASURED.values():
        some = found["shares"][measure][outcome]
        mean = found[f"{MEASURES[measure]}, {outcome}"]
        assert mean == (pytest.approx(np.mean(some)) if some else None)
    draw(study, tmp_path)
    assert [name for name, *_ in drawn] == ["outcomes_figure"] * 3
    table = tabulate(study, tmp_path, bootstrap_interval)
    assert table.cells["success"]["maze_umaze"].planned == 2
    assert "share of the states" in table.markdown()
