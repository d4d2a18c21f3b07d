"""The studies of the paper: their plans, and tables from whatever has finished."""

import csv
import inspect
import os
import re
from collections import Counter
from pathlib import Path

import pytest

from curioplan.cli import main
from curioplan.errors import ConfigError, RunError
from curioplan.stages.control import CONTROLLERS
from curioplan.stages.train import load_values
from curioplan.storage import read_json, write_json
from curioplan.studies import estimates, paper
from curioplan.studies.arguments import resolve
from curioplan.studies.backends.local import LocalBackend
from curioplan.studies.catalogue import DATASETS, STUDIES, Entry, Study, Workbench, define
from curioplan.studies.execute import execute
from curioplan.studies.jobs import Job, Plan
from curioplan.studies.reproduce import make_backend, merged, reproduce
from curioplan.studies.schedule import describe
from curioplan.studies.tables import bootstrap_interval, tabulate
from curioplan.studies.worker import function
from study_jobs import leave_record
from test_local_backend import Recorder

HERE = str(Path(__file__).parent)


def interval(scores):
    return sum(scores) / len(scores), min(scores), max(scores)


def kinds(plan):
    return Counter(name.split("/")[0] for name in plan.jobs)


def small_study(rates=(0.2, 0.4, 0.9), failing=False):
    """A study whose jobs return given success rates, with one more row of which the paper has no figure."""
    jobs = [Job(f"evaluate/{k}", "study_jobs:success", {"rate": rate}) for k, rate in enumerate(rates)]
    if failing:
        jobs.append(Job("evaluate/bad", "study_jobs:fail", {"message": "The maze is closed."}))
    entries = [Entry("TD3+MBP", "maze_large", job.name) for job in jobs]
    entries.append(Entry("own | idea", "maze_umaze", jobs[0].name))
    return Study("method", "A small study", Plan(jobs), tuple(entries), {"TD3+MBP": "TD3+MBP"})


def test_nine_runs_are_three_datasets_with_three_value_seeds():
    [study] = define("method", ["maze_umaze"], preset="smoke")
    assert kinds(study.plan) == {"explore": 3, "train": 9, "evaluate": 36}
    seeds = {tuple(job.seeds.values()) for name, job in study.plan.jobs.items() if name.startswith("train")}
    assert seeds == {(dataset, seed) for dataset in range(DATASETS) for seed in range(3)}


def test_runs_on_one_dataset_differ_in_the_seed_of_values():
    [study] = define("method", ["maze_umaze"], 3, "smoke", datasets=1)
    assert kinds(study.plan) == {"explore": 1, "train": 3, "evaluate": 12}
    [usual] = define("method", ["maze_umaze"], 1, "smoke")
    assert usual.plan.fingerprints.items() <= study.plan.fingerprints.items()


def test_more_runs_only_add_jobs_and_begin_with_new_datasets():
    [few], [more] = (define("method", ["maze_umaze"], runs, "smoke") for runs in (2, 5))
    assert kinds(few.plan) == {"explore": 2, "train": 2, "evaluate": 8}
    assert few.plan.fingerprints.items() <= more.plan.fingerprints.items()


def test_studies_share_what_they_have_in_common():
    studies = define("all", ["maze_umaze"], 3, "smoke")
    assert [study.name for study in studies] == list(STUDIES)
    plan = merged(studies)
    # Three usual ones, six of sample-efficiency, three random ones, and three of each POLO.
    assert kinds(plan)["explore"] == 18
    assert sum(name.startswith("evaluate/maze_umaze/0/td3/0/mbp") for name in plan.jobs) == 8
    assert len(plan.jobs) < sum(len(study.plan.jobs) for study in studies)


@pytest.mark.parametrize("name", STUDIES)
def test_every_job_of_every_study_has_settings_and_a_cell(name, tmp_path):
    [study] = define(name, ["maze_umaze", "pinpad"], 2, "smoke")
    entered = {entry.job for entry in study.entries}
    assert entered == {name for name in study.plan.jobs if name.startswith(("evaluate", "optima"))}
    for job in study.plan.jobs.values():
        arguments = resolve(dict(job.arguments), tmp_path)
        seed = arguments["config"].seed if "config" in arguments else arguments["seed"]
        assert seed == list(job.seeds.values())[-1]
        assert job.seconds > 0
    assert {row: part for row, part in study.published.items() if part not in paper.SUCCESS} == {}


