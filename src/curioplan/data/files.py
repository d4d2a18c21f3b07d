"""Reading and writing files so that the user gets one clear sentence, and never half a file."""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from curioplan.errors import CurioplanError, DataError
from curioplan.storage import sync


@contextmanager
def reading(path: Path | str, kind: str) -> Iterator[None]:
    """Turns whatever the libraries raise on a damaged file into a :class:`DataError` that names it."""
    try:
        yield
    except CurioplanError:
        raise
    except Exception as error:  # bytes flipped in the wrong place make them raise nearly anything
        raise DataError(f"{path} cannot be read as {kind}: {reason(error)}.") from error


@contextmanager
def replacing(path: Path, *, overwrite: bool, replaceable: Callable[[Path], bool]) -> Iterator[Path]:
    """Yields a temporary path beside ``path`` to write a file or folder to, which then takes its place.

    What is there at ``path`` stays untouched unless the block succeeds and the disk has everything. A file is
    replaced in one step. A folder takes two renames, undone if the second fails; only then is the old one
    removed.

    Args:
        path: Where the result belongs.
        overwrite: Whether to replace what is there.
        replaceable: Whether what is there may be replaced, lest a mistyped path cost other data.
    """
    try:
        target = path.resolve()
        if target.exists():
            if not overwrite:
                raise DataError(f"{path} exists already; choose another name or ask to overwrite it.")
            if not replaceable(target):
                raise DataError(f"{path} exists and is not a dataset of this kind, so it is not overwritten.")
        if target.parent.is_file():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix=f".{target.name}.", dir=target.parent, ignore_cleanup_errors=True
        ) as folder:
            fresh = Path(folder) / target.name
            yield fresh
            _sync(fresh)
            _move(fresh, target, aside=Path(f"{folder}.old"))
            _sync_folder(target.parent)
    except CurioplanError:
        raise
    except (OSError, RuntimeError, MemoryError) as error:  # h5py reports trouble as any of these
        raise DataError(f"{path} cannot be written: {reason(error)}.") from error


def _move(fresh: Path, target: Path, aside: Path) -> None:
    """Puts ``fresh`` in the place of ``target``, whose old folder goes ``aside`` until that is done."""
    if not target.is_dir():
        fresh.replace(target)
        return
    target.rename(aside)
    try:
        fresh.rename(target)
    except BaseException:
        aside.rename(target)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _sync(path: Path) -> None:
    """Makes sure that a file, or a folder and all in it, is on disk."""
    if path.is_dir():
        for child in path.iterdir():
            _sync(child)
        _sync_folder(path)
    else:
        sync(path)


def _sync_folder(path: Path) -> None:
    with suppress(OSError):  # some file systems cannot, and what matters is in the files
        sync(path)


def reason(error: BaseException) -> str:
    """The gist of an error, in one line without a full stop."""
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    system = re.search(r"error message = '([^']*)'", text)  # HDF5 hides the system's message in its own
    if system:
        text = system.group(1)
    elif isinstance(error, OSError) and error.strerror:
        text = error.strerror
    lines = text.strip().splitlines()
    return (lines[0] if lines else type(error).__name__).strip().rstrip(".")[:200]
