"""Every snippet of the README runs, in order, in one folder."""

import re
from pathlib import Path

import pytest

from snippets import run_snippets

README = Path(__file__).parent.parent / "README.md"


def test_every_snippet_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run_snippets(README, capsys) >= 9


@pytest.mark.parametrize("target", re.findall(r"^make (\w+)", README.read_text(), re.MULTILINE))
def test_make_targets_exist(target):
    makefile = (README.parent / "Makefile").read_text()
    assert re.search(rf"^{target}:", makefile, re.MULTILINE)
