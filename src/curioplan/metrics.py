"""Metrics of a stage: JSON lines always, TensorBoard beside them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tensorboardX import SummaryWriter

from curioplan.errors import RunError


class Metrics:
    """Appends one JSON object per call to ``metrics.jsonl`` and mirrors its numbers to TensorBoard.

    ``position`` belongs into a checkpoint: continuing from it drops the lines written after that
    checkpoint, so that an interrupted run ends with the same file as an uninterrupted one.
    """

    def __init__(self, folder: Path, position: int = 0, step: int = 0) -> None:
        self.path = folder / "metrics.jsonl"
        try:
            if position > (self.path.stat().st_size if self.path.exists() else 0):
                raise RunError(f"{self.path} is shorter than its checkpoint says: it was changed by hand.")
            self._file = self.path.open("ab")
            self._file.truncate(position)
        except OSError as error:
            raise RunError(f"Cannot write {self.path}: {error.strerror or error}.") from error
        self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=step or None)

    def write(self, step: int, values: Mapping[str, float | int | str | None]) -> None:
        """Record the values of a step."""
        line = json.dumps({"step": step, **values}) + "\n"
        try:
            self._file.write(line.encode())
            self._file.flush()
        except OSError as error:
            raise RunError(f"Cannot write {self.path}: {error.strerror or error}.") from error
        for name, value in values.items():
            if isinstance(value, int | float):
                self._board.add_scalar(name, value, step)

    def position(self) -> int:
        """The length of the file so far, made durable."""
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        """Flush and close both files."""
        self._file.close()
        self._board.close()


def read_metrics(folder: Path) -> Iterator[dict[str, Any]]:
    """The metrics of a stage, line by line; a torn last line, left by a kill, is skipped."""
    path = folder / "metrics.jsonl"
    if not path.is_file():
        return
    for line in path.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            yield json.loads(line)
