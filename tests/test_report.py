"""The report of a run: what is on it, that nothing is asked from elsewhere, and how it looks in a browser."""

import re
import shlex
from dataclasses import asdict, replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

import curioplan
from browser import browser, find_browser
from curioplan.analysis.report import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Page
from curioplan.cli import build_parser, main
from curioplan.config import DiagnoseConfig, EvaluateConfig, ExploreConfig
from curioplan.errors import RunError
from curioplan.options import read_config
from curioplan.presets import preset
from curioplan.stages.diagnose import diagnose
from curioplan.stages.evaluate import run_evaluation
from curioplan.stages.film import film
from curioplan.stages.report import report
from curioplan.storage import read_json, write_json
from curioplan.values import learner_config

KEPT = Path(__file__).parent.parent / "artefacts" / "report"
PARTS = (
    "What was run",
    "Exploration",
    "Values",
    "Success",
    "Landscapes and graphs",
    "Diagnosis",
    "Videos",
    "To repeat it",
)


class Reader(HTMLParser):
    """All tags with their attributes, and the text by tag."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.texts = [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append((self.tags[-1][0] if self.tags else "", data))

    def all(self, name):
        return [attributes for tag, attributes in self.tags if tag == name]


@pytest.fixture(scope="module")
def whole(trained, tmp_path_factory):
    """A run with everything, and its report."""
    run = tmp_path_factory.mktemp("reported") / "my run & more"
    run.mkdir()
    (run / "run.json").write_bytes((trained / "run.json").read_bytes())
    for part in ("explore", "values"):
        (run / part).symlink_to(trained / part)
    for controller in ("actor", "mbp+graph"):
        config = replace(preset("smoke", EvaluateConfig), controller=controller)
        folder = run_evaluation(run, config, progress=False)
    film(run, folder.name, "(1, 3)")
    diagnose(run, preset("smoke", DiagnoseConfig))
    report(run)
    return run


def test_everything_there_is_has_its_part(whole):
    read = Reader((whole / "report.html").read_text())
    headings = [text for tag, text in read.texts if tag == "h2" and text.strip()]
    assert tuple(headings) == PARTS
    text = " ".join(text for _, text in read.texts)
    for name in (
        "actor-td3-0",
        "mbp-graph-td3-0",
        "maze_umaze",
        "90 % interval",
        "T-local optima",
        "td error",
    ):
        assert name in text
    assert len(read.all("img")) >= 9
    assert len(read.all("video")) == 1 or "image/gif" in (whole / "report.html").read_text()


def test_optima_that_a_diagnosis_found_are_marked_on_the_landscape(whole):
    crosses = "crosses: T-local optima too deep to escape"
    path = whole / "diagnosis" / "td3-0" / "diagnosis.json"
    content, found = path.read_bytes(), read_json(path)
    try:
        for traps in ([], [0, 20]):
            for episode in found["trajectories"]["episodes"]:
                episode["traps"] = traps
            write_json(path, found)
            page = report(whole, whole / "trapped.html").read_text()
            assert page.count(crosses) == 2 * 2 * bool(traps)  # in the caption and for who cannot see it
    finally:
        path.write_bytes(content)


def test_pictures_and_videos_lie_within_the_page_and_have_words_for_who_cannot_see_them(whole):
    read = Reader((whole / "report.html").read_text())
    assert all(image["alt"].strip() for image in read.all("img"))
    assert all(image["aria-label"].strip() for image in [*read.all("video"), *read.all("svg")])
    sources = [attributes[key] for _, attributes in read.tags for key in ("src", "href") if key in attributes]
    assert all(source.startswith(("data:", "#")) for source in sources)
    assert not read.all("script")


def test_a_run_with_only_an_exploration_gets_a_report_of_that(trained, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_bytes((trained / "run.json").read_bytes())
    (run / "explore").symlink_to(trained / "explore")
    path = report(run, tmp_path / "page.html")
    assert path == tmp_path / "page.html"
    headings = [text for tag, text in Reader(path.read_text()).texts if tag == "h2" and text.strip()]
    assert headings == ["What was run", "Exploration", "To repeat it"]


def test_what_is_no_run_is_refused(tmp_path, capsys):
    assert main(["report", str(tmp_path / "nothing")]) == 2
    assert "There is no run folder" in capsys.readouterr().err
    with pytest.raises(RunError, match=r"no run\.json"):
        curioplan.report(tmp_path)


def test_the_command_says_where_the_page_is(trained_run, capsys):
    assert main(["report", str(trained_run)]) == 0
    assert capsys.readouterr().out == f"the report is {trained_run / 'report.html'}\n"


def commands(run):
    block = re.search(r"<code>(.*?)</code>", (run / "report.html").read_text(), re.DOTALL)[1]
    return [shlex.split(line) for line in Reader(f"<x>{block}</x>").texts[0][1].splitlines()]


def test_the_commands_repeat_every_stage_with_its_settings(whole):
    config = {}
    for words in commands(whole):
        assert words[0] == "curioplan"
        parsed = build_parser(words[1:]).parse(words[1:])
        config.setdefault(words[1], []).append(parsed)
    assert {name: len(some) for name, some in config.items()} == {
        "explore": 1,
        "train": 1,
        "evaluate": 2,
        "diagnose": 1,
        "report": 1,
    }

    def settings(folder):
        return read_json(whole / folder / "config.json")["settings"]

    (explored,), (trained,) = config["explore"], config["train"]
    assert asdict(read_config(preset(explored.preset, ExploreConfig), explored)) == settings("explore")
    learned = read_config(learner_config(trained.algo, trained.preset), trained)
    assert asdict(learned) == settings("values/td3-0")
    for parsed, name in zip(config["evaluate"], ("actor-td3-0", "mbp-graph-td3-0"), strict=True):
        found = asdict(read_config(preset(parsed.preset, EvaluateConfig), parsed))
        assert found == settings(f"evaluations/{name}")


def test_all_text_is_escaped_and_nothing_is_run():
    evil = "<script>alert('x')</script>\" onerror=\"1"
    page = Page(evil, evil)
    page.section(evil)
    page.heading(evil)
    page.text(evil)
    page.table([evil, evil], [[evil, evil]])
    page.pairs({evil: evil}, evil)
    page.commands([evil])
    page.charts({evil: {evil: [(0, 1), (1, 2)], "b": [(0, 0.5)]}}, evil)
    read = Reader(page.html())
    assert not read.all("script")
    assert not [tag for tag, attributes in read.tags if "onerror" in attributes]


def test_a_chart_leaves_out_what_is_no_number_and_says_nothing_of_nothing():
    page = Page("charts")
    page.section("losses")
    page.charts({"loss": {"": [(0, float("nan")), (1, 2.0), (2, 1.0)]}, "none": {"": []}}, "steps")
    read = Reader(page.html())
    (line,) = read.all("polyline")
    assert len(line["points"].split()) == 2
    assert "nan" not in page.html()


@pytest.mark.parametrize("points", [[(5, 3.0)], [(5, 3.0), (9, 3.0)], [(0, -1e-9), (1, 1e12)], [(0, 0.0)]])
def test_whatever_a_chart_shows_lies_within_it(points):
    page = Page("charts")
    page.section("losses")
    page.charts({"loss": {"": points}}, "steps")
    (line,) = Reader(page.html()).all("polyline")
    for point in line["points"].split():
        x, y = map(float, point.split(","))
        assert LEFT <= x <= WIDTH - RIGHT
        assert TOP <= y <= HEIGHT - BOTTOM


def test_videos_that_are_too_large_are_only_named(whole, monkeypatch):
    monkeypatch.setattr("curioplan.stages.report.LARGEST_VIDEO", 10)
    page = report(whole, whole / "small.html").read_text()
    assert "too large to be shown here" in page
    assert "<video" not in page


LAYOUT = """(() => {
  const images = [...document.images];
  return {
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    loaded: images.every(image => image.complete && image.naturalWidth > 0),
    named: images.every(image => image.alt.trim()),
    wide: images.filter(image => image.getBoundingClientRect().right > innerWidth).length,
    page: getComputedStyle(document.body).backgroundColor,
    ink: getComputedStyle(document.body).color,
  };
})()"""


def test_in_a_browser_it_fits_desktop_and_phone_light_and_dark_and_complains_of_nothing(whole, tmp_path):
    find_browser()
    address, looks = (whole / "report.html").as_uri(), {}
    with browser(tmp_path / "profile") as page:
        for width, scheme in ((1280, "light"), (390, "light"), (1280, "dark"), (390, "dark")):
            page.open(address, width, scheme=scheme)
            found = page.ask(LAYOUT)
            page.screenshot(KEPT / f"{width}-{scheme}.png")
            assert found["overflow"] <= 0, f"at {width} pixels"
            assert found["wide"] == 0
            assert found["loaded"]
            assert found["named"]
            assert page.complaints() == []
            assert page.requests() == [address]
            looks[scheme] = found["page"], found["ink"]
    assert looks["light"] != looks["dark"]
