"""Datasets come and go without loss, and whatever is wrong with them is said in one sentence."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from types import SimpleNamespace

import minari
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from hypothesis import given, settings
from hypothesis import strategies as st
from minari.data_collector import EpisodeBuffer
from minari.dataset.minari_storage import MinariStorage

from curioplan.data import TrajectoryStore, convert, load, save_minari
from curioplan.errors import DataError
from trajectory_samples import (
    KINDS,
    LENGTHS,
    TASK,
    assert_same,
    d4rl_arrays,
    make,
    ogbench_arrays,
    refused,
    write,
    write_hdf5,
)

ANY_SPACE = spaces.Discrete(2)  # Minari writes what it is given, whatever the space


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("task", [None, TASK], ids=["alone", "task"])
def test_what_is_written_is_read_back_bit_by_bit(tmp_path, kind, task):
    write(make(), tmp_path / kind)
    assert_same(load(tmp_path / kind, task), make())


@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5), seed=st.integers(0, 99))
@settings(max_examples=15, deadline=None)
def test_any_store_survives_minari(lengths, seed):
    with tempfile.TemporaryDirectory() as folder:
        save_minari(make(lengths, seed), Path(folder) / "data")
        assert_same(load(Path(folder) / "data"), make(lengths, seed))


def test_conversion_there_and_back_loses_nothing(tmp_path):
    save_minari(make(), tmp_path / "a", task=TASK)
    for source, target in [("a", "b.npz"), ("b.npz", "c.hdf5"), ("c.hdf5", "d")]:
        convert(tmp_path / source, tmp_path / target, TASK)
    assert_same(load(tmp_path / "d"), make())


def test_goals_that_are_no_part_of_the_state_are_kept(tmp_path):
    store = TrajectoryStore(1, 1, 1)
    store.add_episode([[0], [1], [2]], [[0], [0]], [[7], [8], [9]])
    save_minari(store, tmp_path / "a")
    for kind in ("b.npz", "b.hdf5"):
        convert(tmp_path / "a", tmp_path / kind)
        assert load(tmp_path / kind).achieved_goals.tolist() == [[7], [8], [9]]


def test_minari_reads_what_we_write(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    spec = EnvSpec(id="Field-v0", entry_point="module:Field")
    save_minari(
        make(),
        tmp_path / "ours/field-v3/data",
        task=TASK,
        env_spec=spec,
        dataset_id="ours/field-v3",
        description="A field",
    )
    assert list(minari.list_local_datasets()) == ["ours/field-v3"]
    dataset = minari.load_dataset("ours/field-v3")
    assert (dataset.total_episodes, dataset.total_steps) == (5, 22)
    assert dataset.env_spec.id == "Field-v0"
    assert dataset.storage.metadata["description"] == "A field"
    np.testing.assert_array_equal(dataset.action_space.high, [1, 1, 2])
    for ours, theirs in zip(make(), dataset, strict=True):
        np.testing.assert_array_equal(theirs.observations["observation"], ours.observations)
        np.testing.assert_array_equal(theirs.observations["achieved_goal"], ours.achieved_goals)
        np.testing.assert_array_equal(theirs.actions, ours.actions)
        assert not theirs.rewards.any()
        assert not theirs.terminations.any()
        assert theirs.truncations.tolist() == [False] * (len(ours.actions) - 1) + [True]
        assert dataset.observation_space.contains({k: v[0] for k, v in theirs.observations.items()})
    assert_same(load("ours/field-v3", TASK), make())
    assert_same(load(tmp_path / "ours/field-v3"), make())


def write_with_minari(path, store, *, goals=True, nested=False):
    """A dataset as Minari's own collector writes it."""
    buffers = []
    for number, part in enumerate(store):
        observations = {"observation": part.observations, "desired_goal": part.achieved_goals}
        if goals:
            achieved = part.achieved_goals
            observations["achieved_goal"] = {"kettle": achieved} if nested else achieved
        steps = len(part.actions)
        buffers.append(
            EpisodeBuffer(
                id=number,
                observations=observations if goals else part.observations,
                actions=part.actions,
                rewards=np.full(steps, np.nan),
                terminations=np.zeros(steps, bool),
                truncations=np.arange(steps) == steps - 1,
            )
        )
    storage = MinariStorage.new(path, ANY_SPACE, ANY_SPACE, jpeg_encoding=False)
    storage.update_episodes(buffers)
    storage.update_metadata({"dataset_id": "theirs/field-v0", "minari_version": minari.__version__})


def test_datasets_written_by_minari_are_read(tmp_path):
    write_with_minari(tmp_path / "dict", make())
    assert_same(load(tmp_path / "dict"), make())
    write_with_minari(tmp_path / "box", make(), goals=False)
    assert_same(load(tmp_path / "box", TASK), make())
    write_with_minari(tmp_path / "nested", make(), nested=True)
    assert_same(load(tmp_path / "nested", TASK), make())
    for name in ("box", "nested"):
        with refused(tmp_path / name, "pass the environment"):
            load(tmp_path / name)


