"""Plans of jobs: shared work once, an order, what is done, and how long the rest takes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curioplan.config import ExploreConfig
from curioplan.errors import ConfigError, RunError
from curioplan.presets import preset
from curioplan.studies.arguments import complete_settings, folder, folders, resolve, settings
from curioplan.studies.jobs import Job, Plan
from curioplan.studies.records import machine, require_json
from curioplan.studies.schedule import Pace, describe, time_left, words
from study_jobs import adding, leave_record


def test_what_several_jobs_need_is_there_once_and_first():
    shared = adding("explore/maze/0")
    plan = Plan([adding("b", needs=("explore/maze/0",)), shared, adding("a"), shared]) | Plan([shared])
    assert list(plan.jobs) == ["explore/maze/0", "b", "a"]


def test_two_different_jobs_of_one_name_are_refused():
    with pytest.raises(RunError, match=r"two different jobs a: x is 1 and 5\."):
        Plan([adding("a"), adding("a", x=5)])
    with pytest.raises(RunError, match="needs is"):
        Plan([adding("a"), adding("b"), adding("a", needs=("b",))])


def test_missing_jobs_and_circles_are_named():
    with pytest.raises(RunError, match="b needs a, which is not in the plan"):
        Plan([adding("b", needs=("a",))])
    circle = [adding("a", needs=("b",)), adding("b", needs=("c",)), adding("c", needs=("a",))]
    with pytest.raises(RunError, match=r"circle: . needs . needs . needs .\.") as raised:
        Plan(circle)
    needs = {job.name: job.needs[0] for job in circle}
    named = str(raised.value).split(": ")[1].rstrip(".").split(" needs ")
    assert [needs[name] for name in named[:-1]] == named[1:]


@pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", "../a", "a/../b", ".hidden", "a b", "a\n"])
def test_names_that_could_lead_out_of_the_folder_are_refused(name):
    with pytest.raises(RunError, match="name of a job"):
        adding(name)


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, (1, 2), {1: 2}, object()])
def test_arguments_that_json_cannot_hold_are_refused(value):
    with pytest.raises(RunError, match="JSON cannot hold"):
        adding("a", x=value)


@pytest.mark.parametrize("call", ["study_jobs", "study_jobs:", ":add", "a b:c", "os:system('x')"])
def test_a_call_names_a_module_and_a_function(call):
    with pytest.raises(RunError, match="must call module:function"):
        Job("a", call)


def test_a_job_has_finished_only_with_the_same_arguments_after_the_same_jobs(tmp_path):
    plan = Plan([adding("a"), adding("b", needs=("a",))])
    assert [job.name for job in plan.pending(tmp_path)] == ["a", "b"]
    for name in plan.jobs:
        leave_record(tmp_path, plan, name)
    assert plan.pending(tmp_path) == []
    changed = Plan([adding("a", x=9), adding("b", needs=("a",))])
    assert [job.name for job in changed.pending(tmp_path)] == ["a", "b"]
    estimated_anew = Plan([adding("a", seconds=1e3), adding("b", needs=("a",), cores=2)])
    assert estimated_anew.pending(tmp_path) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not valid JSON"),
        (b"[]", "not the record of a job"),
        (b'{"format": 2}', "has format 2; this version reads format 1"),
        (b'{"format": 1, "name": "a"}', "its fingerprint is missing"),
    ],
)
def test_damaged_results_and_those_of_other_versions_give_one_sentence(tmp_path, content, message):
    plan = Plan([adding("a")])
    path = tmp_path / plan.jobs["a"].result
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(RunError, match=message):
        plan.pending(tmp_path)
    assert path.read_bytes() == content


def test_the_result_of_another_job_is_not_taken_for_this_one(tmp_path):
    plan = Plan([adding("a")])
    leave_record(tmp_path, plan, "a", {"name": "b"})
    with pytest.raises(RunError, match="is the record of b, not of a"):
        plan.pending(tmp_path)


def test_time_left_is_that_of_the_schedule():
    plan = Plan(
        [
            adding("a", seconds=10),
            adding("b", seconds=4, needs=("a",)),
            adding("c", seconds=5),
            adding("wide", seconds=3, cores=8, needs=("c",)),
        ]
    )
    jobs = list(plan.jobs.values())
    assert time_left(jobs, 1) == 22
    assert time_left(jobs, 2) == pytest.approx(10 + 4 + 3)  # wide waits until both cores are free
    assert time_left(jobs, 16) == 14
    assert time_left(jobs, 2, running={"a": 7.0}) == pytest.approx(3 + 4 + 3)
    assert time_left([], 2) == 0


@given(st.lists(st.integers(1, 50), min_size=1, max_size=12), st.integers(1, 5))
def test_list_scheduling_is_at_most_twice_as_long_as_any_schedule(seconds, cores):
    jobs = [adding(f"j{k}", seconds=s) for k, s in enumerate(seconds)]
    least = max(max(seconds), sum(seconds) / cores)
    assert least <= time_left(jobs, cores) <= 2 * least


def test_finished_jobs_correct_the_estimates_of_their_kind():
    pace, job = Pace(), adding("train/maze/0/td3/1", seconds=10)
    assert job.kind == "train/maze/td3"
    pace.learn(adding("other", seconds=10), 20)
    assert pace.seconds(job) == 20  # for want of better
    pace.learn(adding("train/maze/2/td3/0", seconds=10), 5)
    assert pace.seconds(job) == 5


def test_a_job_that_found_its_work_done_says_nothing_about_others():
    pace, job = Pace(), adding("train/maze/0/td3/1", seconds=10)
    pace.learn(adding("explore/maze/0", seconds=3600), 20)
    assert pace.seconds(job) == 10
    pace.learn(adding("explore/maze/1", seconds=3600), 1800)
    assert pace.seconds(job) == 5


def test_a_dry_run_shows_every_job_what_is_done_and_the_time(tmp_path):
    plan = Plan([adding("a", seconds=600), adding("b", seconds=600, needs=("a",)), adding("c", seconds=90)])
    text = describe(plan, tmp_path, 2)
    assert "3 jobs, 0 finished; the rest takes about 20 min on 2 cores" in text
    leave_record(tmp_path, plan, "a", {"duration": 1200})
    text = describe(plan, tmp_path, 2)
    assert "3 jobs, 1 finished; the rest takes about 20 min on 2 cores" in text  # b is expected to double too
    lines = {line.split()[0]: line for line in text.splitlines() if line}
    assert lines["a"].endswith("finished")
    assert lines["b"].endswith("20 min")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "1 s"),
        (99, "99 s"),
        (100, "2 min"),
        (3599, "1 h 00 min"),
        (12_000, "3 h 20 min"),
        (2e5, "2 d 8 h"),
    ],
)
def test_durations_are_said_in_words(seconds, text):
    assert words(seconds) == text


def test_settings_are_a_preset_and_what_differs(tmp_path):
    given = settings("explore", "smoke", {"steps": 700, "planner.population": 8, "updates_per_step": 1})
    arguments = {"config": given, "out": folder("runs/a"), "more": [folder("runs/b"), 3]}
    resolved = resolve(json.loads(json.dumps(arguments)), tmp_path)
    assert isinstance(resolved["config"], ExploreConfig)
    assert resolved["config"].steps == 700
    assert resolved["config"].planner.population == 8
    assert resolved["config"].warmup_steps == preset("smoke", ExploreConfig).warmup_steps
    assert resolved["out"] == tmp_path / "runs" / "a"
    assert resolved["more"] == [tmp_path / "runs" / "b", 3]
    assert folders(arguments) == ["runs/a", "runs/b"]
    assert complete_settings(arguments)["explore"]["planner"]["population"] == 8


def test_settings_of_learners_are_their_own(tmp_path):
    config = resolve(settings("learn", "smoke", {"seed": 4}, "crr"), tmp_path)
    assert (config.algo, config.seed) == ("crr", 4)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"step": 1}, "no setting step; did you mean steps"),
        ({"planner.populaton": 1}, "no setting planner.populaton; did you mean population"),
        ({"planner": 1}, "planner of ExploreConfig is a group"),
        ({"steps.more": 1}, "steps of ExploreConfig has no parts"),
        ({"steps": "many"}, "steps must be of type int, not 'many'"),
        ({"steps": True}, "steps must be of type int"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"explorer": "luck"}, "explorer must be one of disagreement"),
    ],
)
def test_impossible_settings_are_explained(tmp_path, changed, message):
    with pytest.raises(ConfigError, match=message):
        resolve(settings("explore", "smoke", changed), tmp_path)


def test_records_say_what_machine_it_was_and_not_whose():
    found = machine()
    assert found.keys() == {"cpu", "cores", "memory_gib", "platform"}
    assert found["cores"] >= 1
    assert found["memory_gib"] > 0


@pytest.mark.parametrize("value", [float("inf"), b"x", {1: 2}, [{"a": {2}}]])
def test_results_that_json_cannot_hold_are_refused(value):
    with pytest.raises(RunError, match=r"result"):
        require_json({"value": value})
