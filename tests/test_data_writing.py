"""Datasets are written whole or not at all."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from curioplan.data import convert, load, save_minari
from trajectory_samples import KINDS, TASK, assert_same, make, refused, write


def contents(folder):
    """Every file below a folder and what is in it."""
    return {path: path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file()}


def test_existing_data_is_not_replaced_unasked(tmp_path):
    save_minari(make(), tmp_path / "source")
    for kind in KINDS:
        convert(tmp_path / "source", tmp_path / "out" / kind)
        before = contents(tmp_path)
        with refused(tmp_path / "out" / kind, "exists already"):
            convert(tmp_path / "source", tmp_path / "out" / kind)
        assert contents(tmp_path) == before
    with refused("exists already"):
        save_minari(make(), tmp_path / "source")


@pytest.mark.parametrize("kind", KINDS)
def test_overwriting_replaces_and_leaves_nothing_behind(tmp_path, kind):
    write(make([3]), tmp_path / kind)
    save_minari(make(), tmp_path / "source")
    convert(tmp_path / "source", tmp_path / kind, overwrite=True)
    assert_same(load(tmp_path / kind), make())
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([kind, "source"])


def test_only_datasets_are_overwritten(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/cat.jpg").write_text("cat")
    (tmp_path / "file").write_text("text")
    (tmp_path / "folder.npz").mkdir()
    save_minari(make(), tmp_path / "source")
    before = contents(tmp_path)
    for name in ("photos", "file", "folder.npz"):
        with refused(tmp_path / name, "not overwritten"):
            convert(tmp_path / "source", tmp_path / name, overwrite=True)
    assert contents(tmp_path) == before


def test_unknown_targets_and_ids_are_refused(tmp_path):
    save_minari(make(), tmp_path / "source")
    with refused("a.csv", ".npz"):
        convert(tmp_path / "source", tmp_path / "a.csv")
    for name in ("no version", "noversion", "-v1"):
        with refused("Minari ids", name):
            save_minari(make(), tmp_path / "b", dataset_id=name)
    with refused("Actions have 3 dimensions", "field have 1"):
        save_minari(make(), tmp_path / "b", task=replace(TASK, action_low=(-1.0,), action_high=(1.0,)))
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


@contextmanager
def small_files(limit):
    """Makes writing beyond ``limit`` bytes of a file fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def failing(monkeypatch, owner, name, code, after=0):
    """Makes a function fail with a system error, after some calls that succeed."""
    calls, original = [], getattr(owner, name)

    def fail(*arguments, **options):
        calls.append(name)
        if len(calls) > after:
            raise OSError(code, os.strerror(code))
        return original(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fail)
        yield
    assert len(calls) > after


@pytest.mark.parametrize("kind", KINDS)
def test_failed_writes_leave_everything_as_it_was(tmp_path, monkeypatch, kind):
    write(make([3, 4]), tmp_path / kind)
    save_minari(make([40] * 10), tmp_path / "source")
    before = contents(tmp_path)
    move = "rename" if kind == "data" else "replace"
    failures = [
        (small_files(2000), "File too large"),
        (failing(monkeypatch, os, "fsync", errno.ENOSPC), "No space left on device"),
        (failing(monkeypatch, os, "fsync", errno.EIO), "Input/output error"),
        (failing(monkeypatch, tempfile, "mkdtemp", errno.EROFS), "Read-only file system"),
        (failing(monkeypatch, Path, move, errno.EACCES), "Permission denied"),
    ]
    for failure, reason in failures:
        with failure, refused(tmp_path / kind, "cannot be written", reason):
            convert(tmp_path / "source", tmp_path / kind, overwrite=True)
        assert contents(tmp_path) == before
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([kind, "source"])
    assert_same(load(tmp_path / kind), make([3, 4]))


def test_a_swap_that_fails_half_way_is_undone(tmp_path, monkeypatch):
    save_minari(make(), tmp_path / "data")
    before = contents(tmp_path)
    rename, names = Path.rename, []

    def fail_second(path, target):
        names.append(path.name)
        if len(names) == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail_second)
    with refused(tmp_path / "data", "Input/output error"):
        save_minari(make([3]), tmp_path / "data", overwrite=True)
    assert len(names) == 3
    assert contents(tmp_path) == before


def test_a_folder_that_cannot_be_made_is_reported(tmp_path):
    (tmp_path / "file").touch()
    with refused(tmp_path / "file/data", "cannot be written", "Not a directory"):
        save_minari(make(), tmp_path / "file/data")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_is_reported(tmp_path):
    save_minari(make([40] * 50), tmp_path / "source")
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        write(make([3]), disk / "data")
        before = contents(disk)
        for kind in ("data", "data.npz", "data.hdf5"):
            with refused(disk / kind, "No space left on device"):
                convert(tmp_path / "source", disk / kind, overwrite=True)
        assert contents(disk) == before
    finally:
        subprocess.run(["umount", str(disk)], check=True)
