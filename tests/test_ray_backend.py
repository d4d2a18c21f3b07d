"""The same jobs as tasks of Ray: same results, lost workers replaced, files on shared storage."""

import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from curioplan.errors import ConfigError, RunError
from curioplan.storage import read_json, write_json
from curioplan.studies.backends.local import LocalBackend
from curioplan.studies.backends.mirror import Mirror
from curioplan.studies.backends.ray import RayBackend
from curioplan.studies.execute import execute
from curioplan.studies.jobs import Job, Plan
from study_jobs import adding, counting, is_alive, steps_of, wait_until

HERE = str(Path(__file__).parent)
TOKEN = secrets.token_hex(32)  # else Ray would leave one in the home folder
TIMES = ("duration", "processor", "attempts")


@pytest.fixture(scope="module")
def cluster():
    ray = pytest.importorskip("ray", reason="left out: Ray is not installed (pip install 'curioplan[ray]')")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_TOKEN", TOKEN)
        patch.setenv("PYTHONPATH", os.pathsep.join([HERE, *os.environ.get("PYTHONPATH", "").split(":")]))
        ray.init(
            address="local",  # tests in parallel have a cluster each
            num_cpus=2,
            object_store_memory=80 * 2**20,
            include_dashboard=False,
            log_to_driver=False,
            configure_logging=False,
        )
        yield ray
        ray.shutdown()


def results(folder, plan):
    """What jobs left, without what differs from one time to the next."""
    found = {}
    for name in plan.jobs:
        record = plan.record(folder, name)
        found[name] = {key: value for key, value in record.items() if key not in TIMES}
    return found


def test_both_backends_give_the_same_results(cluster, tmp_path):
    plan = Plan(
        [
            counting("count/0", upto=7),
            adding("after", needs=("count/0",)),
            Job("threads", "study_jobs:threads"),
            Job("fails", "study_jobs:fail", {"message": "The maze is closed."}),
            adding("never", needs=("fails",)),
        ]
    )
    reports = []
    for name, backend in (("local", LocalBackend), ("ray", RayBackend)):
        folder = tmp_path / name
        reports.append(execute(plan, folder, backend(folder), progress=False))
    assert reports[0].failed == reports[1].failed == {"fails": "The maze is closed."}
    assert reports[0].left_out == reports[1].left_out == {"never": "fails"}
    done = Plan([job for name, job in plan.jobs.items() if name not in ("fails", "never")])
    assert results(tmp_path / "local", done) == results(tmp_path / "ray", done)
    assert cluster.is_initialized()  # a cluster that was there before stays


@pytest.mark.parametrize("shared", ["folder", "url"])
def test_a_job_whose_worker_is_lost_continues_elsewhere_from_its_checkpoint(cluster, tmp_path, shared):
    plan = Plan([counting("slow", upto=50, pace=0.05)])
    storage = tmp_path / "storage" if shared == "url" else tmp_path / "study"
    backend = RayBackend(tmp_path / "study", storage.as_uri() if shared == "url" else "", sync_every=0.2)
    backend.start(plan.jobs["slow"], plan.fingerprints["slow"])
    try:
        wait_until(lambda: len(steps_of(storage, "slow")) >= 5)
        job_pid = steps_of(storage, "slow")[0][0]
        os.kill(parent_of(job_pid), signal.SIGKILL)
        wait_until(lambda: not is_alive(job_pid), seconds=10)
        outcomes = []
        wait_until(lambda: outcomes.extend(backend.wait(1.0)) or outcomes)
    finally:
        backend.close()
    assert [outcome.error for outcome in outcomes] == [""]
    steps = steps_of(storage, "slow")
    assert len({pid for pid, _ in steps}) == 2
    assert 50 <= len(steps) < 75  # little was done twice
    record = plan.record(tmp_path / "study", "slow")
    assert record["attempts"] == 2
    alone = tmp_path / "alone"
    execute(plan, alone, LocalBackend(alone), progress=False)
    assert record["result"] == plan.record(alone, "slow")["result"]
    assert plan.record(storage, "slow") == record


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def test_a_job_killed_in_a_worker_that_lives_is_tried_again(cluster, tmp_path):
    plan = Plan([counting("slow", upto=40, pace=0.05)])
    backend = RayBackend(tmp_path)
    backend.start(plan.jobs["slow"], plan.fingerprints["slow"])
    try:
        wait_until(lambda: len(steps_of(tmp_path, "slow")) >= 2)
        os.kill(steps_of(tmp_path, "slow")[0][0], signal.SIGKILL)
        outcomes = []
        wait_until(lambda: outcomes.extend(backend.wait(1.0)) or outcomes)
    finally:
        backend.close()
    assert outcomes[0].error == ""
    assert plan.pending(tmp_path) == []


