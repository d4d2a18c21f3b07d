"""Metrics of a stage: JSON lines always, TensorBoard beside them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto import event_pb2
from tensorboardX.summary import scalar

from curioplan.errors import RunError


class Metrics:
    """Appends one JSON object per call to ``metrics.jsonl`` and mirrors its numbers to TensorBoard.

    ``position`` belongs into a checkpoint: continuing from it drops the lines written after that
    checkpoint, so that an interrupted run ends with the same file as an uninterrupted one.
    """

    def __init__(self, folder: Path, position: int = 0, step: int = 0) -> None:
        self.path = folder / "metrics.jsonl"
        if position > (self.path.stat().st_size if self.path.exists() else 0):
            raise RunError(f"{self.path} is shorter than its checkpoint says: it was changed by hand.")
        (folder / "tensorboard").mkdir(exist_ok=True)
        self._file = self.path.open("ab")
        self._file.truncate(position)
        # Written synchronously: TensorBoard's usual writer fails in a thread of its own on a full disk.
        self._board = EventsWriter(str(folder / "tensorboard" / "events"), f".{os.getpid()}")
        started = event_pb2.SessionLog(status=event_pb2.SessionLog.START)  # hides what came later than step
        self._board.write_event(event_pb2.Event(wall_time=time.time(), step=step, session_log=started))

    def write(self, step: int, values: Mapping[str, float | int | str | None]) -> None:
        """Record the values of a step."""
        self._file.write((json.dumps({"step": step, **values}) + "\n").encode())
        self._file.flush()
        for name, value in values.items():
            if isinstance(value, int | float):
                event = event_pb2.Event(wall_time=time.time(), step=step, summary=scalar(name, value))
                self._board.write_event(event)

    def position(self) -> int:
        """The length of the file so far, made durable."""
        os.fsync(self._file.fileno())
        self._board.flush()
        return self._file.tell()

    def close(self) -> None:
        """Flush and close both files."""
        try:
            self._file.close()
        finally:
            self._board.close()


def read_metrics(folder: Path) -> Iterator[dict[str, Any]]:
    """The metrics of a stage, line by line; a torn last line, left by a kill, is skipped."""
    path = folder / "metrics.jsonl"
    if not path.is_file():
        return
    for line in path.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            yield json.loads(line)