def test_other_storages_are_read_through_minari(tmp_path, monkeypatch):
    """Stands in for Arrow, which is an extra of Minari."""
    save_minari(make(), tmp_path / "data")
    metadata = tmp_path / "data/metadata.json"
    metadata.write_text(metadata.read_text().replace('"hdf5"', '"arrow"'))

    def dataset(folder, keys=("observation", "achieved_goal")):
        return [
            SimpleNamespace(
                observations=dict(zip(keys, (part.observations, part.achieved_goals), strict=True)),
                actions=part.actions,
            )
            for part in make()
        ]

    monkeypatch.setattr(minari, "MinariDataset", dataset)
    assert_same(load(tmp_path / "data"), make())
    monkeypatch.setattr(minari, "MinariDataset", lambda folder: dataset(folder, ("image", "achieved_goal")))
    with refused(tmp_path / "data", "no observations/observation"):
        load(tmp_path / "data")


def test_ogbench_files_give_the_same_store(tmp_path):
    np.savez(tmp_path / "a.npz", **ogbench_arrays(make()), qpos=np.zeros(3))
    assert_same(load(tmp_path / "a.npz", TASK), make())
    with refused("a.npz", "achieved goals", "pass the environment"):
        load(tmp_path / "a.npz")


def test_d4rl_files_give_the_same_store(tmp_path):
    arrays = d4rl_arrays(make())
    write_hdf5(tmp_path / "a.hdf5", arrays)
    assert_same(load(tmp_path / "a.hdf5", TASK), make())
    terminals = {"terminals": arrays["timeouts"].astype(float), "timeouts": arrays["terminals"]}
    write_hdf5(tmp_path / "b.hdf5", arrays | terminals)
    assert_same(load(tmp_path / "b.hdf5", TASK), make())


def test_without_next_observations_the_last_row_is_the_final_state(tmp_path, caplog):
    arrays = d4rl_arrays(make())
    del arrays["next_observations"]
    write_hdf5(tmp_path / "a.hdf5", arrays)
    store = load(tmp_path / "a.hdf5", TASK)
    assert store.episode_lengths.tolist() == [length - 1 for length in LENGTHS if length > 1]
    assert "2 episodes of a single state were dropped" in caplog.text
    for shorter, whole in zip(store, (part for part in make() if len(part.actions) > 1), strict=True):
        np.testing.assert_array_equal(shorter.observations, whole.observations[:-1])
        np.testing.assert_array_equal(shorter.actions, whole.actions[:-1])


def test_rows_after_the_last_boundary_are_a_shorter_episode(tmp_path):
    store = make()
    ogbench, d4rl = ogbench_arrays(store), d4rl_arrays(store)
    ogbench["terminals"][-1] = d4rl["timeouts"][-1] = 0
    np.savez(tmp_path / "a.npz", **ogbench)
    write_hdf5(tmp_path / "a.hdf5", d4rl)
    assert_same(load(tmp_path / "a.npz", TASK), store)
    assert_same(load(tmp_path / "a.hdf5", TASK), store)


def test_unmarked_jumps_end_an_episode(tmp_path, caplog):
    arrays = d4rl_arrays(make())
    arrays["timeouts"][:] = False
    write_hdf5(tmp_path / "a.hdf5", arrays)
    assert_same(load(tmp_path / "a.hdf5", TASK), make())
    assert "4 episodes end without a terminal or timeout" in caplog.text


def test_what_is_not_there_or_not_a_dataset_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "root"))
    (tmp_path / "folder").mkdir()
    (tmp_path / "notes.txt").write_text("hello")
    for name in ("none", "none.npz", "none.hdf5", "folder", "notes.txt", "x" * 300):
        with refused(tmp_path / name):
            load(tmp_path / name)
    for name in ("empty.npz", "empty.hdf5"):
        (tmp_path / name).touch()
        with refused(tmp_path / name, "cannot be read as"):
            load(tmp_path / name)


def test_a_dataset_that_cannot_be_downloaded_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))

    def offline(dataset_id):
        raise ConnectionError("No route to host\nand more")

    monkeypatch.setattr(minari, "download_dataset", offline)
    with refused("ours/none-v0", "cannot be downloaded: No route to host."):
        load("ours/none-v0")
    monkeypatch.setattr(
        minari, "download_dataset", lambda name: save_minari(make(), tmp_path / name / "data")
    )
    assert_same(load("ours/none-v0"), make())


def test_missing_and_misshapen_fields_are_named(tmp_path):
    for name in ("observations", "actions", "terminals"):
        for kind, arrays in ((".npz", ogbench_arrays(make())), (".hdf5", d4rl_arrays(make()))):
            path = (tmp_path / name).with_suffix(kind)
            for wrong in (None, np.zeros((2, 2, 2)), np.array([b"text"] * 3)):
                changed = {key: value for key, value in arrays.items() if key != name}
                changed |= {} if wrong is None else {name: wrong}
                np.savez(path, **changed) if kind == ".npz" else write_hdf5(path, changed)
                with refused(path):
                    load(path, TASK)
    path = tmp_path / "pickle.npz"
    np.savez(path, **ogbench_arrays(make()) | {"observations": np.array([{}, []], object)})
    with refused(path, "allow_pickle=False"):
        load(path, TASK)


