"""Any dataset in, any dataset out."""

from __future__ import annotations

import contextlib
import logging
import re
from pathlib import Path

import minari
from minari.storage import get_dataset_path

from curioplan.data.exchange import read_d4rl, read_ogbench, write_d4rl, write_ogbench
from curioplan.data.files import reading, reason
from curioplan.data.minari_format import is_minari, read_minari, save_minari
from curioplan.data.trajectories import TrajectoryStore
from curioplan.data.validation import RawTrajectories, validate
from curioplan.envs.task import Task
from curioplan.errors import DataError

_MINARI_ID = re.compile(r"([-\w]+/)*[-\w]+-v\d+")


def load(source: str | Path, task: Task | None = None) -> TrajectoryStore:
    """The trajectories of a dataset, checked.

    Args:
        source: A Minari folder or id (downloaded if need be), an OGBench ``.npz``, or a D4RL-style ``.hdf5``.
        task: What the data must fit, and where achieved goals come from if the dataset has none.

    Raises:
        DataError: If there is no such dataset, or it is damaged, or it does not fit the task.
    """
    return validate(_read(source), task)


def convert(
    source: str | Path, target: str | Path, task: Task | None = None, overwrite: bool = False
) -> None:
    """Writes any dataset that :func:`load` reads in another format, all of it or nothing.

    Args:
        source: What to read.
        target: Where to write: an OGBench file if it ends in ``.npz``, a D4RL-style one if in ``.hdf5`` or
            ``.h5``, and a Minari folder if it has no suffix.
        task: As for :func:`load`; also gives a Minari dataset its action bounds.
        overwrite: Whether to replace what is there already.
    """
    target = Path(target)
    if target.suffix not in _WRITERS and target.suffix:
        raise DataError(
            f"{target} names no known format: end it in .npz (OGBench), .hdf5 (D4RL) or nothing (Minari)."
        )
    if target.exists() and not overwrite:
        raise DataError(f"{target} exists already; choose another name or ask to overwrite it.")
    store = load(source, task)
    if target.suffix in _WRITERS:
        _WRITERS[target.suffix](store, target, overwrite=overwrite)
    else:
        save_minari(
            store, target, task=task, description=f"Converted from {Path(source).name}", overwrite=overwrite
        )


_READERS = {".npz": read_ogbench, ".hdf5": read_d4rl, ".h5": read_d4rl}
_WRITERS = {".npz": write_ogbench, ".hdf5": write_d4rl, ".h5": write_d4rl}


def _read(source: str | Path) -> RawTrajectories:
    with reading(source, "a dataset"):
        path = Path(source)
        if path.is_dir():
            return read_minari(_minari_folder(path))
        if path.exists():
            if path.suffix not in _READERS:
                raise DataError(f"{path} is of no known kind: {', '.join(_READERS)} or a Minari folder.")
            return _READERS[path.suffix](path)
        if _MINARI_ID.fullmatch(str(source)) is None:
            raise DataError(f"{path} does not exist.")
        local = get_dataset_path(str(source))
        if not local.is_dir():
            _download(str(source))
        return read_minari(_minari_folder(local))


def _minari_folder(path: Path) -> Path:
    """Where the files of a Minari dataset are: in the folder itself or, in Minari's root, one below."""
    for folder in (path, path / "data"):
        if is_minari(folder):
            return folder
    raise DataError(f"{path} is a folder, but not a Minari dataset: it has no metadata.json.")


def _download(dataset_id: str) -> None:
    with contextlib.suppress(ImportError):
        from huggingface_hub.utils import logging as hub_logging

        hub_logging.set_verbosity(logging.CRITICAL)  # what goes wrong is said once, below
    try:
        minari.download_dataset(dataset_id)
    except Exception as error:  # a network has even more ways to fail than a file
        raise DataError(
            f"{dataset_id} is neither a path nor a local Minari dataset, and cannot be downloaded: "
            f"{reason(error)}."
        ) from error
