"""One job in a process of its own, the same way on every backend."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from curioplan.errors import RunError
from curioplan.storage import read_json, write_json
from curioplan.studies.backends import Outcome
from curioplan.studies.backends.temporary import temporary_folder
from curioplan.studies.jobs import Job
from curioplan.studies.records import read_record

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


class JobProcess:
    """A job that runs in a process of its own, which ends if this one does.

    Args:
        job: The job.
        fingerprint: Its fingerprint in the plan.
        study: The study folder.
        cores: Threads it may compute with.
        cwd: Where it runs, if that exists: modules and data named relative to it are found.
    """

    def __init__(self, job: Job, fingerprint: str, study: Path, cores: int, cwd: str = "") -> None:
        self.job, self.fingerprint, self.study = job, fingerprint, study
        self._kept = ExitStack()
        private = self._kept.enter_context(temporary_folder())
        order, self._error = private / "order.json", private / "error.json"
        described: dict[str, Any] = {
            "job": asdict(job),
            "fingerprint": fingerprint,
            "study": str(study.resolve()),
            "error": str(self._error),
        }
        write_json(order, described)
        log = study / job.log
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("ab") as output:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "curioplan.studies.worker", str(order)],
                    stdin=subprocess.PIPE,  # closed by the end of this process, at which the other ends
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=os.environ | dict.fromkeys(THREADS, str(cores)),
                    cwd=cwd if cwd and Path(cwd).is_dir() else None,
                )
        except OSError as error:
            self._kept.close()
            raise RunError(f"{job.name} cannot be started: {error.strerror or error}.") from error

    def wait(self, seconds: float) -> bool:
        """Whether it has ended, after waiting for it so long."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    @property
    def lost(self) -> bool:
        """Whether it was ended from outside, by a signal."""
        return (self.process.returncode or 0) < 0

    def outcome(self) -> Outcome:
        """How it has ended."""
        try:
            record = read_record(self.study / self.job.result, self.job.name)
            if self.process.returncode == 0 and record and record["fingerprint"] == self.fingerprint:
                return Outcome(self.job.name, duration=record["duration"])
            return Outcome(self.job.name, error=self._reason())
        except RunError as error:
            return Outcome(self.job.name, error=str(error))
        finally:
            self.end()

    def _reason(self) -> str:
        if self._error.exists():
            return str(read_json(self._error)["error"])
        code = self.process.returncode
        if code < 0:
            return (
                f"The process was ended by {signal.Signals(-code).name}; too little memory is a usual reason."
            )
        return f"The process ended with code {code} and left no result."

    def end(self) -> None:
        """End the process if it runs, and clean up; its files are whole at any moment."""
        self.process.kill()
        self.process.wait()
        if self.process.stdin:
            self.process.stdin.close()
        self._kept.close()
