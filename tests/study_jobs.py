"""Functions that the jobs of tests call, in processes of their own."""

import hashlib
import os
import time
from dataclasses import asdict
from pathlib import Path

from curioplan.errors import CurioplanError
from curioplan.storage import read_json, write_json
from curioplan.studies.arguments import folder
from curioplan.studies.jobs import Job

HERE = "not a function"


def add(x, y):
    return {"sum": x + y}


def success(rate):
    return {"success": rate}


def fail(message):
    raise CurioplanError(message)


def stumble():
    raise KeyError("left foot")


def not_json():
    return {"loss": float("nan")}


def describe_settings(config):
    return asdict(config)


def threads():
    import torch

    return {"torch": torch.get_num_threads(), "environment": os.environ["OMP_NUM_THREADS"]}


def count(out, upto, pace=0.0):
    """Count with a checkpoint after every step, hashing on the way; steps.txt has a line for every step."""
    out.mkdir(parents=True, exist_ok=True)
    state = read_json(out / "state.json") if (out / "state.json").exists() else {"step": 0, "hash": ""}
    while state["step"] < upto:
        time.sleep(pace)
        step = state["step"] + 1
        state = {"step": step, "hash": hashlib.sha256(f"{state['hash']}{step}".encode()).hexdigest()}
        with (out / "steps.txt").open("a") as trace:
            trace.write(f"{os.getpid()} {step}\n")
        write_json(out / "state.json", state)
    write_json(out / "result.json", state)
    return out


def adding(name, x=1, y=2, **more):
    return Job(name, "study_jobs:add", {"x": x, "y": y}, **more)


def counting(name, upto=5, pace=0.0, **more):
    out = folder(f"runs/{name}")
    return Job(name, "study_jobs:count", {"out": out, "upto": upto, "pace": pace}, **more)


def steps_of(study, name):
    """Process and step of every step that a counting job has taken."""
    path = study / "runs" / name / "steps.txt"
    if not path.exists():
        return []
    return [tuple(map(int, line.split())) for line in path.read_text().splitlines()]


def wait_until(condition, seconds=120.0):
    """Wait for something that another process does."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.02)


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def leave_record(study, plan, name, changed=None):
    """Leave in a study folder what a job leaves at its end."""
    job = plan.jobs[name]
    record = {"format": 1, "name": name, "fingerprint": plan.fingerprints[name], **job.work()}
    record |= {key: {} for key in ("settings", "seeds", "result", "versions", "machine")}
    record |= {"duration": 1.0, "processor": 1.0, "attempts": 1}
    write_json(study / job.result, record | (changed or {}))
