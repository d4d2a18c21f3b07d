"""The world behind a page of the playground: goals, clocks, pushes, pictures, and nonsense survived."""

import base64
import contextlib
import io
import json
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from curioplan.config import ReachConfig
from curioplan.envs import make_task
from curioplan.errors import CurioplanError, RunError
from curioplan.presets import preset
from curioplan.web.messages import FIELDS, LARGEST, MessageError, read_message
from curioplan.web.playground import Playground
from curioplan.web.session import PUSH_STEPS, Session
from scripted import Guide, Idle

SMOKE = preset("smoke", ReachConfig)


@pytest.fixture(scope="module")
def playground(trained):
    return Playground.open(trained, SMOKE)


@pytest.fixture
def session(playground):
    made = Session(playground)
    yield made
    made.close()


@pytest.fixture
def idle(monkeypatch):
    """Sessions in any environment, of an agent that does nothing."""

    def make(name):
        task = make_task(name)
        monkeypatch.setattr("curioplan.web.session.make_controller", lambda *_: Idle(task))
        return Session(Playground(SimpleNamespace(task=task, values=lambda: None), ("actor",)))

    return make


def ask(session, kind, **fields):
    """What a session says to a message."""
    return session.handle(json.dumps({"type": kind, **fields}))


def state(said):
    return next(message for message in said if isinstance(message, dict) and message["type"] == "state")


def of_type(said, kind):
    return [message for message in said if isinstance(message, dict) and message["type"] == kind]


def refusal(said):
    (error,) = of_type(said, "error")
    return error["text"]


def test_a_page_learns_the_map_the_goals_and_the_controllers(session):
    welcome, now = session.hello()
    assert welcome["controllers"] == ["mbp+graph", "mbp", "actor"]
    assert len(welcome["map"]["free"]) == 5
    assert welcome["map"]["goal_is_place"]
    assert [case["goal"] for case in welcome["cases"]] == [[1, 3], [3, 3], [3, 1]]
    assert now["phase"] == "idle"
    assert session.advance() == [], "without a goal no time passes"


def test_an_agent_that_knows_the_way_goes_where_it_is_clicked_and_stops_there(playground, monkeypatch):
    goal = (2.8, 0.8)
    monkeypatch.setattr("curioplan.web.session.make_controller", lambda *_: Guide(playground.parts.task))
    session = Session(playground)
    assert state(ask(session, "click", at=list(goal)))["phase"] == "going"
    while session.running:
        now = state(session.advance())
    assert now["phase"] == "reached"
    assert np.linalg.norm(np.array(now["achieved"]) - goal) < 0.5
    assert now["rate"] > 0
    assert session.advance() == []


def test_a_goal_that_is_met_already_is_reached_at_once(session):
    here = state(session.hello())["achieved"]
    assert state(ask(session, "goal", goal=here))["phase"] == "reached"


def test_the_same_seed_lives_the_same_life(playground):
    lives = []
    for _ in range(2):
        session = Session(playground, seed=3)
        ask(session, "goal", goal=[2.8, 0.8])
        lives.append([state(session.advance())["observation"] for _ in range(6)])
    assert lives[0] == lives[1]


def test_time_stands_still_when_paused_and_goes_on_step_by_step(session):
    ask(session, "goal", goal=[2.8, 0.8])
    assert state(ask(session, "pause"))["paused"]
    assert session.advance() == []
    assert state(ask(session, "step"))["steps"] == 1
    assert state(ask(session, "step"))["steps"] == 2
    ask(session, "play")
    assert state(session.advance())["steps"] == 3


def test_an_episode_that_takes_too_long_stops_and_may_go_on(session):
    ask(session, "controller", name="actor")
    ask(session, "goal", goal=[2.8, 0.8])
    session.steps = session.task.episode_length - 1
    assert state(session.advance())["phase"] == "late"
    assert state(ask(session, "play"))["phase"] == "going"