def test_every_job_calls_a_stage_with_arguments_that_it_takes(tmp_path):
    for study in define("all", ["maze_umaze"], 1, "smoke"):
        for job in study.plan.jobs.values():
            inspect.signature(function(job.call)).bind(**resolve(dict(job.arguments), tmp_path))
            assert job.arguments.get("controller", "mbp") in CONTROLLERS


def test_mixtures_leave_out_experts_where_there_are_none():
    [study] = define("mixtures", ["maze_umaze", "kitchen"], 1, "smoke")
    rows = {env: [e.row for e in study.entries if e.env == env] for env in ("maze_umaze", "kitchen")}
    assert len(rows["maze_umaze"]) == 20
    assert rows["kitchen"] == [row for row in rows["maze_umaze"] if "random" in row]
    assert rows["maze_umaze"][:2] == ["0% expert, exploration model", "25% expert, exploration model"]
    assert kinds(study.plan)["mix"] == 4 + 4 + 4


def test_value_driven_exploration_takes_the_settings_of_exploration(tmp_path):
    [study] = define("polo", ["maze_umaze"], 4, "smoke", {"explore.steps": 900, "polo.values.members": 2})
    jobs = [job for name, job in study.plan.jobs.items() if "/polo-mppi/" in name and "explore" in name]
    configs = [resolve(dict(job.arguments), tmp_path)["config"] for job in jobs]
    assert [(c.seed, c.steps, c.values.members, c.targets) for c in configs] == [
        (seed, 900, 2, "mppi") for seed in range(4)
    ]


def test_the_graph_study_has_a_row_for_every_threshold_of_sorb():
    [study] = define("graph", ["maze_umaze"], 1, "smoke")
    rows = [entry.row for entry in study.entries]
    assert rows[3:] == [f"SORB, V_min = γ^{steps}" for steps in (5, 10, 50, 100)]


def test_shorter_explorations_have_run_folders_and_rows_of_their_own():
    [study] = define("sample-efficiency", ["maze_large"], 1)
    explored = {name: job.arguments for name, job in study.plan.jobs.items() if name.startswith("explore")}
    steps = {name: arguments["config"]["changed"].get("steps") for name, arguments in explored.items()}
    assert steps == {
        "explore/maze_large/50k-steps/0": 50_000,
        "explore/maze_large/100k-steps/0": 100_000,
        "explore/maze_large/0": None,
    }
    assert len({arguments["out"]["$folder"] for arguments in explored.values()}) == 3
    assert study.published == {f"{part}, 200k": part for part in ("TD3", "TD3+MBP", "TD3+MBP+Aggregation")}


def test_settings_can_be_changed_for_all_jobs_of_a_stage(tmp_path):
    changed = {"explore.steps": 900, "learn.updates": 7, "reach.planner.population": 8}
    [study] = define("method", ["maze_umaze"], 1, "smoke", changed)
    config = {
        name.split("/")[0]: resolve(dict(job.arguments), tmp_path)["config"]
        for name, job in study.plan.jobs.items()
    }
    assert config["explore"].steps == 900
    assert config["train"].updates == 7
    assert config["evaluate"].planner.population == 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "methods"}, "no study methods; did you mean method"),
        ({"runs": 0}, "at least one"),
        ({"datasets": 0}, "at least one"),
        ({"envs": []}, "at least one"),
        ({"envs": ["maze_hug"]}, "no environment maze_hug"),
        ({"preset": "gpu"}, "no preset gpu"),
        ({"changed": {"steps": 3}}, "write stage.setting"),
        ({"changed": {"explore.step": 3}}, "did you mean steps"),
        ({"changed": {"reach.planner.size": 3}}, "has no setting planner.size"),
        ({"changed": {"learn.seed": 3}}, "goes through the seeds by itself"),
    ],
)
def test_impossible_studies_are_explained(arguments, message):
    with pytest.raises(Exception, match=message) as raised:
        define(**{"name": "method", "envs": ["maze_umaze"], "preset": "smoke"} | arguments)
    assert raised.type.__module__ == "curioplan.errors"


