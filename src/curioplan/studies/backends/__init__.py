"""Where jobs run: processes of this machine, or tasks of a Ray cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from curioplan.studies.jobs import Job


@dataclass(frozen=True)
class Outcome:
    """The end of a job.

    Attributes:
        name: The job.
        error: One sentence if it failed.
        duration: Seconds it has taken over all attempts, if it finished.
    """

    name: str
    error: str = ""
    duration: float = 0.0


class Backend(Protocol):
    """What runs jobs.

    Attributes:
        cores: How many cores there are, for estimates.
        queues: Whether jobs may be handed over before there are cores for them.
    """

    cores: int
    queues: bool

    def start(self, job: Job, fingerprint: str) -> None:
        """Take on a job, whose needs have finished."""

    def wait(self, seconds: float) -> list[Outcome]:
        """The jobs that have ended since the last call, waiting a while if there are none."""

    def close(self) -> None:
        """End everything that still runs."""