def test_a_study_on_storage_continues_from_another_folder(cluster, tmp_path):
    first = Plan([counting("count/0", upto=3)])
    whole = Plan([*first.jobs.values(), counting("count/1", upto=3, needs=("count/0",))])
    failing = Job("fails", "study_jobs:fail", {"message": "The maze is closed."})
    storage = (tmp_path / "storage").as_uri()
    execute(first, tmp_path / "here", RayBackend(tmp_path / "here", storage), progress=False)
    elsewhere = tmp_path / "elsewhere"
    plan = whole | Plan([failing])
    report = execute(plan, elsewhere, RayBackend(elsewhere, storage), progress=False)
    assert report.finished == ["count/1"]
    assert report.failed == {"fails": "The maze is closed."}
    assert "The maze is closed." in (elsewhere / "logs" / "fails.log").read_text()
    assert results(elsewhere, whole) == results(tmp_path / "storage", whole)
    assert not (elsewhere / "runs").exists()
    write_json(elsewhere / "jobs" / "own.json", {})
    with pytest.raises(RunError, match=r"own.json is not on file://"):
        RayBackend(elsewhere, storage)


ALONE = """
import sys
from pathlib import Path
import ray
from study_jobs import adding
from curioplan.studies.backends.ray import RayBackend
from curioplan.studies.execute import execute
from curioplan.studies.jobs import Plan
folder = Path(sys.argv[1])
report = execute(Plan([adding("a")]), folder, RayBackend(folder), progress=False)
assert report.finished == ["a"], report
assert not ray.is_initialized()
"""


def test_where_there_is_no_cluster_ray_is_started_and_ended(tmp_path):
    pytest.importorskip("ray", reason="left out: Ray is not installed (pip install 'curioplan[ray]')")
    path = os.pathsep.join([HERE, *os.environ.get("PYTHONPATH", "").split(":")])
    environment = os.environ | {"PYTHONPATH": path, "RAY_AUTH_TOKEN": TOKEN, "RAY_ADDRESS": "local"}
    subprocess.run([sys.executable, "-c", ALONE, str(tmp_path / "study")], env=environment, check=True)


def test_without_ray_one_sentence_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'curioplan\[ray\]'"):
        RayBackend(tmp_path)


def test_a_plain_path_is_not_storage_to_copy_to(tmp_path):
    with pytest.raises(ConfigError, match="is a path and needs no copying"):
        RayBackend(tmp_path, storage=str(tmp_path / "other"))


def test_only_what_changed_here_is_sent_and_only_what_was_removed_here_is_removed(tmp_path):
    there, mine, yours = (tmp_path / name for name in ("there", "mine", "yours"))
    write_json(there / "run" / "a.json", 1)
    write_json(there / "run" / "b.json", 1)
    write_json(there / "other" / "c.json", 1)
    (there / "run" / "half.json.part").write_bytes(b"{")
    one, two = Mirror(there.as_uri(), mine), Mirror(there.as_uri(), yours)
    assert one.pull(["run", "absent"]) == {"run/a.json", "run/b.json"}
    two.pull(["run"])
    write_json(mine / "run" / "a.json", 2)
    (mine / "run" / "b.json").unlink()
    (mine / "run" / ".lock").touch()
    one.push()
    write_json(yours / "run" / "d.json", 3)
    two.push()  # its copies of a and b are old, but not its own doing
    assert read_json(there / "run" / "a.json") == 2
    assert {path.name for path in (there / "run").iterdir()} == {"a.json", "d.json", "half.json.part"}
    assert read_json(there / "other" / "c.json") == 1


def test_files_are_sent_in_an_order_that_leaves_checkpoints_whole(tmp_path, monkeypatch):
    here = tmp_path / "here"
    names = [
        "jobs/a.json",
        "runs/e/checkpoints/1.json",
        "runs/e/checkpoints/s.safetensors",
        "runs/e/metrics.jsonl",
    ]
    for name in names:
        write_json(here / name, 0)
    mirror, sent = Mirror((tmp_path / "there").as_uri(), here), []
    monkeypatch.setattr(mirror, "_send", lambda name, content: sent.append(name))
    mirror.push()
    assert sent == [names[2], names[3], names[1], names[0]]


@pytest.mark.parametrize("url", ["nonsense://bucket/study", "file:///proc/nowhere/study"])
def test_storage_that_cannot_be_used_gives_one_sentence(tmp_path, url):
    write_json(tmp_path / "a.json", 0)
    with pytest.raises(RunError, match="cannot be reached or used"):
        Mirror(url, tmp_path).push()
