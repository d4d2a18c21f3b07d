"""The documentation builds without a warning, its links resolve, and its snippets run."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import filelock
import pytest

import curioplan
import curioplan.values
from curioplan.cli import main
from curioplan.config import ExploreConfig, LearnConfig
from curioplan.presets import PRESETS
from curioplan.values import LEARNERS, learner_class
from snippets import forget_modules, run_snippets, snippets

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
WITH_SNIPPETS = [page for page in PAGES if snippets(page)]
RUN = ["run", "maze_umaze", "--out", "runs/maze", "--preset", "smoke", "--steps", "900"]
"""What the tutorials have done once they are through: every stage of a small run."""


def name(page):
    return str(page.relative_to(DOCS))


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """The run of the tutorials, made once however many processes test."""
    root = tmp_path_factory.getbasetemp()
    folder = (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / "docs"
    before = Path.cwd()
    with filelock.FileLock(f"{folder}.lock"):
        if not folder.exists():
            folder.mkdir()
            os.chdir(folder)
            try:
                assert main(RUN) == 0
            finally:
                os.chdir(before)
    return folder


@pytest.fixture
def reader(finished, tmp_path, monkeypatch):
    """In a folder with a run in it, and able to import what is written there."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    yield tmp_path
    forget_modules(tmp_path)


@pytest.mark.parametrize("page", WITH_SNIPPETS, ids=name)
def test_snippets_run(page, reader, capsys, monkeypatch):
    if page.stem == "learner":  # is written into the sources, with a line in the registry
        sources = str(reader / "src/curioplan/values")
        monkeypatch.setattr(curioplan.values, "__path__", [*curioplan.values.__path__, sources])
        monkeypatch.setitem(LEARNERS, "gcbc", "GCBC")
    run_snippets(page, capsys, done=[RUN])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built in strict mode: warnings, dead links and dead anchors are errors."""
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return folder


def test_site_has_every_page_and_loads_nothing_from_elsewhere(site):
    for page in PAGES:
        html = (site / page.relative_to(DOCS)).with_suffix(".html").read_text()
        loaded = re.findall(r'<(?:script|img|iframe|source)\b[^>]*\bsrc="?([^"\s>]+)', html)
        loaded += re.findall(r'<link\b[^>]*\brel="?(?!canonical|prev|next)[^>]*\bhref="?([^"\s>]+)', html)
        assert loaded
        assert not [address for address in loaded if re.match(r"(\w+:)?//", address)], name(page)


def test_links_within_the_site_resolve(site):
    pages = {path: path.read_text() for path in site.rglob("*.html") if path.name != "404.html"}
    anchors = {path: set(re.findall(r'\bid="?([^"\s>]+)', html)) for path, html in pages.items()}
    for path, html in pages.items():
        for link in re.findall(r'<a\b[^>]*\bhref="?([^"\s>]+)', html):
            target, _, anchor = link.partition("#")
            if re.match(r"(\w+:)?//|mailto:", link):
                continue
            found = (path.parent / target).resolve() if target else path
            found = found / "index.html" if found.is_dir() else found
            assert found.is_file(), f"{path.name} links to {link}"
            assert not anchor or anchor == "__toc" or anchor in anchors[found], f"{path.name} links to {link}"


def test_formulas_are_set_without_a_script(site):
    html = (site / "concepts" / "graph.html").read_text()
    assert html.count("<math") > 10
    for page in site.rglob("*.html"):
        assert not re.search(r"arithmatex\">\s*\\[(\[]", page.read_text()), page.name


def test_every_setting_of_every_learner_is_in_the_tables(site):
    html = (site / "reference" / "settings.html").read_text()
    for preset_name in PRESETS:
        assert f"<th>{preset_name}</th>" in html
    kinds = [ExploreConfig, LearnConfig, *(learner_class(algo).Config for algo in LEARNERS)]
    for kind in kinds:
        for entry in (entry for entry in fields(kind) if entry.init):
            assert f"<code>{entry.name}" in html, f"{kind.__name__} has {entry.name}"


def test_every_public_name_has_a_reference():
    text = (DOCS / "reference" / "python.md").read_text()
    headings = set(re.findall(r"heading: curioplan\.(\w+)", text))
    assert headings == set(curioplan.__all__)


def test_the_gpu_page_says_what_the_code_does():
    text = (DOCS / "howto" / "gpu.md").read_text()
    settable = any(entry.name == "device" for entry in fields(ExploreConfig))
    assert settable == ("--device" in text)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_pages_speak_of_the_project_alone(page):
    assert not re.search(r"/(home|root|work|tmp|Users)/", page.read_text())
