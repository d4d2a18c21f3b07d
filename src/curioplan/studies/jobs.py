"""Jobs and plans of jobs: what is computed, in which order, and what of it is done.

A study folder::

    DIR/
      jobs/<name>.json     the result of a finished job, with seeds, versions, machine and duration
      logs/<name>.log      what a job printed
      runs/                the run folders the jobs write
      <study>.md, .csv     tables of what has finished, and .png, .pdf: figures as in the paper
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from curioplan.errors import RunError
from curioplan.studies.arguments import anywhere
from curioplan.studies.records import read_record


@dataclass(frozen=True)
class Job:
    """One call of a function, whose result is kept.

    Attributes:
        name: Unique in a plan: words separated by slashes, of which the numbers are seeds.
        call: The function, as ``module:function``.
        arguments: Its keyword arguments, as JSON; see :mod:`curioplan.studies.arguments`.
        needs: Names of jobs that must have finished before.
        seconds: How long it takes on one core, estimated.
        cores: How many cores it wants.
        seeds: What is random in it, by name.
    """

    name: str
    call: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    seconds: float = 60.0
    cores: int = 1
    seeds: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what could not be run or kept."""
        if not re.fullmatch(r"[\w+-][\w.+-]*(/[\w+-][\w.+-]*)*", self.name):
            raise RunError(
                f"The name of a job is made of words of letters, digits and .+-_ with slashes between, not "
                f"{self.name!r}."
            )
        if not re.fullmatch(r"[\w.]+:\w+", self.call):
            raise RunError(f"{self.name} must call module:function, not {self.call!r}.")
        try:
            same = json.loads(json.dumps(dict(self.arguments), allow_nan=False)) == self.arguments
        except (TypeError, ValueError):
            same = False
        if not same:
            raise RunError(f"{self.name} has arguments that JSON cannot hold: {dict(self.arguments)}.")
        if self.cores < 1 or not 0 < self.seconds < math.inf:
            raise RunError(f"{self.name} must take at least one core and some seconds.")

    @property
    def result(self) -> Path:
        """Where the result lies in the study folder."""
        return Path("jobs", f"{self.name}.json")

    @property
    def log(self) -> Path:
        """Where the log lies in the study folder."""
        return Path("logs", f"{self.name}.log")

    @property
    def clock(self) -> Path:
        """Where the study folder notes how long an unfinished job has taken."""
        return Path("logs", f"{self.name}.time.json")

    @property
    def kind(self) -> str:
        """The name without seeds: jobs of one kind take about as long."""
        return "/".join(part for part in self.name.split("/") if not part.isdigit())

    def work(self) -> dict[str, Any]:
        """What determines the result, apart from the jobs it needs; not where it is computed."""
        return {"call": self.call, "arguments": anywhere(self.arguments)}


class Plan:
    """Jobs in an order in which they can be run; what several of them need is there once.

    Earlier jobs are preferred where there is a choice, so that a study begun is finished run by run.

    Args:
        jobs: The same job may come more than once, and before what it needs.

    Raises:
        RunError: Two jobs of one name differ, a needed job is missing, or jobs need each other.
    """

    def __init__(self, jobs: Iterable[Job]) -> None:
        once: dict[str, Job] = {}
        for job in jobs:
            known = once.setdefault(job.name, job)
            if (known.work(), known.needs) != (job.work(), job.needs):
                raise RunError(f"There are two different jobs {job.name}: {_difference(known, job)}.")
        for job in once.values():
            for need in job.needs:
                if need not in once:
                    raise RunError(f"{job.name} needs {need}, which is not in the plan.")
        try:
            TopologicalSorter({job.name: job.needs for job in once.values()}).prepare()
        except CycleError as error:
            raise RunError(
                f"Jobs need each other in a circle: {' needs '.join(error.args[1][::-1])}."
            ) from None
        self.jobs: dict[str, Job] = {}
        for job in once.values():
            self._place(job, once)
        self.fingerprints: dict[str, str] = {}
        for job in self.jobs.values():
            needed = {need: self.fingerprints[need] for need in job.needs}
            text = json.dumps(job.work() | {"needs": needed}, sort_keys=True)
            self.fingerprints[job.name] = hashlib.sha256(text.encode()).hexdigest()

    def _place(self, job: Job, jobs: Mapping[str, Job]) -> None:
        """Put a job behind what it needs, which comes just before it where nobody has needed it earlier."""
        if job.name not in self.jobs:
            for need in job.needs:
                self._place(jobs[need], jobs)
            self.jobs[job.name] = job

    def __or__(self, other: Plan) -> Plan:
        return Plan([*self.jobs.values(), *other.jobs.values()])

    def record(self, folder: Path, name: str) -> dict[str, Any] | None:
        """What a job left in a study folder, if it has finished with these arguments.

        Raises:
            RunError: The file is damaged or of another version.
        """
        record = read_record(folder / self.jobs[name].result, name)
        return record if record and record["fingerprint"] == self.fingerprints[name] else None

    def pending(self, folder: Path) -> list[Job]:
        """The jobs that have not finished in a study folder, in order.

        A job has finished exactly if its result is there, of the same call with the same arguments after the
        same other jobs.
        """
        return [job for job in self.jobs.values() if self.record(folder, job.name) is None]


def _difference(one: Job, other: Job) -> str:
    for what in ("call", "needs"):
        if getattr(one, what) != getattr(other, what):
            return f"{what} is {getattr(one, what)!r} and {getattr(other, what)!r}"
    for key in [*one.arguments, *other.arguments]:
        if one.arguments.get(key) != other.arguments.get(key):
            return f"{key} is {one.arguments.get(key)!r} and {other.arguments.get(key)!r}"
    return "one has arguments that the other lacks"
