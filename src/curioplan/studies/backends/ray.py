"""Jobs as tasks of a Ray cluster, with their files on storage that all its machines share."""

from __future__ import annotations

import importlib
import logging
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from curioplan.errors import ConfigError, CurioplanError, RunError
from curioplan.storage import write_atomic
from curioplan.studies.arguments import folders
from curioplan.studies.backends import Outcome
from curioplan.studies.backends.mirror import Mirror, is_url
from curioplan.studies.backends.process import JobProcess
from curioplan.studies.backends.temporary import temporary_folder
from curioplan.studies.jobs import Job

log = logging.getLogger(__name__)

RETRIES = 5  # times that a job is given to another worker after its own was lost


class WorkerLostError(Exception):
    """The process of a job was ended from outside: the job is worth another try."""


class RayBackend:
    """Hands jobs to Ray, which places them where there are cores and again where a worker is lost.

    Joins the cluster that ``RAY_ADDRESS`` names or that runs on this machine, else starts Ray here.

    Args:
        study: The study folder. Without ``storage`` it must be a path that all machines of the cluster share.
        storage: A URL (``s3://…``, ``gs://…``, ``sftp://…``) under which the study is kept instead: each job
            fetches what it continues from there and sends what it writes; results, and logs of jobs that
            failed, come to ``study`` too.
        sync_every: Seconds between two times that a running job sends what it has written.
    """

    queues = True

    def __init__(self, study: Path, storage: str = "", sync_every: float = 60.0) -> None:
        if storage and not is_url(storage):
            raise ConfigError(f"{storage} is a path and needs no copying: give it as the study folder.")
        self.study, self.storage, self.sync_every = study, storage, sync_every
        self.ray = _import_ray()
        if storage:
            _fetch_results(study, storage)
        self._own = not self.ray.is_initialized()
        if self._own:
            self.ray.init(log_to_driver=False, include_dashboard=False, configure_logging=False)
        alive = [node["Resources"].get("CPU", 0) for node in self.ray.nodes() if node["Alive"]]
        # Machines that a cluster adds on demand are not there yet.
        self.cores, self._widest = max(1, int(sum(alive))), int(max(alive)) or sys.maxsize
        self._task = self.ray.remote(run_task)
        self._running: dict[Any, Job] = {}

    def start(self, job: Job, fingerprint: str) -> None:
        """Submit a job as a task."""
        cores = min(job.cores, self._widest)
        task = self._task.options(
            num_cpus=cores, max_retries=RETRIES, retry_exceptions=[WorkerLostError], name=job.name
        )
        order = {"job": asdict(job), "fingerprint": fingerprint, "cores": cores, "storage": self.storage}
        order |= {"study": str(self.study.resolve()), "sync_every": self.sync_every, "cwd": str(Path.cwd())}
        self._running[task.remote(order)] = job

    def wait(self, seconds: float) -> list[Outcome]:
        """The jobs whose tasks have ended."""
        if not self._running:
            return []
        ended, _ = self.ray.wait([*self._running], timeout=seconds)
        return [self._outcome(reference, self._running.pop(reference)) for reference in ended]

    def _outcome(self, reference: Any, job: Job) -> Outcome:
        try:
            answer = self.ray.get(reference)
        except WorkerLostError as error:
            return Outcome(job.name, error=f"{error} This happened {RETRIES + 1} times.")
        except self.ray.exceptions.RayError as error:
            return Outcome(job.name, error=f"Ray gave the job up: {_first_line(error)}")
        for place, content in answer["files"].items():
            write_atomic(self.study / place, content)
        return Outcome(job.name, error=answer["error"], duration=answer["duration"])

    def close(self) -> None:
        """Cancel what still runs, and end Ray if it was started here."""
        for reference in self._running:
            self.ray.cancel(reference, force=True)
        self._running = {}
        if self._own:
            self.ray.shutdown()


def run_task(order: dict[str, Any]) -> dict[str, Any]:
    """What Ray runs: a job in a process of its own, which ends with the worker of Ray."""
    job, files = Job(**order["job"]), {}
    try:
        if not order["storage"]:
            outcome = _run(job, order, Path(order["study"]), None)
        else:
            with temporary_folder() as scratch:
                mirror = Mirror(order["storage"], scratch)
                mirror.pull([*folders(job.arguments), str(job.log), str(job.clock)])
                outcome = _run(job, order, scratch, mirror)
                wanted = job.log if outcome.error else job.result
                files[str(wanted)] = (scratch / wanted).read_bytes()
    except CurioplanError as error:
        outcome = Outcome(job.name, error=str(error))
    return {"error": outcome.error, "duration": outcome.duration, "files": files}


def _run(job: Job, order: dict[str, Any], study: Path, mirror: Mirror | None) -> Outcome:
    process = JobProcess(job, order["fingerprint"], study, order["cores"], order["cwd"])
    try:
        while not process.wait(order["sync_every"]):
            if mirror:
                _try_to_push(mirror)
        outcome = process.outcome()
        if mirror:
            mirror.push()
        if process.lost:
            raise WorkerLostError(outcome.error)
        return outcome
    finally:
        process.end()


def _try_to_push(mirror: Mirror) -> None:
    """Send what has been written, if the storage can be reached just now; there will be another time."""
    try:
        mirror.push()
    except RunError as error:
        log.warning("%s", error)


def _fetch_results(study: Path, storage: str) -> None:
    """Bring the results on storage here; results that are only here would lack their files there."""
    before = {path.relative_to(study).as_posix() for path in (study / "jobs").rglob("*.json")}
    mirror = Mirror(storage, study)
    only_here = sorted(before - mirror.pull(["jobs"]))
    if only_here:
        raise RunError(
            f"{study / only_here[0]} is not on {storage}: copy all of {study} there, or choose another "
            "folder."
        )


def _import_ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise ConfigError(
            "The backend ray needs Ray, which is not installed: pip install 'curioplan[ray]'."
        ) from None


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
