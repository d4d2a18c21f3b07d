"""The process that does one job: ``python -m curioplan.studies.worker ORDER``.

The order is a file that the parent writes into a private folder of its own and deletes afterwards. It holds
the job, its fingerprint, the study folder and where to write the error, should there be one.
"""

from __future__ import annotations

import importlib
import logging
import os
import select
import signal
import stat
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from curioplan.errors import CurioplanError, RunError
from curioplan.runs import versions
from curioplan.storage import read_json, write_json
from curioplan.studies.arguments import complete_settings, resolve
from curioplan.studies.jobs import Job
from curioplan.studies.records import FORMAT, machine, plain_result, require_json

TICK = 20.0  # seconds between two notes of the time spent
ORPHANED = 3  # exit code where the parent has gone


class Clock:
    """The time a job has taken over all attempts, noted now and then so that a kill loses little of it."""

    def __init__(self, path: Path, fingerprint: str) -> None:
        self.path, self.fingerprint = path, fingerprint
        self.duration = self.processor = 0.0
        self.attempts = 1
        before = _read_clock(path)
        if before.get("fingerprint") == fingerprint:
            self.duration, self.processor = before["duration"], before["processor"]
            self.attempts += before["attempts"]
        self._began, self._processor_began = time.monotonic(), time.process_time()
        self.note()

    def spent(self) -> dict[str, Any]:
        """Seconds on the wall and of the processor, and attempts."""
        return {
            "duration": round(self.duration + time.monotonic() - self._began, 3),
            "processor": round(self.processor + time.process_time() - self._processor_began, 3),
            "attempts": self.attempts,
        }

    def note(self) -> None:
        """Write down the time spent so far."""
        write_json(self.path, {"fingerprint": self.fingerprint, **self.spent()})


def _read_clock(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        found = read_json(path)
        return (
            found if isinstance(found, dict) and found.keys() >= {"duration", "processor", "attempts"} else {}
        )
    except RunError:  # only a note of time is lost
        return {}


def perform(job: Job, fingerprint: str, study: Path, clock: Clock) -> dict[str, Any]:
    """Do a job and write its record; the function called resumes from its own checkpoints."""
    found = function(job.call)(**resolve(dict(job.arguments), study))
    result = plain_result(found, study)
    require_json(result)
    record = {
        "format": FORMAT,
        "name": job.name,
        "fingerprint": fingerprint,
        "call": job.call,
        "arguments": dict(job.arguments),
        "settings": complete_settings(job.arguments),
        "seeds": dict(job.seeds),
        "result": result,
        "versions": versions(),
        "machine": machine(),
        **clock.spent(),
    }
    write_json(study / job.result, record)
    clock.path.unlink(missing_ok=True)
    return record


def function(call: str) -> Callable[..., Any]:
    """The function that a job names.

    Raises:
        RunError: There is none.
    """
    module, _, name = call.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise RunError(f"{call} cannot be called: {error}.") from error
    except AttributeError:
        raise RunError(f"{call} cannot be called: the module has no {name}.") from None
    if not callable(found):
        raise RunError(f"{call} cannot be called: it is a {type(found).__name__}.")
    return found


def _watch(clock: Clock) -> None:
    """End this process when its parent does, seen by the end of standard input; note the time meanwhile."""
    if not stat.S_ISFIFO(os.fstat(0).st_mode):
        return

    def watch() -> None:
        while True:
            readable, _, _ = select.select([0], [], [], TICK)
            if readable:
                os._exit(ORPHANED)
            if clock.path.exists():
                clock.note()

    threading.Thread(target=watch, daemon=True).start()


def main(order: Mapping[str, Any]) -> int:
    """Do what an order says; 0 if it went well, else 2, with one sentence where the order wants it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to end
    logging.basicConfig(format="curioplan: %(message)s")
    try:
        job, study = Job(**order["job"] | {"needs": tuple(order["job"]["needs"])}), Path(order["study"])
        clock = Clock(study / job.clock, order["fingerprint"])
        _watch(clock)
        perform(job, order["fingerprint"], study, clock)
    except Exception as error:
        traceback.print_exc()
        write_json(Path(order["error"]), {"error": _sentence(error)})
        return 2
    return 0


def _sentence(error: Exception) -> str:
    lines = str(error).strip().splitlines() or ["no message"]
    return lines[0] if isinstance(error, CurioplanError) else f"{type(error).__name__}: {lines[0]}"


if __name__ == "__main__":
    sys.exit(main(read_json(Path(sys.argv[1]))))