def test_flags_other_than_zero_and_one_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", **ogbench_arrays(make()) | {"terminals": np.full(make().states, np.nan)})
    with refused("a.npz", "terminals", "0 and 1"):
        load(tmp_path / "a.npz", TASK)


def test_empty_datasets_are_refused(tmp_path):
    for name in ("a.npz", "a.hdf5"):
        arrays = {"observations": np.zeros((0, 4)), "actions": np.zeros((0, 3)), "terminals": np.zeros(0)}
        if name == "a.npz":
            np.savez(tmp_path / name, **arrays)
        else:
            write_hdf5(tmp_path / name, arrays)
        with refused(name, "no transitions"):
            load(tmp_path / name, TASK)
    with refused("no transitions"):
        save_minari(TrajectoryStore(4, 2, 3), tmp_path / "b")
    MinariStorage.new(tmp_path / "c", ANY_SPACE, ANY_SPACE)
    with refused(tmp_path / "c", "no episodes"):
        load(tmp_path / "c")


def test_metadata_that_contradicts_the_data_is_found(tmp_path):
    save_minari(make(), tmp_path / "data")
    metadata = tmp_path / "data/metadata.json"
    good = json.loads(metadata.read_text())
    for change, words in (
        ({"total_episodes": 4}, "metadata says 4"),
        ({"total_episodes": 9}, "no episode_5"),
        ({"total_steps": 21}, "of 21"),
        ({"total_steps": "many"}, "cannot be read"),
        ({"data_format": "parquet"}, "cannot be read"),
    ):
        metadata.write_text(json.dumps(good | change))
        with refused(tmp_path / "data", words):
            load(tmp_path / "data")


def test_minari_episodes_of_the_wrong_shape_are_named(tmp_path):
    for name, observations, actions, words in (
        ("a", np.zeros((3, 4)), np.zeros((3, 3)), "episode 0 has 3 observations for 3 actions"),
        ("b", np.zeros((4, 8, 8, 3), np.uint8), np.zeros((3, 3)), "(8, 8, 3)"),
        ("c", np.zeros((4, 4)), np.zeros(3, np.int64), "not vectors"),
        ("d", {"image": np.zeros((4, 4))}, np.zeros((3, 3)), "no episode_0/observations/observation"),
    ):
        storage = MinariStorage.new(tmp_path / name, ANY_SPACE, ANY_SPACE, jpeg_encoding=False)
        flags = np.zeros(3, bool)
        storage.update_episodes(
            [EpisodeBuffer(0, None, None, observations, actions, np.zeros(3), flags, flags, None)]
        )
        with refused(tmp_path / name, words):
            load(tmp_path / name, TASK)


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    """A valid dataset of each format, and which of its files to damage."""
    folder = tmp_path_factory.mktemp("samples")
    for kind in ("data", "data.npz", "data.hdf5"):
        write(make(), folder / kind)
    write_with_minari(folder / "theirs", make(), goals=False)
    write_hdf5(folder / "theirs.hdf5", d4rl_arrays(make()))
    np.savez(folder / "theirs.npz", **ogbench_arrays(make()))
    return [
        (path, path if path.is_file() else path / file)
        for path, file in [
            *((folder / name, "main_data.hdf5") for name in ("data", "theirs")),
            (folder / "data", "metadata.json"),
            *((folder / name, "") for name in ("data.npz", "data.hdf5", "theirs.npz", "theirs.hdf5")),
        ]
    ]


@given(
    which=st.integers(0, 6),
    position=st.floats(0, 1, exclude_max=True),
    flips=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), max_size=4),
)
@settings(max_examples=400, deadline=None)
def test_damaged_files_load_or_are_refused(samples, which, position, flips):
    """Truncated if there are no flips, else with bytes changed anywhere: never any other exception."""
    path, file = samples[which]
    good = file.read_bytes()
    damaged = bytearray(good if flips else good[: int(position * len(good))])
    for where, mask in flips:
        damaged[int(where * len(damaged))] ^= mask
    file.write_bytes(damaged)
    try:
        store = load(path, TASK)
    except DataError as error:
        message = str(error)
    else:
        message = str(path)
        assert store.observations.isfinite().all()
        assert store.states == store.transitions + store.episodes
    finally:
        file.write_bytes(good)
    assert str(path) in message
    assert "\n" not in message


def test_checksums_notice_a_changed_number(tmp_path):
    save_minari(make(), tmp_path / "data")
    file = tmp_path / "data/main_data.hdf5"
    content = bytearray(file.read_bytes())
    content[content.find(make().observations[8].numpy().tobytes())] ^= 1
    file.write_bytes(content)
    with refused(tmp_path / "data", "cannot be read"):
        load(tmp_path / "data")
