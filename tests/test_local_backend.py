"""Jobs as processes of this machine: cores shared, failures contained, interruptions survived."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from curioplan.config import ExploreConfig
from curioplan.errors import RunError
from curioplan.presets import preset
from curioplan.runs import versions
from curioplan.storage import read_json, write_json
from curioplan.studies.arguments import settings
from curioplan.studies.backends import Outcome, temporary
from curioplan.studies.backends.local import LocalBackend
from curioplan.studies.execute import Execution, execute, study_lock
from curioplan.studies.jobs import Job, Plan
from curioplan.studies.worker import Clock, perform
from study_jobs import adding, counting, is_alive, steps_of, wait_until

HERE = str(Path(__file__).parent)


@pytest.fixture(autouse=True)
def _workers_find_the_functions(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([HERE, *os.environ.get("PYTHONPATH", "").split(":")]))


def run(plan, folder, cores=2, **keywords):
    return execute(plan, folder, LocalBackend(folder, cores), progress=False, **keywords)


class Recorder:
    """A backend that finishes whatever it is given, unless told to let it fail."""

    def __init__(self, cores=2, failing=(), queues=False):
        self.cores, self.failing, self.queues = cores, failing, queues
        self.running, self.started, self.busiest, self.closed = [], [], 0, False

    def start(self, job, fingerprint):
        self.running.append(job)
        self.started.append(job.name)
        self.busiest = max(self.busiest, sum(min(job.cores, self.cores) for job in self.running))

    def wait(self, seconds):
        job = self.running.pop(0)
        return [Outcome(job.name, error="It fell." if job.name in self.failing else "", duration=1.0)]

    def close(self):
        self.closed = True


def test_a_finished_job_leaves_all_that_is_needed_to_judge_or_repeat_it(tmp_path):
    given = settings("explore", "smoke", {"steps": 700})
    jobs = [
        Job("settings/0", "study_jobs:describe_settings", {"config": given}, seeds={"dataset": 0}),
        Job("threads", "study_jobs:threads", cores=2),
    ]
    plan = Plan(jobs)
    assert sorted(run(plan, tmp_path).finished) == ["settings/0", "threads"]
    record = read_json(tmp_path / "jobs" / "settings" / "0.json")
    assert record["arguments"] == {"config": given}
    assert record["settings"]["explore"]["steps"] == 700
    assert record["result"]["warmup_steps"] == preset("smoke", ExploreConfig).warmup_steps
    assert record["seeds"] == {"dataset": 0}
    assert record["versions"] == versions()
    assert record["machine"]["cores"] >= 1
    assert record["duration"] > 0
    assert record["attempts"] == 1
    assert read_json(tmp_path / "jobs" / "threads.json")["result"] == {"torch": 2, "environment": "2"}
    assert str(tmp_path) not in (tmp_path / "jobs" / "settings" / "0.json").read_text()
    backend = Recorder()
    execute(plan, tmp_path, backend, progress=False)
    assert backend.started == []  # nothing is left to do


def test_one_failure_stops_only_what_needs_it(tmp_path):
    plan = Plan(
        [
            Job("fails", "study_jobs:fail", {"message": "The maze is closed."}),
            adding("after", needs=("fails",)),
            adding("long-after", needs=("after",)),
            Job("stumbles", "study_jobs:stumble"),
            adding("independent"),
        ]
    )
    report = run(plan, tmp_path, cores=1)
    assert report.finished == ["independent"]
    assert report.failed == {
        "fails": "The maze is closed.",
        "stumbles": "KeyError: 'left foot'",
    }
    assert report.left_out == {"after": "fails", "long-after": "fails"}
    with pytest.raises(RunError, match=r"2 jobs failed.*\n.*fails \(2 more need it\): The maze is closed\."):
        report.raise_failures(tmp_path)
    assert "Traceback" in (tmp_path / "logs" / "stumbles.log").read_text()
    assert [job.name for job in plan.pending(tmp_path)] == [
        name for name in plan.jobs if name != "independent"
    ]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("study_jobs:nowhere", "the module has no nowhere"),
        ("nowhere:add", "No module named 'nowhere'"),
        ("study_jobs:HERE", "it is a str"),
        ("study_jobs:not_json", "result.loss is nan, which JSON cannot hold"),
    ],
)
def test_jobs_that_cannot_be_called_or_kept_are_explained(tmp_path, call, message):
    job, clock = Job("a", call), Clock(tmp_path / "time.json", "fingerprint")
    with pytest.raises(RunError, match=message):
        perform(job, "fingerprint", tmp_path, clock)
    assert not (tmp_path / job.result).exists()


def test_time_is_added_up_over_attempts(tmp_path):
    path = tmp_path / "time.json"
    write_json(path, {"fingerprint": "same", "duration": 100.0, "processor": 50.0, "attempts": 2})
    spent = Clock(path, "same").spent()
    assert 100 <= spent["duration"] < 110
    assert spent["attempts"] == 3
    assert Clock(path, "of other arguments").spent()["attempts"] == 1
    path.write_bytes(b"{")
    assert Clock(path, "same").spent()["attempts"] == 1


def test_cores_are_shared_out_and_never_oversubscribed(tmp_path):
    jobs = [adding(f"j{k}", cores=1 + k % 3) for k in range(9)]
    backend = Recorder(cores=3)
    assert len(execute(Plan(jobs), tmp_path, backend, progress=False).finished) == 9
    assert backend.busiest == 3
    assert backend.closed
    wide = Recorder(cores=2)
    execute(Plan([adding("wide", cores=64)]), tmp_path, wide, progress=False)
    assert wide.started == ["wide"]
    queueing = Recorder(cores=1, queues=True)
    execute(Plan(jobs), tmp_path, queueing, progress=False)
    assert queueing.busiest == 9


def test_a_study_begun_is_finished_run_by_run(tmp_path):
    jobs = [
        job
        for k in range(3)
        for job in (adding(f"explore/{k}"), adding(f"eval/{k}", needs=(f"explore/{k}",)))
    ]
    backend = Recorder(cores=1)
    execute(Plan(jobs), tmp_path, backend, progress=False)
    assert backend.started == [name for k in range(3) for name in (f"explore/{k}", f"eval/{k}")]


def test_the_time_left_follows_what_finished_jobs_have_taken(tmp_path):
    jobs = [adding(f"train/{k}", seconds=10) for k in range(3)]
    execution = Execution(Plan(jobs), tmp_path, Recorder(cores=1))
    assert execution.time_left() == pytest.approx(30)
    execution.start()
    execution.take(Outcome("train/0", duration=100.0))
    assert execution.time_left() == pytest.approx(200)


def test_jobs_that_wait_in_a_queue_are_not_taken_to_be_running(tmp_path):
    jobs = [adding(f"train/{k}", seconds=10) for k in range(3)]
    execution = Execution(Plan(jobs), tmp_path, Recorder(cores=1, queues=True))
    execution.start()
    assert execution.running.keys() == {"train/0", "train/1", "train/2"}
    assert execution.time_left() == pytest.approx(30)


def test_progress_tells_jobs_and_time_left(tmp_path, capsys):
    execute(Plan([adding("a"), adding("b")]), tmp_path, Recorder(), title="method", progress=True)
    assert "method: 2/2 jobs" in capsys.readouterr().err


def test_temporary_folders_of_killed_processes_are_removed_and_those_in_use_are_not(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(temporary, "YOUNG", -1.0)
    abandoned, foreign = tmp_path / f"{temporary.PREFIX}old", tmp_path / "something-else"
    write_json(abandoned / "order.json", 0)
    foreign.mkdir()
    with temporary.temporary_folder() as mine:
        assert not abandoned.exists()
        with temporary.temporary_folder():
            assert mine.exists()
    assert list(tmp_path.iterdir()) == [foreign]


def test_two_processes_cannot_work_on_one_study(tmp_path):
    with study_lock(tmp_path), pytest.raises(RunError, match="Another process works on"):
        run(Plan([adding("a")]), tmp_path)


PARENT = """
import sys
from pathlib import Path
from curioplan.studies.backends.local import LocalBackend
from curioplan.studies.execute import execute
from test_local_backend import counting_plan
folder = Path(sys.argv[1])
execute(counting_plan(), folder, LocalBackend(folder, 1), progress=False)
"""


def counting_plan():
    slow = {"upto": 60, "pace": 0.05}
    return Plan(
        [
            counting("first"),
            counting("second", **slow, needs=("first",)),
            counting("third", needs=("second",)),
        ]
    )


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_study_continues_with_what_is_unfinished(tmp_path, ending):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([HERE, os.environ["PYTHONPATH"]])}
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], env=environment, stderr=subprocess.PIPE
    )
    wait_until(lambda: len(steps_of(tmp_path, "second")) >= 3)
    worker, _ = steps_of(tmp_path, "second")[0]
    parent.send_signal(ending)
    parent.communicate(timeout=30)
    wait_until(lambda: not is_alive(worker), seconds=10)
    taken = steps_of(tmp_path, "second")
    time.sleep(0.2)
    assert steps_of(tmp_path, "second") == taken  # the child has ended with its parent
    if ending != signal.SIGKILL:
        return
    assert sorted(run(counting_plan(), tmp_path).finished) == ["second", "third"]
    steps = [step for _, step in steps_of(tmp_path, "second")]
    assert steps in ([*range(1, 61)], [*range(1, len(taken) + 1), *range(len(taken), 61)])
    assert len({pid for pid, _ in steps_of(tmp_path, "first")}) == 1
    record = read_json(tmp_path / "jobs" / "second.json")
    assert record["attempts"] == 2
    assert record["result"]["step"] == 60
    assert record["result"]["folder"] == "runs/second"


def test_a_worker_killed_from_outside_is_a_failure_that_the_next_call_mends(tmp_path):
    plan = Plan([counting("slow", upto=40, pace=0.05)])
    backend = LocalBackend(tmp_path, 1)
    backend.start(plan.jobs["slow"], plan.fingerprints["slow"])
    try:
        wait_until(lambda: len(steps_of(tmp_path, "slow")) >= 2)
        os.kill(steps_of(tmp_path, "slow")[0][0], signal.SIGKILL)
        [outcome] = backend.wait(30)
    finally:
        backend.close()
    assert "ended by SIGKILL" in outcome.error
    assert run(plan, tmp_path).finished == ["slow"]
