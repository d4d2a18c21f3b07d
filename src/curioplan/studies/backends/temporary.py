"""Temporary folders that do not outlive a killed process for long."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

PREFIX = "curioplan-tmp-"
YOUNG = 60.0  # seconds in which a folder may have a lock that nobody holds yet


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A private folder that goes at the end; those that killed processes have left go now."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        _remove_abandoned(path)
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name, filelock.FileLock(Path(name, ".lock")):
        yield Path(name)


def _remove_abandoned(path: Path) -> None:
    """Remove a folder whose owner has ended: the system has released its lock."""
    try:
        if time.time() - path.stat().st_ctime > YOUNG:
            with filelock.FileLock(path / ".lock", timeout=0):
                shutil.rmtree(path, ignore_errors=True)
    except (OSError, filelock.Timeout):  # somebody else's, or in use
        return
