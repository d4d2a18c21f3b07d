"""Running a plan on a backend: what is ready goes first, a failure stops only what needs it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import filelock
from tqdm import tqdm

from curioplan.errors import RunError
from curioplan.studies.backends import Backend, Outcome
from curioplan.studies.jobs import Job, Plan
from curioplan.studies.schedule import Pace, choose, time_left, words

WAIT = 1.0  # seconds between two looks at the backend
REESTIMATE = 10.0  # seconds between two estimates of the time left


@dataclass
class Report:
    """What became of the jobs that were pending.

    Attributes:
        finished: Names of jobs that finished.
        failed: The sentence of each job that failed.
        left_out: For jobs that could not be run, the failed job they need.
    """

    finished: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def raise_failures(self, folder: Path) -> None:
        """Raise an error that sums up what failed, if anything did."""
        if not self.failed:
            return
        jobs = "job" if len(self.failed) == 1 else "jobs"
        lines = [f"{len(self.failed)} {jobs} failed; the same command tries again:"]
        for name, sentence in self.failed.items():
            others = sum(cause == name for cause in self.left_out.values())
            waiting = f" ({others} more need it)" if others else ""
            lines.append(f"  {name}{waiting}: {sentence}")
        raise RunError("\n".join([*lines, f"What they printed is in {folder / 'logs'}."]))


class Execution:
    """A plan on its way: what waits, what runs, what has become of the rest."""

    def __init__(self, plan: Plan, folder: Path, backend: Backend) -> None:
        self.plan, self.backend = plan, backend
        self.pace = Pace.of(plan, folder)
        self.waiting = {job.name: job for job in plan.pending(folder)}
        self.running: dict[str, tuple[Job, float]] = {}
        self.report = Report()

    def start(self) -> None:
        """Hand over to the backend what is ready and has room."""
        unfinished = self.waiting.keys() | self.running.keys()
        ready = [job for job in self.waiting.values() if unfinished.isdisjoint(job.needs)]
        cores = float("inf") if self.backend.queues else self.backend.cores
        free = cores - sum(min(job.cores, cores) for job, _ in self.running.values())
        for job in choose(ready, free, cores):
            self.backend.start(job, self.plan.fingerprints[job.name])
            self.running[job.name] = (self.waiting.pop(job.name), time.monotonic())

    def take(self, outcome: Outcome) -> None:
        """Note how a job has ended."""
        job, _ = self.running.pop(outcome.name)
        if not outcome.error:
            self.report.finished.append(job.name)
            self.pace.learn(job, outcome.duration)
            return
        self.report.failed[job.name] = outcome.error
        blocked = {job.name}
        for other in list(self.waiting.values()):  # in order, so that chains are followed
            if not blocked.isdisjoint(other.needs):
                blocked.add(other.name)
                self.report.left_out[other.name] = job.name
                del self.waiting[other.name]

    def time_left(self) -> float:
        """The seconds until everything has finished, if nothing more fails."""
        now, names = time.monotonic(), self.running.keys() | self.waiting.keys()
        # Where the backend queues, nobody knows here when a job handed over has begun.
        running = {name: now - at for name, (_, at) in self.running.items() if not self.backend.queues}
        pending = [job for name, job in self.plan.jobs.items() if name in names]
        return time_left(pending, self.backend.cores, self.pace, running)


def execute(plan: Plan, folder: Path, backend: Backend, *, title: str = "", progress: bool = True) -> Report:
    """Run whatever of a plan has not finished in a study folder.

    Args:
        plan: The jobs.
        folder: The study folder.
        backend: What runs them; it is closed at the end.
        title: What to call it in the progress line.
        progress: Whether to show a progress line: jobs done, and the time left by corrected estimates.

    Raises:
        RunError: Another process works on the folder, or a result in it is damaged.
    """
    try:
        with study_lock(folder):
            execution = Execution(plan, folder, backend)
            with tqdm(
                total=len(plan.jobs),
                initial=len(plan.jobs) - len(execution.waiting),
                unit=" jobs",
                desc=title or "jobs",
                disable=not progress,
                dynamic_ncols=True,
                bar_format="{desc}: {n_fmt}/{total_fmt} jobs |{bar}| {elapsed} so far{postfix}",
                miniters=0,
                mininterval=0.2 if sys.stderr.isatty() else 30.0,
            ) as bar:
                _loop(execution, bar)
            return execution.report
    finally:
        backend.close()


def _loop(execution: Execution, bar: tqdm) -> None:
    estimated = -REESTIMATE
    while execution.waiting or execution.running:
        execution.start()
        outcomes = execution.backend.wait(WAIT)
        for outcome in outcomes:
            execution.take(outcome)
        if outcomes or time.monotonic() - estimated > REESTIMATE:
            failed = len(execution.report.failed)
            bar.set_postfix_str(
                f"about {words(execution.time_left())} left" + (f", {failed} failed" if failed else ""),
                refresh=False,
            )
            estimated = time.monotonic()
        bar.update(sum(not outcome.error for outcome in outcomes))


@contextmanager
def study_lock(folder: Path) -> Iterator[None]:
    """Hold a study folder, which is made if need be.

    Raises:
        RunError: Another process holds it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(folder / ".lock", timeout=0):
            yield
    except filelock.Timeout:
        raise RunError(f"Another process works on {folder}; wait for it or choose another folder.") from None
