"""The run folder: what is where, who may write, and how a stage continues.

Layout of a run::

    RUN/
      run.json               format, environment and curioplan version
      <stage>/               one folder per stage: explore, values/td3-0, …
        config.json          the complete settings of the stage, and the versions it began with
        metrics.jsonl        one JSON object per line; tensorboard/ mirrors it
        checkpoints/         <step>.json manifests and the safetensors files they name
        .lock                held by the process that writes the stage

A stage has one writer at a time; different stages of a run may be written at the same time.
"""

from __future__ import annotations

import importlib.metadata
import logging
import platform
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import filelock

from curioplan.config import StageConfig, differences
from curioplan.errors import ConfigError, RunError
from curioplan.metrics import Metrics
from curioplan.storage import Checkpoint, Checkpoints, read_json, write_json

log = logging.getLogger(__name__)

FORMAT = 1
UNBOUND = ("device",)
"""Settings with which a stage may be continued whatever they were: where it computes, not what."""
PACKAGES = ("curioplan", "torch", "numpy", "gymnasium", "gymnasium-robotics", "mujoco")


@dataclass
class Stage:
    """A stage opened for writing.

    Attributes:
        folder: Where everything of the stage lies.
        checkpoints: Its checkpoints.
        metrics: Its metrics, continued from the resumed checkpoint.
        resumed: The checkpoint to continue from, or ``None`` at the beginning.
    """

    folder: Path
    checkpoints: Checkpoints
    metrics: Metrics
    resumed: Checkpoint | None

    def save(self, step: int, state: dict[str, Any], journals: dict[str, Any] | None = None) -> None:
        """Checkpoint the stage; ``state`` and the metrics' position make it continue exactly."""
        content = {"metrics": self.metrics.position(), "versions": versions(), "stage": state}
        self.checkpoints.save(step, content, journals)


@contextmanager
def open_stage(
    run: Path, name: str, env: str, config: StageConfig, may_grow: tuple[str, ...] = ()
) -> Iterator[Stage]:
    """Open a stage of a run for writing, new or where it stopped.

    Args:
        run: The run folder, made if need be.
        name: The stage's folder in it.
        env: The environment of the run.
        config: The settings; those of an existing stage must be the same, but for the device.
        may_grow: Fields that may be larger than before, such as the number of steps.

    Raises:
        RunError: The folder cannot be written, is damaged, or another process writes the stage.
        ConfigError: The stage exists with other settings.
    """
    folder = run / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(folder / ".lock", timeout=0)
        with lock:
            _settle_run(run, env)
            _settle_config(folder, config, may_grow)
            checkpoints = Checkpoints(folder / "checkpoints")
            resumed = checkpoints.load()
            position = resumed.state["metrics"] if resumed else 0
            metrics = Metrics(folder, position, resumed.step if resumed else 0)
            if resumed:
                _warn_of_versions(resumed.state["versions"])
                resumed = Checkpoint(resumed.step, resumed.state["stage"], resumed.journals)
            try:
                yield Stage(folder, checkpoints, metrics, resumed)
            finally:
                metrics.close()
    except filelock.Timeout:
        raise RunError(
            f"{folder} is being written by another process; wait for it or choose another folder."
        ) from None
    except OSError as error:
        raise RunError(f"Cannot write {folder}: {error.strerror or error}.") from error


def read_run(run: Path) -> dict[str, Any]:
    """The content of ``run.json``."""
    if not run.is_dir():
        raise RunError(f"There is no run folder {run}; curioplan explore makes one.")
    if not (run / "run.json").is_file():
        raise RunError(f"{run} is not a run folder: it has no run.json.")
    about = read_json(run / "run.json")
    if not isinstance(about, dict) or about.get("format") != FORMAT or not isinstance(about.get("env"), str):
        raise RunError(f"{run / 'run.json'} is damaged or of another version: format {FORMAT} is expected.")
    return about


def run_environment(run: Path, env: str | None, data: str) -> str:
    """The environment of a run; a new run must be told, and needs data from elsewhere.

    Raises:
        ConfigError: The run is new, and its environment or its data are not named.
    """
    if (run / "run.json").exists():
        return env or str(read_run(run)["env"])
    if env is None or not data:
        raise ConfigError(f"{run} is not a run yet: name the environment (--env) and the data (--data).")
    return env


def stage_name(name: str) -> str:
    """A name given by the user, if a folder may have it.

    Raises:
        ConfigError: It may not.
    """
    if not re.fullmatch(r"[\w-][\w.-]*", name):
        raise ConfigError(f"A name is made of letters, digits, dots, dashes and underscores, not {name!r}.")
    return name


def _settle_run(run: Path, env: str) -> None:
    if not (run / "run.json").exists():
        write_json(run / "run.json", {"format": FORMAT, "env": env, "versions": versions()})
    elif (known := read_run(run)["env"]) != env:
        raise ConfigError(f"{run} is a run on {known}, not on {env}; choose another folder.")


def _settle_config(folder: Path, config: StageConfig, may_grow: tuple[str, ...]) -> None:
    path = folder / "config.json"
    wanted = asdict(config)
    if path.exists():
        saved = read_json(path)
        if not isinstance(saved, dict) or not saved.keys() >= {"settings", "versions"}:
            raise RunError(f"{path} is damaged: it does not hold settings and versions.")
        # Settings that the version before did not have were then as they are by default.
        differing = differences(_completed(saved["settings"], asdict(type(config)())), wanted)
        stuck = [
            f"{field} ({old} there, {new} here)"
            for field, (old, new) in differing.items()
            if field not in UNBOUND and not (field in may_grow and new > old)
        ]
        if stuck:
            raise ConfigError(
                f"{folder} was begun with other settings: {', '.join(stuck)}; repeat them, or choose "
                "another folder."
            )
        if not differing:
            return
        for field in differing.keys() & set(UNBOUND):
            old, new = differing[field]
            log.warning("The run continues with %s %s, not %s, so its bits may differ.", field, new, old)
    write_json(path, {"settings": wanted, "versions": versions()})


def _completed(saved: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """Saved settings, with the usual ones for those that are missing."""
    found = {**usual, **saved}
    for name, value in found.items():
        if isinstance(value, Mapping) and isinstance(usual.get(name), Mapping):
            found[name] = _completed(value, usual[name])
    return found


def _warn_of_versions(saved: dict[str, str]) -> None:
    changed = [f"{name} {old} is now {new}" for name, (old, new) in differences(saved, versions()).items()]
    if changed:
        log.warning("The run continues with other versions, so its bits may differ: %s.", ", ".join(changed))


def versions() -> dict[str, str]:
    """The versions of everything that can change a result."""
    return {"python": platform.python_version()} | {
        name: importlib.metadata.version(name) for name in PACKAGES
    }
