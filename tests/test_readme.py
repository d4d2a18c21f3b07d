"""Every snippet of the README runs, in order, in one folder."""

import re
import shlex
from pathlib import Path

import pytest

from curioplan.cli import main

README = Path(__file__).parent.parent / "README.md"
SNIPPETS = re.findall(r"```(sh|python)\n(.*?)```", README.read_text(), re.DOTALL)


def test_every_snippet_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    ran = 0
    for kind, text in SNIPPETS:
        if kind == "python":
            exec(compile(text, "README.md", "exec"), {})  # the snippets are our own
            ran += 1
            continue
        for line in text.splitlines():
            words = shlex.split(line, comments=True)
            if words and words[0] == "curioplan":
                assert main(words[1:]) == 0, f"{line}: {capsys.readouterr().err}"
                ran += 1
    assert ran >= 9


@pytest.mark.parametrize("target", re.findall(r"^make (\w+)", README.read_text(), re.MULTILINE))
def test_make_targets_exist(target):
    makefile = (README.parent / "Makefile").read_text()
    assert re.search(rf"^{target}:", makefile, re.MULTILINE)
