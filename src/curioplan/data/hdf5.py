"""HDF5 files, read with distrust and written without risk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from curioplan.errors import DataError

# Deflate compresses at most a thousandfold; beyond, a size is an error that would cost all memory.
_MAX_INFLATION = 1100


class Hdf5Reader:
    """Reads whole datasets by name, with h5py's low-level calls: half the time for many small ones."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._limit = path.stat().st_size * _MAX_INFLATION
        self._file = h5py.File(path, "r")

    def __enter__(self) -> Hdf5Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __contains__(self, name: str) -> bool:
        return name in self._file

    def is_group(self, name: str) -> bool:
        """Whether ``name`` is there and is a group."""
        return self._file.get(name, getclass=True) is h5py.Group

    def read(self, name: str) -> NDArray[Any]:
        """The dataset ``name``, which must hold numbers or booleans."""
        try:
            dataset = h5py.h5d.open(self._file.id, name.encode())
        except KeyError as error:
            if not any(reason in str(error) for reason in ("doesn't exist", "component not found")):
                raise  # it is there, but damaged
            raise DataError(f"{self._path} has no {name}.") from error
        dtype, shape = dataset.dtype, dataset.shape
        if dtype.kind not in "fiub":
            raise DataError(f"{self._path}: {name} are of type {dtype}, not numbers.")
        if float(np.prod(shape, dtype=float)) * dtype.itemsize > self._limit:
            raise DataError(f"{self._path} is damaged: {name} would be larger than the file can hold.")
        array = np.empty(shape, dtype)
        dataset.read(h5py.h5s.ALL, h5py.h5s.ALL, array)
        return array


@contextmanager
def hdf5_writer(path: Path) -> Iterator[h5py.File]:
    """Yields an HDF5 file in memory, and writes it to ``path`` when the block ends.

    The HDF5 library does not survive a full disk: it prints pages of errors and may crash the process. Plain
    writing of the finished bytes fails in good order.
    """
    # The format since HDF5 1.10 has checksums on its structures and half the overhead on small datasets.
    with h5py.File(
        path, "w", driver="core", backing_store=False, libver=("v110", "v110"), track_order=True
    ) as file:
        yield file
        file.flush()
        image = file.id.get_file_image()
    path.write_bytes(image)
