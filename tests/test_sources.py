"""What a stage trains on: named in one line, and refused in one sentence."""

import json
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curioplan.data import TrajectoryStore, gather, save_minari
from curioplan.errors import ConfigError, DataError
from trajectory_samples import TASK, assert_same, make, write


@contextmanager
def refused(error, *words):
    with pytest.raises(error) as caught:
        yield
    message = str(caught.value)
    assert message.endswith(".")
    assert "\n" not in message
    for word in words:
        assert str(word) in message, message


def from_seed(store, seed):
    """Which of the episodes are those that `make` draws from a seed."""
    known = {episode.observations.tobytes() for episode in make([4] * 50, seed)}
    return [episode.observations.tobytes() in known for episode in store]


@pytest.fixture
def own(tmp_path):
    """A run of its own, with exploration data."""
    save_minari(make([4] * 50, seed=1), tmp_path / "mine" / "explore" / "data", task=TASK)
    (tmp_path / "mine" / "run.json").write_text(json.dumps({"format": 1, "env": "none:none"}))
    return tmp_path / "mine" / "explore" / "data"


@pytest.fixture
def expert(tmp_path):
    write(make([4] * 50, seed=2), tmp_path / "expert.npz")
    return tmp_path / "expert.npz"


def test_nothing_named_means_the_runs_own_data(own):
    for spec in ("", "  ", "own"):
        assert_same(gather(spec, own, TASK), make([4] * 50, seed=1))


@pytest.mark.parametrize("where", [None, "absent"])
@pytest.mark.parametrize("spec", ["", "own", "own=1"])
def test_a_run_without_data_is_told_to_explore_or_to_name_some(tmp_path, where, spec):
    with refused(DataError, "explore first, or name the data"):
        gather(spec, tmp_path / where if where else None, TASK)


@pytest.mark.parametrize("kind", ["data", "data.npz", "data.hdf5"])
def test_one_source_is_taken_whole_whatever_its_format(tmp_path, kind):
    write(make(), tmp_path / kind)
    assert_same(gather(str(tmp_path / kind), None, TASK), make())


def test_a_run_folder_stands_for_its_exploration_data(own, tmp_path):
    assert_same(gather(str(tmp_path / "mine"), None, TASK), make([4] * 50, seed=1))
    (tmp_path / "fresh").mkdir()
    (tmp_path / "fresh" / "run.json").write_text("{}")
    with refused(DataError, tmp_path / "fresh", "finish its exploration"):
        gather(str(tmp_path / "fresh"), None, TASK)


def test_sources_without_shares_are_taken_whole_one_after_the_other(own, expert):
    both = make([4] * 50, seed=2)
    both.extend(make([4] * 50, seed=1))
    assert_same(gather(f" {expert} , own ", own, TASK), both)


def test_without_a_size_a_mixture_is_as_large_as_its_shares_allow(own, expert):
    mixture = gather(f"{expert}=0.04,own=0.96", own, TASK)
    assert mixture.transitions == 208  # 200 / 0.96
    assert from_seed(mixture, 1).count(True) == 50
    assert gather(f"{expert}=0,own=1", own, TASK).transitions == 200


@settings(max_examples=25, deadline=None)
@given(
    share=st.integers(0, 100).map(lambda percent: percent / 100),
    size=st.integers(1, 200),
    seed=st.integers(0, 9),
)
def test_shares_and_size_are_kept_to_within_an_episode(share, size, seed):
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("a.npz", "b.npz")]
        for number, path in enumerate(paths, 1):
            write(make([4] * 50, seed=number), path)
        spec = f"{paths[0]}={share},{paths[1]}={1 - share}"
        mixture = gather(spec, None, TASK, size=size, seed=seed)
        for number, wanted in ((1, share * size), (2, (1 - share) * size)):
            assert abs(4 * from_seed(mixture, number).count(True) - wanted) <= 2.5
        assert_same(mixture, gather(spec, None, TASK, size=size, seed=seed))


def test_another_seed_mixes_other_episodes(own, expert):
    spec = f"{expert}=0.5,own=0.5"
    first, other = (gather(spec, own, TASK, size=100, seed=seed) for seed in (0, 1))
    assert not np.array_equal(first.observations, other.observations)