def test_the_estimate_of_a_study_is_that_of_its_stages(tmp_path):
    [study] = define("method", ["maze_large"], 3)
    exploring = 3 * 200_000 * estimates.STEPS_COST["maze_large"] / estimates.EXPLORE["cpu"] / 60
    text = describe(study.plan, tmp_path, 1)
    assert "18 jobs, 0 finished; the rest takes about" in text
    hours, minutes = re.search(r"about (\d+) h (\d+) min on", text).groups()
    assert exploring < 60 * int(hours) + int(minutes) < exploring * 1.6


def test_the_paper_has_a_figure_for_every_method_and_environment():
    assert len(paper.SUCCESS) == 10
    for row in paper.SUCCESS.values():
        assert tuple(row) == paper.ENVS
        for figure in row.values():
            if figure.low is not None:
                assert 0 <= figure.low <= figure.mean <= figure.high <= 1
    assert paper.SUCCESS["TD3+MBP+Aggregation"]["maze_large"] == (0.705, 0.627, 0.814)
    assert paper.SUCCESS["MBP+Sparse"]["kitchen"] == (0.430, None, None)


def finish(study, folder, *names):
    for name in names:
        result = {"success": study.plan.jobs[name].arguments["rate"]}
        leave_record(folder, study.plan, name, {"result": result})


