"""Who goes next, and how long it will all take: list scheduling, with estimates that learn."""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from curioplan.studies.jobs import Job, Plan

_DONE_BEFORE = 0.1
"""A job that takes a smaller part of its estimate has found its work done."""


class Pace:
    """Estimates of durations, corrected by what finished jobs of the same kind have taken.

    Where none of a kind has finished, those that call the same function count, then any.
    """

    def __init__(self) -> None:
        self._measured: dict[str, float] = defaultdict(float)
        self._estimated: dict[str, float] = defaultdict(float)

    @classmethod
    def of(cls, plan: Plan, folder: Path) -> Pace:
        """The pace that the finished jobs of a study folder tell."""
        pace = cls()
        for job in plan.jobs.values():
            record = plan.record(folder, job.name)
            if record:
                pace.learn(job, record["duration"])
        return pace

    def learn(self, job: Job, seconds: float) -> None:
        """Take in what a job has taken, unless all it had to do was done before, as by another study."""
        if seconds < _DONE_BEFORE * job.seconds:
            return
        for key in (f"kind {job.kind}", f"call {job.call}", "all"):
            self._measured[key] += seconds
            self._estimated[key] += job.seconds

    def seconds(self, job: Job) -> float:
        """How long a job will take."""
        for key in (f"kind {job.kind}", f"call {job.call}", "all"):
            if key in self._estimated:
                return job.seconds * self._measured[key] / self._estimated[key]
        return job.seconds


def choose(ready: Iterable[Job], free: float, cores: float) -> list[Job]:
    """The ready jobs to start on free cores, the first ones first; a job gets at most all cores."""
    chosen = []
    for job in ready:
        if min(job.cores, cores) <= free:
            chosen.append(job)
            free -= min(job.cores, cores)
    return chosen


def time_left(
    pending: Collection[Job],
    cores: float,
    pace: Pace | None = None,
    running: Mapping[str, float] | None = None,
) -> float:
    """The seconds until all pending jobs have finished, by simulating the schedule.

    Args:
        pending: Jobs that have not finished, in order; what they need beyond these has.
        cores: Cores to share.
        pace: Corrects the estimates.
        running: For jobs already running, the seconds since they began.
    """
    pace = pace or Pace()
    unfinished = {job.name for job in pending}
    missing = {job.name: unfinished.intersection(job.needs) for job in pending}
    waiting = {job.name: job for job in pending if job.name not in (running or {})}
    ends: list[tuple[float, str, int]] = []
    free, now = cores, 0.0

    def begin(job: Job, elapsed: float = 0.0) -> None:
        nonlocal free
        taken = int(min(job.cores, cores))
        free -= taken
        heapq.heappush(ends, (now + max(0.0, pace.seconds(job) - elapsed), job.name, taken))

    for job in pending:
        if job.name not in waiting:
            begin(job, (running or {})[job.name])
    while waiting or ends:
        ready = [job for job in waiting.values() if not missing[job.name]]
        for job in choose(ready, free, cores):
            begin(waiting.pop(job.name))
        now, name, taken = heapq.heappop(ends)
        free += taken
        for needs in missing.values():
            needs.discard(name)
    return now


def describe(plan: Plan, folder: Path, cores: int) -> str:
    """The jobs of a plan, what has finished of it, and how long the rest will take."""
    pending = {job.name for job in plan.pending(folder)}
    pace = Pace.of(plan, folder)
    width = max([len(name) for name in plan.jobs] + [3])
    lines = [f"{'job':<{width}}  {'cores':>5}  {'time':>12}"]
    for job in plan.jobs.values():
        time = words(pace.seconds(job)) if job.name in pending else "finished"
        lines.append(f"{job.name:<{width}}  {job.cores:>5}  {time:>12}")
    left = [job for job in plan.jobs.values() if job.name in pending]
    lines.append("")
    total = f"{len(plan.jobs)} jobs, {len(plan.jobs) - len(left)} finished"
    if left:
        total += f"; the rest takes about {words(time_left(left, cores, pace))} on {cores} cores"
    return "\n".join([*lines, total])


def words(seconds: float) -> str:
    """A duration for people: 40 s, 12 min, 3 h 20 min, 2 d 4 h."""
    if seconds < 99.5:
        return f"{math.ceil(seconds)} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60:02} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24} h"
