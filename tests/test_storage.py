"""Files and checkpoints that survive being interrupted, cut and changed."""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from curioplan.errors import RunError
from curioplan.storage import Checkpoints, flatten, load_tree, save_tree, unflatten, write_atomic, write_json

SYSTEM_CALLS = ("write", "fsync", "replace", "fchmod", "close", "unlink", "open")


def state_at(step):
    return {
        "weights": torch.arange(step, step + 64.0),
        "count": step,
        "nested": [{"a": torch.ones(2, 2) * step}],
    }


def assert_holds(checkpoint, step):
    assert checkpoint.step == step
    assert checkpoint.state["count"] == step
    assert torch.equal(checkpoint.state["weights"], torch.arange(step, step + 64.0))
    assert torch.equal(checkpoint.state["nested"][0]["a"], torch.ones(2, 2) * step)
    chunks = [chunk["rows"].item() for chunk in checkpoint.journals["data"]]
    assert chunks == list(range(1, step + 1))


def save(folder, step):
    checkpoints = Checkpoints(folder)
    checkpoints.load()
    checkpoints.save(step, state_at(step), {"data": {"rows": torch.tensor(step)}})


def die_at(call, patched):
    """End this process, as kill -9 would, at the given one of all system calls that write."""
    counter = 0

    def dying(real):
        def stand_in(*args, **kwargs):
            nonlocal counter
            counter += 1
            if counter == call:
                if real is patched["write"]:
                    real(args[0], bytes(args[1])[: len(args[1]) // 2])
                os._exit(9)
            return real(*args, **kwargs)

        return stand_in

    for name, real in patched.items():
        setattr(os, name, dying(real))


def save_dying(folder, step, call):
    """Save in a child that dies at its given system call; whether it died before it was done."""
    child = os.fork()
    if child == 0:
        try:
            die_at(call, {name: getattr(os, name) for name in SYSTEM_CALLS})
            save(folder, step)
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 9)
    return status == 9


@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_a_writer_killed_at_every_step_leaves_the_previous_checkpoint_or_the_new_one(tmp_path):
    call, seen = 0, []
    died = True
    while died:
        call += 1
        folder = tmp_path / str(call)
        save(folder, 1)
        save(folder, 2)
        died = save_dying(folder, 3, call)
        found = Checkpoints(folder).load()
        assert_holds(found, found.step)
        seen.append(found.step)
        save(folder, found.step + 1)  # and work goes on from there
        assert_holds(Checkpoints(folder).load(), found.step + 1)
        assert not list(folder.glob("*.part"))
    assert call > 12  # three files, each written, synced, closed, renamed, and the folder synced
    assert set(seen) == {2, 3}
    assert seen == sorted(seen)


def test_only_two_checkpoints_and_their_files_are_kept(tmp_path):
    for step in range(1, 6):
        save(tmp_path, step)
    assert Checkpoints(tmp_path).steps() == [4, 5]
    names = sorted(path.name.split("-")[0] for path in tmp_path.glob("*.safetensors"))
    assert names == ["data"] * 5 + ["state"] * 2


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_damage_to_the_newest_checkpoint_falls_back_to_the_one_before(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("run")
    for step in (1, 2, 3):
        save(folder, step)
    newest = [path for path in folder.iterdir() if "0000000003" in path.name]
    victim = data.draw(st.sampled_from(sorted(newest)))
    content = bytearray(victim.read_bytes())
    where = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[where] ^= data.draw(st.integers(1, 255))
    else:
        del content[where:]
    victim.write_bytes(content)
    found = Checkpoints(folder).load()
    assert_holds(found, found.step)
    if victim.suffix != ".json":
        assert found.step == 2
    save(folder, found.step + 1)
    assert_holds(Checkpoints(folder).load(), found.step + 1)


def test_when_every_checkpoint_is_damaged_the_error_says_so_and_nothing_is_deleted(tmp_path):
    save(tmp_path, 1)
    victim = next(tmp_path.glob("state-*"))
    victim.write_bytes(b"broken")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(RunError, match=r"No checkpoint in .* is whole: .*checksum"):
        Checkpoints(tmp_path).load()
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def test_no_checkpoint_yet_is_no_error(tmp_path):
    assert Checkpoints(tmp_path / "nowhere").load() is None


trees = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.lists(st.floats(width=32, allow_nan=False), max_size=4).map(torch.tensor),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def same(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and a == b


@settings(max_examples=200, deadline=None)
@given(tree=trees)
def test_any_tree_survives_a_checkpoint(tmp_path_factory, tree):
    folder = tmp_path_factory.mktemp("tree")
    Checkpoints(folder).save(7, tree)
    assert same(Checkpoints(folder).load().state, tree)


def test_views_of_one_tensor_are_saved_as_they_look(tmp_path):
    whole = torch.arange(12.0).reshape(3, 4)
    Checkpoints(tmp_path).save(1, {"row": whole[1], "column": whole[:, 2], "whole": whole})
    state = Checkpoints(tmp_path).load().state
    assert torch.equal(state["row"], whole[1])
    assert torch.equal(state["column"], whole[:, 2])


@pytest.mark.parametrize("bad", [{1: 2}, {"a": object()}, {"$tensor": "x"}, {"a": {1, 2}}])
def test_what_a_checkpoint_cannot_hold_is_refused_before_anything_is_written(tmp_path, bad):
    with pytest.raises(TypeError):
        Checkpoints(tmp_path).save(1, bad)
    assert list(tmp_path.iterdir()) == []


def test_flatten_is_undone_by_unflatten():
    tree = {"a": [torch.ones(2), {"b": 1.5}], "c": None}
    assert same(unflatten(*flatten(tree)), tree)


def test_a_failed_write_leaves_the_old_file_and_no_rubbish(tmp_path, monkeypatch):
    path = tmp_path / "config.json"
    write_json(path, {"a": 1})
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    for call in ("write", "fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, call, full)
            with pytest.raises(RunError, match=r"Cannot write .*config.json: No space left on device\."):
                write_json(path, {"a": 2})
        assert path.read_bytes() == before
        assert [entry.name for entry in tmp_path.iterdir()] == ["config.json"]


def test_written_files_are_readable_by_others(tmp_path):
    write_atomic(tmp_path / "file", b"content")
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644


def test_a_path_below_a_file_gives_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="Cannot write"):
        write_atomic(Path(tmp_path / "file" / "below"), b"")


@settings(max_examples=100, deadline=None)
@given(tree=trees, data=st.data())
def test_a_saved_tree_is_read_back_or_any_damage_to_it_is_noticed(tmp_path_factory, tree, data):
    path = tmp_path_factory.mktemp("tree") / "model.safetensors"
    save_tree(path, tree)
    assert same(load_tree(path), tree)
    content = bytearray(path.read_bytes())
    where = data.draw(st.integers(0, len(content) - 1))
    content[where] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    try:
        damaged = load_tree(path)
    except RunError:
        return
    assert same(damaged, tree)  # a changed blank in the header changes nothing
