"""Jobs as processes of this machine, no more at a time than it has cores."""

from __future__ import annotations

import time
from pathlib import Path

from curioplan.studies.backends import Outcome
from curioplan.studies.backends.process import JobProcess
from curioplan.studies.jobs import Job
from curioplan.studies.records import available_cores

LOOK_EVERY = 0.1  # seconds


class LocalBackend:
    """Runs each job in a process of its own, with as many threads as it has cores.

    Args:
        study: The study folder.
        cores: Cores to use in all; 0 takes those that this process may use.
    """

    queues = False

    def __init__(self, study: Path, cores: int = 0) -> None:
        self.study = study
        self.cores = cores or available_cores()
        self._running: list[JobProcess] = []

    def start(self, job: Job, fingerprint: str) -> None:
        """Start a process for a job."""
        self._running.append(JobProcess(job, fingerprint, self.study, min(job.cores, self.cores)))

    def wait(self, seconds: float) -> list[Outcome]:
        """The jobs whose processes have ended."""
        until = time.monotonic() + seconds
        while True:
            ended = [process for process in self._running if process.wait(0)]
            if ended or time.monotonic() >= until:
                self._running = [process for process in self._running if process not in ended]
                return [process.outcome() for process in ended]
            time.sleep(LOOK_EVERY)

    def close(self) -> None:
        """End all processes; what they have checkpointed is continued next time."""
        for process in self._running:
            process.end()
        self._running = []