@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6), size=st.integers(0, 54), split=st.booleans()
)
@settings(max_examples=25, deadline=None)
def test_a_size_takes_the_first_whole_episodes_that_reach_it(lengths, size, split):
    with tempfile.TemporaryDirectory() as folder:
        write(make(lengths), Path(folder) / "a.npz")
        write(make([3], seed=5), Path(folder) / "b.npz")
        spec = f"{folder}/a.npz,{folder}/b.npz" if split else f"{folder}/a.npz"
        whole = gather(spec, None, TASK)
        if size > whole.transitions:
            with refused(DataError, f"{whole.transitions} of the {size} transitions"):
                gather(spec, None, TASK, size=size)
            return
        part = gather(spec, None, TASK, size=size)
        assert part.transitions >= size
        assert size == 0 or part.transitions - int(part.episode_lengths[-1]) < size
        assert np.array_equal(part.observations, whole.observations[: part.states])
        assert np.array_equal(part.actions[:-1], whole.actions[: part.states - 1])


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (",", "A source is missing"),
        ("a.npz,", "A source is missing"),
        ("a.npz,,b.npz", "A source is missing"),
        ("=0.5,a.npz=0.5", "A source is missing"),
        ("a.npz,a.npz", "a.npz is named twice"),
        ("a.npz=half,b.npz=half", "share of a.npz must be a number from 0 to 1, not 'half'"),
        ("a.npz=", "share of a.npz must be a number from 0 to 1, not ''"),
        ("a.npz=nan,b.npz=1", "from 0 to 1, not 'nan'"),
        ("a.npz=-0.5,b.npz=1.5", "from 0 to 1, not '-0.5'"),
        ("a.npz=0.5,b.npz", "b.npz has no share"),
        ("a.npz=0.5,b.npz=0.4", "sum to 0.9; they must sum to 1"),
        ("a.npz=0.5", "sum to 0.5"),
        ("a.npz=0,b.npz=0", "sum to 0;"),
    ],
)
def test_malformed_lists_are_refused_before_anything_is_read(spec, words):
    with refused(ConfigError, words):
        gather(spec, None, TASK)


@settings(deadline=None)
@given(st.text(alphabet="ab=,. 01\x00/", max_size=12))
def test_any_text_is_a_list_of_sources_or_costs_one_sentence(spec):
    with pytest.raises((ConfigError, DataError)) as caught:
        gather(spec, None, TASK)
    assert str(caught.value).endswith(".")


def test_a_path_may_hold_an_equals_sign(tmp_path):
    write(make(), tmp_path / "seed=3.npz")
    write(make(), tmp_path / "seed=1")
    for name in ("seed=3.npz", "seed=1"):
        assert_same(gather(str(tmp_path / name), None, TASK), make())


def test_a_mixture_larger_than_its_sources_is_refused_with_what_is_possible(own, expert):
    with refused(DataError, f"{expert} has 200 of the 250 transitions wanted", "at most 400 in all"):
        gather(f"{expert}=0.5,own=0.5", own, TASK, size=500)


def test_missing_and_damaged_sources_are_named(own, expert, tmp_path):
    with refused(DataError, tmp_path / "none.npz"):
        gather(f"own,{tmp_path / 'none.npz'}", own, TASK)
    expert.write_bytes(expert.read_bytes()[:-40])
    for spec in (f"{expert}", f"own,{expert}", f"own=0.5,{expert}=0.5"):
        with refused(DataError, expert):
            gather(spec, own, TASK)


def test_sources_of_different_dimensions_are_refused(own, tmp_path):
    other = TrajectoryStore(1, 1, 1)
    other.add_episode([[0], [1], [2]], [[0], [0]], [[7], [8], [9]])
    save_minari(other, tmp_path / "other")
    for spec in (f"own,{tmp_path / 'other'}", f"own=0.5,{tmp_path / 'other'}=0.5"):
        with refused(DataError, "own and", "(4, 2, 3) and (1, 1, 1)"):
            gather(spec, own, None)