def test_a_push_moves_the_agent_that_way_and_it_sets_out_again(session):
    ask(session, "controller", name="actor")
    here = state(session.hello())["observation"]
    assert state(ask(session, "goal", goal=here[:2]))["phase"] == "reached"
    assert state(ask(session, "push", by=[0, 1]))["phase"] == "going"
    for _ in range(PUSH_STEPS):
        now = state(session.advance())
    assert now["observation"][1] > here[1]
    assert now["observation"][3] > 1, "it has been given speed to the right"
    assert now["phase"] == "going", "what was pushed out of the goal must find back first"


def test_an_agent_without_a_goal_can_be_pushed_too(session):
    before = state(session.hello())["observation"][1]
    ask(session, "push", by=[0, 1])
    while session.running:
        now = state(session.advance())
    assert now["observation"][1] > before


def test_the_agent_can_be_put_elsewhere_but_not_into_a_wall(session):
    ask(session, "goal", goal=[2.8, 0.8])
    session.advance()
    now = state(ask(session, "move", to=[0.8, 2.8]))
    assert now["observation"][:2] == [0.8, 2.8]
    assert (now["phase"], now["steps"]) == ("going", 0)
    assert "free floor" in refusal(ask(session, "move", to=[1.8, 0.8]))


def test_reset_starts_anew_towards_the_same_goal(session):
    ask(session, "goal", goal=[2.8, 0.8])
    ask(session, "move", to=[0.8, 2.8])
    now = state(ask(session, "reset"))
    assert now["goal"] == [2.8, 0.8]
    assert now["phase"] == "going"
    assert np.abs(np.array(now["observation"][:2]) - 1).max() <= 0.11


def test_plans_are_shown_on_demand_from_where_the_agent_is(session):
    ask(session, "controller", name="mbp")
    ask(session, "goal", goal=[2.8, 0.8])
    before = np.array(state(session.hello())["observation"][:2])
    plans = np.array(state(session.advance())["plans"])
    assert plans.shape[1:] == (session.task.reach_horizon + 1, 2)
    assert np.allclose(plans[:, 0], before, atol=1e-3)
    ask(session, "show", landscape="none", graph=False, plans=False)
    assert state(session.advance())["plans"] == []


@pytest.mark.parametrize("controller", ["mbp+graph", "actor"])
def test_landscapes_and_the_graph_are_drawn_for_any_controller(session, controller):
    ask(session, "controller", name=controller)
    ask(session, "goal", goal=[2.8, 0.8])
    for kind in ("values", "aggregated"):
        said = ask(session, "show", landscape=kind, graph=True, plans=True)
        (landscape,), (graph,) = of_type(said, "landscape"), of_type(said, "graph")
        image = Image.open(io.BytesIO(base64.b64decode(landscape["png"])))
        assert image.width == image.height >= 25
        assert 0 <= landscape["nearest"] < landscape["farthest"]
        assert len(graph["vertices"]) == 50
        assert len(graph["edges"]) == graph["within"]
        assert all(0 <= vertex < 50 for edge in [*graph["edges"], graph["path"]] for vertex in edge)
        assert of_type(session.advance(), "landscape") == [], "nothing is drawn twice"
    (other,) = of_type(ask(session, "goal", goal=[0.8, 2.8]), "landscape")
    assert other["png"] != landscape["png"]


