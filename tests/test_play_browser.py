"""The playground as a person uses it: in a real browser, against a run that was really trained."""

from dataclasses import replace

import pytest

import curioplan
from chromium import ABSENT, PROGRAM, Chromium
from curioplan.config import ExploreConfig, ReachConfig
from curioplan.presets import preset
from curioplan.web.playground import Playground
from curioplan.web.server import MOST_SESSIONS
from test_play_server import serving

pytestmark = pytest.mark.skipif(PROGRAM is None, reason=ABSENT)

# The map is shown with a quarter of a cell of wall around its 3 × 3 cells.
NEAR = ((1.25 + 0.5) / 3.5, (0.25 + 0.5) / 3.5)
WALL = (0.25, 0.5)


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A playground whose planner finds to places nearby."""
    run = tmp_path_factory.mktemp("played") / "maze"
    config = replace(preset("smoke", ExploreConfig), steps=900, warmup_steps=870)
    curioplan.explore("maze_umaze", run, config, progress=False)
    learning = replace(
        curioplan.learner_config("td3", "smoke"), updates=500, units=32, batch_size=64, threads=1
    )
    curioplan.train(run, "td3", learning, progress=False)
    with serving(Playground.open(run, preset("smoke", ReachConfig))) as found:
        yield found


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    opened = Chromium(tmp_path_factory.mktemp("browser") / "profile")
    yield opened
    opened.close()


@pytest.fixture
def page(browser, address):
    """The page, freshly opened; whatever it complains about fails the test."""
    browser.complaints.clear()
    browser.size(1200, 850)
    browser.open(address)
    browser.until_text("#status", "Where to")
    browser.until_text("#task", "maze_umaze")
    yield browser
    browser.evaluate("1")
    assert browser.complaints == []
    browser.open("about:blank")


def choose(page, value):
    page.click(f'input[value="{value}"]')


def overflow(page):
    return page.evaluate("document.documentElement.scrollWidth - innerWidth")


def test_the_agent_arrives_where_it_is_clicked(page, tmp_path):
    choose(page, "mbp")
    page.click("#world", *NEAR)
    page.until_text("#goal", r"^0\.8\d*, 1\.8")
    page.until_text("#status", r"Reached \(0\.8.* in \d+ steps", 90)
    page.until_text("#rate", r"\d Hz")
    page.screenshot(tmp_path / "arrived.png")
    assert page.text("#error") == ""


def test_an_agent_that_arrived_is_pushed_away_with_the_keyboard_and_sets_out_again(page):
    choose(page, "mbp")
    page.click("#world", *NEAR)
    page.until_text("#status", "Reached", 90)
    page.evaluate("document.getElementById('world').focus()")
    page.press("ArrowLeft")
    page.until_text("#status", "On the way|Pushed")


def test_a_goal_can_be_chosen_and_the_clock_be_held_without_a_mouse(page):
    page.evaluate("document.getElementById('play').focus()")
    page.press(" ")
    page.until_text("#play", "Play")
    page.evaluate("document.getElementById('numbers').focus()")
    page.type("2.8, 0.8")
    page.press("Enter")
    page.until_text("#goal", r"2\.8, 0\.8")
    page.until_text("#status", "Paused")
    page.evaluate("document.getElementById('step').focus()")
    page.press("Enter")
    page.until_text("#steps", "^1$")
    reached = set()
    for _ in range(20):
        page.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none" or page.evaluate("document.activeElement === document.body")
    assert {"reset", "pace", "cases", "numbers", "graph", "plans", "world"} <= reached


def test_landscapes_the_graph_and_plans_can_be_seen(page, tmp_path):
    choose(page, "mbp")
    page.click("#world", *NEAR)
    choose(page, "aggregated")
    page.until(lambda: page.evaluate("!document.getElementById('scale').hidden"))
    page.click("#graph")
    page.until_text("#about-graph", r"50 vertices, \d+ edges within the threshold of [\d.]+ steps")
    choose(page, "values")
    page.click("#plans")
    page.screenshot(tmp_path / "landscape.png")
    assert page.text("#error") == ""


def test_the_ball_can_be_dragged_and_walls_are_no_goals(page):
    page.click("#world", *WALL)
    page.until_text("#error", "There is a wall")
    here = page.evaluate("document.getElementById('achieved').textContent.split(',').map(Number)")
    start = [(here[1] + 0.2 - 0.5 + 0.25) / 3.5, (here[0] + 0.2 - 0.5 + 0.25) / 3.5]
    page.drag("#world", start, (3.0 / 3.5, 3.0 / 3.5))
    page.until_text("#achieved", r"^3\.")
    assert page.text("#error") == ""


def test_who_leaves_the_page_gives_up_its_place(page, address):
    for _ in range(MOST_SESSIONS + 1):
        page.open("about:blank")
        page.open(address)
        page.until_text("#status", "Where to")


@pytest.mark.parametrize("dark", [False, True])
def test_the_page_fits_a_phone(page, dark, tmp_path):
    page.size(360, 740, phone=True, dark=dark)
    page.click("#world", *NEAR)
    page.until_text("#goal", r"1\.8")
    assert overflow(page) <= 0
    page.screenshot(tmp_path / "phone.png")
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (colour == "rgb(20, 23, 28)") == dark
    heights = "[...document.querySelectorAll('button')].map((it) => it.getBoundingClientRect().height)"
    assert min(page.evaluate(heights)) >= 30, "fingers find all buttons"
