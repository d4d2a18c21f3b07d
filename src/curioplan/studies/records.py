"""What a finished job leaves: its result, and all that is needed to judge or repeat it."""

from __future__ import annotations

import math
import os
import platform
from pathlib import Path
from typing import Any

from curioplan.errors import RunError
from curioplan.storage import read_json

FORMAT = 1
KEYS: dict[str, type | tuple[type, ...]] = {
    "name": str,
    "fingerprint": str,
    "call": str,
    "arguments": dict,
    "settings": dict,
    "seeds": dict,
    "result": dict,
    "versions": dict,
    "machine": dict,
    "duration": (int, float),
    "processor": (int, float),
    "attempts": int,
}
"""Fields of a record. ``settings`` are complete, ``duration`` and ``processor`` are seconds over all
attempts, ``fingerprint`` stands for call and arguments of the job and of all it needed."""


def read_record(path: Path, name: str) -> dict[str, Any] | None:
    """The record of a job, or ``None`` where there is none.

    Raises:
        RunError: The file is damaged, of another version, or of another job.
    """
    if not path.exists():
        return None
    record = read_json(path)
    advice = "move it away to run the job again."
    if not isinstance(record, dict) or "format" not in record:
        raise RunError(f"{path} is damaged: it is not the record of a job; {advice}")
    if record["format"] != FORMAT:
        raise RunError(f"{path} has format {record['format']}; this version reads format {FORMAT}; {advice}")
    for key, kind in KEYS.items():
        if not isinstance(record.get(key), kind):
            raise RunError(f"{path} is damaged: its {key} is missing or of the wrong type; {advice}")
    if record["name"] != name:
        raise RunError(f"{path} is the record of {record['name']}, not of {name}; {advice}")
    return record


def plain_result(found: Any, study: Path) -> dict[str, Any]:
    """What a function returned, as JSON: a folder by its place in the study, with its ``result.json``."""
    if isinstance(found, Path):
        inside = found.resolve().is_relative_to(study.resolve())
        place = str(found.resolve().relative_to(study.resolve())) if inside else found.name
        summary = read_json(found / "result.json") if (found / "result.json").is_file() else {}
        return {"folder": place} | (summary if isinstance(summary, dict) else {"result": summary})
    return dict(found) if isinstance(found, dict) else {"result": found}


def require_json(value: Any, where: str = "result") -> None:
    """Refuse a result that JSON cannot hold exactly.

    Raises:
        RunError: Something in it is not a finite number, text, truth value, list or dictionary.
    """
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise RunError(f"{where} has the key {key!r}; keys must be text.")
            require_json(inner, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            require_json(inner, f"{where}.{number}")
    elif not (value is None or isinstance(value, str | int) or _is_finite(value)):
        raise RunError(f"{where} is {value!r}, which JSON cannot hold.")


def _is_finite(value: Any) -> bool:
    return isinstance(value, float) and math.isfinite(value)


def machine() -> dict[str, Any]:
    """The machine as far as it matters for durations; nothing that tells whose it is."""
    return {
        "cpu": _cpu_model(),
        "cores": available_cores(),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "platform": f"{platform.system()} {platform.machine()}",
    }


def available_cores() -> int:
    """The cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"
