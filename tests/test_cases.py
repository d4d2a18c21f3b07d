"""Goals to evaluate on: by name, from files, from data, and what is refused."""

import contextlib
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from curioplan.data import TrajectoryStore
from curioplan.envs import make_task
from curioplan.errors import ConfigError, DataError
from curioplan.stages.cases import choose_cases, read_cases

MAZE, PINPAD = make_task("maze_umaze"), make_task("pinpad")


def no_data():
    raise AssertionError("data are not needed")


def names(spec, task=MAZE):
    return [case.name for case in choose_cases(spec, task, no_data)]


def test_all_cases_of_the_task_by_default_and_some_by_name():
    assert names("") == ["(1, 3)", "(3, 3)", "(3, 1)"]
    assert names("(3, 1)") == ["(3, 1)"]
    assert names("(3, 1),(1, 3), (3, 1)") == ["(3, 1)", "(1, 3)"]
    assert names("1-2-1, 4-3-4", PINPAD) == ["1-2-1", "4-3-4"]
    with pytest.raises(ConfigError, match=r"did you mean 1-2-1\?"):
        names("1-2-1,1-2-11", PINPAD)


def test_a_file_holds_goals_or_cases(tmp_path):
    path = tmp_path / "goals.json"
    state = [1.8, 1.8, 0, 0, 1, 2, 3]
    path.write_text(json.dumps([[1, 2, 1], {"goal": [4, 3, 4], "name": "mine", "state": state}]))
    first, second = choose_cases(str(path), PINPAD, no_data)
    assert (first.name, first.goal) == ("goal 1", (1.0, 2.0, 1.0))
    assert (first.state, first.jitter) == (PINPAD.cases[0].state, PINPAD.cases[0].jitter)
    assert (second.name, second.goal, second.state) == ("mine", (4.0, 3.0, 4.0), tuple(map(float, state)))
    assert second.jitter is None, "a start that is given is meant exactly"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not valid JSON"),
        ("[[1, 2", "not valid JSON"),
        ("{}", "must hold a list of goals"),
        ("[]", "must hold a list of goals"),
        ("[[1, 2, 3]]", "goal in entry 1 of .* must be a list of 2 finite numbers"),
        ("[[1, 2], 3]", "goal in entry 2"),
        ("[[1, true]]", "2 finite numbers"),
        ("[[1, NaN]]", "2 finite numbers"),
        ("[[1, 1e999]]", "2 finite numbers"),
        ('[[1, "2"]]', "2 finite numbers"),
        ('[{"state": [1, 1, 0, 0]}]', "In entry 1 of .* there is no goal"),
        ('[{"goal": [1, 2], "state": [1]}]', "state in entry 1 of .* must be a list of 4"),
        ('[{"goal": [1, 2], "sate": [1]}]', "there is 'sate', where goal, state, name are known"),
        ('[{"goal": [1, 2], "name": 3}]', "name must be text"),
        ('[{"goal": [1, 2], "name": "a"}, {"goal": [1, 3], "name": "a"}]', "two cases named 'a'"),
    ],
)
def test_files_that_do_not_fit_are_refused_in_one_sentence(tmp_path, content, message):
    path = tmp_path / "goals.json"
    path.write_text(content)
    with pytest.raises(DataError, match=message) as refusal:
        read_cases(path, MAZE)
    assert str(refusal.value).count("\n") == 0


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["goal", "state", "name", "other"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=json_values)
def test_any_json_is_read_or_refused(tmp_path, content):
    path = tmp_path / "goals.json"
    path.write_text(json.dumps(content))
    with contextlib.suppress(DataError):
        for case in read_cases(path, MAZE):
            assert np.isfinite(case.goal).all()


@pytest.mark.parametrize("spec", ["random:0", "random:", "random:-3", "random:2.5", "random:11"])
def test_a_number_of_random_goals_that_cannot_be_is_refused(spec):
    store = TrajectoryStore(4, 2, 2)
    store.add_episode(np.zeros((10, 4)), np.zeros((9, 2)), np.zeros((10, 2)))
    with pytest.raises(ConfigError, match=r"random:20|only 10 states"):
        choose_cases(spec, MAZE, lambda: store)


def test_lists_of_cases_may_hold_all_of_the_task_and_random_ones():
    store = TrajectoryStore(4, 2, 2)
    store.add_episode(np.zeros((10, 4)), np.zeros((9, 2)), np.random.default_rng(0).normal(size=(10, 2)))
    own, drawn = list(MAZE.cases), choose_cases("random:3", MAZE, lambda: store)
    assert choose_cases("own, random:3", MAZE, lambda: store) == own + drawn
    assert choose_cases(f"random:3,{own[1].name}", MAZE, lambda: store) == [*drawn, own[1]]
    assert choose_cases(f"{own[1].name},own", MAZE, lambda: store) == [own[1], own[0], *own[2:]]
    with pytest.raises(ConfigError, match="There is no case ''"):
        choose_cases(f"{own[1].name},", MAZE, lambda: store)


def test_random_goals_start_where_the_first_case_does():
    store = TrajectoryStore(7, 3, 2)
    goals = np.random.default_rng(0).normal(size=(10, 3))
    store.add_episode(np.zeros((10, 7)), np.zeros((9, 2)), goals)
    cases = choose_cases("random:10", PINPAD, lambda: store, seed=1)
    assert {case.state for case in cases} == {PINPAD.cases[0].state}
    np.testing.assert_allclose(sorted(case.goal for case in cases), sorted(goals.tolist()), rtol=1e-6)
    again = choose_cases("random:10", PINPAD, lambda: store, seed=1)
    other = choose_cases("random:10", PINPAD, lambda: store, seed=2)
    assert again == cases != other