def test_zones_are_clicked_in_the_order_in_which_they_are_to_be_visited(idle):
    session = idle("pinpad")
    for at, goal in (((0.8, 2.8), [3, 4, 2]), ((2.8, 2.8), [4, 2, 3]), ((2.8, 2.8), [4, 2, 3])):
        assert state(ask(session, "click", at=list(at)))["goal"] == goal
    assert "zones 1, 2, 3, 4" in refusal(ask(session, "click", at=[1.8, 1.8]))
    assert state(ask(session, "case", name="1-4-1"))["goal"] == [1, 4, 1]


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ("", "valid JSON"),
        ("[" * 4000, "valid JSON"),
        ("{}", 'with a "type"'),
        (b"\0", "not bytes"),
        (" " * (LARGEST + 1), "at most"),
        ('{"type": "gaol"}', "did you mean goal"),
        ('{"type": "__init__"}', "There is no message"),
        ('{"type": "play", "now": 1}', "no other field"),
        ('{"type": "goal", "goal": [1, NaN]}', "within"),
        ('{"type": "goal", "goal": [1, 1e400]}', "within"),
        ('{"type": "goal", "goal": [true, 1]}', "within"),
        ('{"type": "goal", "goal": [1]}', "2 numbers, not 1"),
        ('{"type": "goal", "goal": [-5, 1]}', "There is a wall"),
        ('{"type": "goal", "goal": [1e6, -1e6]}', "There is a wall"),
        ('{"type": "case", "name": "nowhere"}', "There is no case"),
        ('{"type": "controller", "name": "mbp+sparse"}', "There is no controller"),
        ('{"type": "pace", "rate": 10000000}', "one of 5, 10"),
        ('{"type": "pace", "rate": true}', "one of 5, 10"),
        ('{"type": "step"}', "Choose a goal first"),
    ],
)
def test_nonsense_is_answered_with_a_sentence_and_changes_nothing(session, message, sentence):
    before = state(session.hello()) | {"answered": 0, "paused": False}
    said = session.handle(message)
    assert sentence in refusal(said)
    assert state(said) | {"answered": 0, "paused": False} == before


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
POINT = st.lists(st.floats(-1, 4), min_size=1, max_size=3)
VALUE = JSON | POINT | st.booleans() | st.sampled_from(["actor", "mbp", "none", "values", "(1, 3)", 25])
MESSAGE = st.one_of(
    st.text(max_size=100),
    st.binary(max_size=20),
    JSON.map(json.dumps),
    st.sampled_from(list(FIELDS)).flatmap(
        lambda kind: st.fixed_dictionaries(dict.fromkeys(FIELDS[kind], VALUE)).map(
            lambda fields: json.dumps({"type": kind, **fields})
        )
    ),
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(messages=st.lists(MESSAGE, max_size=5))
def test_no_messages_break_a_session(playground, messages):
    session = Session(playground)
    for number, message in enumerate(messages, start=1):
        said = [*session.handle(message), *session.advance()]
        assert state(said)["answered"] == number
        json.dumps([entry for entry in said if isinstance(entry, dict)], allow_nan=False)
    session.close()


@given(text=st.text(max_size=200) | st.binary(max_size=50))
def test_any_text_is_read_or_refused(text):
    with contextlib.suppress(MessageError):
        kind, fields = read_message(text)
        assert fields.keys() == FIELDS[kind].keys()


def test_an_environment_that_fails_stops_the_clock_and_is_named(session, monkeypatch, caplog):
    ask(session, "goal", goal=[2.8, 0.8])
    monkeypatch.setattr(session, "env", type("Broken", (), {"step": lambda *_: 1 / 0})())
    assert "division by zero" in refusal(session.advance())
    assert not session.running
    assert "stumbled" in caplog.text


def test_a_run_without_a_model_is_played_by_its_policy(trained_run):
    (trained_run / "explore").unlink()
    playground = Playground.open(trained_run, SMOKE)
    session = Session(playground)
    assert session.hello()[0]["controllers"] == ["actor"]
    assert "no model" in refusal(ask(session, "show", landscape="none", graph=True, plans=True))
    with pytest.raises(RunError, match="model"):
        Playground.open(trained_run, SMOKE, model="other")


def test_a_run_without_values_is_refused(tmp_path):
    with pytest.raises(CurioplanError):
        Playground.open(tmp_path, preset("smoke", ReachConfig))


def test_where_there_is_no_map_cases_are_begun_and_frames_rendered(graphics, idle):
    session = idle("fetch_push")
    welcome, _, frame = session.hello()
    assert welcome["map"] is None
    assert Image.open(io.BytesIO(frame)).format == "JPEG"
    said = ask(session, "case", name=session.task.cases[5].name)
    assert np.allclose(state(said)["goal"], session.task.cases[5].goal)
    assert state(session.advance())["steps"] == 1
    goal = [1.3, 0.7, 0.42]
    assert state(ask(session, "goal", goal=goal))["goal"] == goal
    assert "no map" in refusal(ask(session, "click", at=[1, 1]))
    assert "no map" in refusal(ask(session, "show", landscape="values", graph=False, plans=True))
    ask(session, "push", by=[1, 0])
    assert state(session.advance())["pushed"]
    session.close()