def test_a_table_shows_what_has_finished_beside_the_paper(tmp_path):
    study = small_study()
    table = tabulate(study, tmp_path, interval)
    assert table.rows() == [
        ["", "maze_large", "runs", "paper", "maze_umaze", "runs", "paper"],
        ["TD3+MBP", "–", "0/3", "0.301 [0.206, 0.412]", "–", "", ""],
        ["own | idea", "–", "", "", "–", "0/1", ""],
    ]
    finish(study, tmp_path, "evaluate/1", "evaluate/2")
    table = tabulate(study, tmp_path, interval)
    assert table.rows()[1][1:4] == ["0.650 [0.400, 0.900]", "2/3", "0.301 [0.206, 0.412]"]
    assert "TD3+MBP     0.650 [0.400, 0.900]  2/3" in table.text()
    table.save(tmp_path, "method")
    lines = (tmp_path / "method.md").read_text().splitlines()
    assert "| TD3+MBP | 0.650 [0.400, 0.900] | 2/3 | 0.301 [0.206, 0.412] | – |  |  |" in lines
    widths = {line.replace("\\|", "").count("|") for line in lines if line.startswith("|")}
    assert widths == {8}
    with (tmp_path / "method.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows[0] | {"mean": "0.65", "paper": "0.301", "runs": "2", "planned": "3"} == rows[0]
    assert (rows[1]["method"], rows[1]["mean"]) == ("own | idea", "")
    assert all((tmp_path / f"method-beside-paper{kind}").stat().st_size > 1000 for kind in (".png", ".pdf"))


def test_intervals_are_those_of_the_bootstrap():
    assert bootstrap_interval([0.25]) == (0.25, 0.25, 0.25)
    mean, low, high = bootstrap_interval([0.0] * 50 + [1.0] * 50)
    assert mean == 0.5
    assert (low, high) == pytest.approx((0.5 - 1.645 * 0.05, 0.5 + 1.645 * 0.05), abs=0.01)


@pytest.mark.parametrize("success", [None, "0.5", True, 1.5])
def test_a_result_without_a_success_rate_is_named(tmp_path, success):
    study = small_study()
    finish(study, tmp_path, "evaluate/0")
    path = tmp_path / "jobs" / "evaluate" / "0.json"
    write_json(path, read_json(path) | {"result": {"success": success}})
    with pytest.raises(RunError, match="evaluate/0 has no success rate"):
        tabulate(study, tmp_path, interval)


class Interrupted(Recorder):
    def wait(self, seconds):
        raise KeyboardInterrupt


def test_an_interrupted_study_leaves_its_table(tmp_path):
    study = small_study()
    finish(study, tmp_path, "evaluate/0")
    backend = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        reproduce([study], tmp_path, backend, interval, progress=False)
    assert backend.closed
    assert "0.200 [0.200, 0.200] | 1/3" in (tmp_path / "method.md").read_text()
    assert (tmp_path / "method.png").exists()


def test_a_study_with_failures_has_a_table_and_says_what_failed(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([HERE, *os.environ.get("PYTHONPATH", "").split(":")]))
    study = small_study(rates=(0.5,), failing=True)
    with pytest.raises(RunError, match=r"1 job failed.*\n  evaluate/bad: The maze is closed\.") as raised:
        reproduce([study], tmp_path, make_backend("local", tmp_path), interval, progress=False)
    assert str(tmp_path / "logs") in str(raised.value)
    assert "| 0.500 [0.500, 0.500] | 1/2 |" in (tmp_path / "method.md").read_text()


def test_settings_that_a_preset_no_longer_has_are_said(tmp_path, caplog):
    bench = Workbench("smoke")
    plan = Plan([bench.explore("maze_umaze", 0)])
    [job] = plan.jobs.values()
    study = Study("method", "One job", plan, (), {})
    leave_record(tmp_path, plan, job.name, {"settings": {"explore": {"steps": 1}}})
    reproduce([study], tmp_path, Recorder(), interval, progress=False)
    assert "explore.steps was 1 and is 1500" in caplog.text


def test_backends_are_made_by_name(tmp_path):
    assert isinstance(make_backend("local", tmp_path, cores=1), LocalBackend)
    for name, options, message in (
        ("slurm", {}, "no backend slurm"),
        ("ray", {"cores": 2}, "the cluster says"),
        ("local", {"storage": "s3://bucket"}, "for the backend ray"),
    ):
        with pytest.raises(ConfigError, match=message):
            make_backend(name, tmp_path, **options)


def test_stages_run_as_jobs_leave_a_run_that_the_library_reads(tmp_path):
    bench = Workbench("smoke", {"explore.steps": 700, "learn.updates": 20})
    trained = bench.train(bench.explore("maze_umaze", 1), "td3", 2)
    plan = Plan(bench.jobs)
    report = execute(plan, tmp_path, LocalBackend(tmp_path), progress=False)
    assert report.failed == {}
    record = plan.record(tmp_path, trained.name)
    assert record["result"] == {"folder": "runs/maze_umaze/1/values/td3-2"}
    assert record["seeds"] == {"dataset": 1, "values": 2}
    assert record["settings"]["learn"]["updates"] == 20
    assert load_values(tmp_path / "runs" / "maze_umaze" / "1", seed=2) is not None


def test_a_dry_run_needs_no_folder_and_makes_none(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["reproduce", "method", "--envs", "maze_umaze", "--seeds", "2", "--preset", "smoke", "--dry-run"]
    assert main([*words, "--set", "explore.steps=900", "--cores", "1"]) == 0
    shown = capsys.readouterr().out
    assert "evaluate/maze_umaze/1/td3/0/mbp+graph" in shown
    assert "12 jobs, 0 finished; the rest takes about" in shown
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["methods"], "There is no study methods; did you mean method?"),
        (["method", "--seeds", "0"], "at least one environment, one dataset and one seed"),
        (["method", "--cores", "-1"], "must be at least 1, not -1"),
        (["method", "--set", "explore.steps"], "explore.steps is not a setting: write stage.setting=value"),
        (["method", "--set", "explore.steps=many"], "steps must be of type int, not 'many'"),
        (["method", "--backend", "cloud"], "There is no backend cloud; there are local, ray."),
    ],
)
def test_impossible_commands_are_explained(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", *words, "--preset", "smoke"]) == 2
    assert message in capsys.readouterr().err
