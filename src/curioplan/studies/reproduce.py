"""Reproducing studies: define, run what is missing, and tabulate whatever has finished."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import reduce
from operator import or_
from pathlib import Path

from curioplan.config import differences
from curioplan.errors import ConfigError
from curioplan.studies.arguments import anywhere, complete_settings
from curioplan.studies.backends import Backend
from curioplan.studies.catalogue import Study
from curioplan.studies.execute import execute
from curioplan.studies.figures import draw
from curioplan.studies.jobs import Plan
from curioplan.studies.tables import Interval, Table, tabulate

log = logging.getLogger(__name__)

BACKENDS = ("local", "ray")


def merged(studies: Sequence[Study]) -> Plan:
    """One plan for several studies: what they share is there once."""
    return reduce(or_, (study.plan for study in studies))


def make_backend(name: str, folder: Path, *, cores: int = 0, storage: str = "") -> Backend:
    """A backend by name.

    Raises:
        ConfigError: There is no such backend, or it cannot do what is asked.
    """
    if name == "ray":
        from curioplan.studies.backends.ray import RayBackend

        if cores:
            raise ConfigError("With Ray the cluster says how many cores there are.")
        return RayBackend(folder, storage)
    if name != "local":
        raise ConfigError(f"There is no backend {name}; there are {', '.join(BACKENDS)}.")
    if storage:
        raise ConfigError(
            "Storage elsewhere is for the backend ray; the local one works in the study folder."
        )
    from curioplan.studies.backends.local import LocalBackend

    return LocalBackend(folder, cores)


def reproduce(
    studies: Sequence[Study], folder: Path, backend: Backend, interval: Interval, *, progress: bool = True
) -> list[Table]:
    """Run what is missing of studies, and leave their tables and figures in the study folder.

    The same call continues after any interruption; tables are written then too.

    Args:
        studies: The studies, which share jobs.
        folder: The study folder.
        backend: What runs the jobs; it is closed at the end.
        interval: Mean and interval of scores.
        progress: Whether to show a progress line.

    Raises:
        RunError: Jobs have failed; everything that does not need them has been run.
    """
    plan = merged(studies)
    _warn_of_changed_settings(plan, folder)
    try:
        report = execute(plan, folder, backend, title=", ".join(s.name for s in studies), progress=progress)
    finally:
        tables = [tabulate(study, folder, interval) for study in studies]
        for study, table in zip(studies, tables, strict=True):
            table.save(folder, study.name)
            draw(study, table, folder)
    report.raise_failures(folder)
    return tables


def _warn_of_changed_settings(plan: Plan, folder: Path) -> None:
    """Say where finished jobs had other settings than their presets now have."""
    for job in plan.jobs.values():
        record = plan.record(folder, job.name)
        now = anywhere(complete_settings(job.arguments))
        changed = differences(anywhere(record["settings"]), now) if record else {}
        if changed:
            name, (old, new) = next(iter(changed.items()))
            log.warning(
                "%s finished with settings its preset no longer has: %s was %s and is %s%s.",
                *(job.name, name, old, new, f", and {len(changed) - 1} more" if len(changed) > 1 else ""),
            )
            return
