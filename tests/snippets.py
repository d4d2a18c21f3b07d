"""Snippets of Markdown pages, run as a reader would: in order, in one folder."""

import re
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

from curioplan.cli import build_parser, main

FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', re.DOTALL | re.MULTILINE)
PLACEHOLDER = re.compile(r"(?<![-\w./$])[A-Z]+\b")


class Snippet(NamedTuple):
    """A fenced block; what has a title is the file of that name."""

    kind: str
    title: str
    text: str


def snippets(page):
    return [Snippet(*found) for found in FENCE.findall(page.read_text())]


def run_snippets(page, capsys, done=()):
    """Run all of a page in the current folder: write files, execute Python, call commands; how many ran.

    Each Python snippet stands for itself. Blocks of text are illustrations: their commands are only parsed.
    So are the commands that have been run already.
    """
    return sum(_run(snippet, page, capsys, done) for snippet in snippets(page))


def _run(snippet, page, capsys, done):
    if snippet.title:
        path = Path(snippet.title)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(snippet.text)
        return 0
    if snippet.kind == "python":
        exec(compile(snippet.text, page.name, "exec"), {"__name__": "__main__"})  # the snippets are our own
        return 1
    calls = list(commands(snippet))
    for words in calls:
        if snippet.kind == "sh" and words not in done:
            assert main(words) == 0, f"{page.name}: {shlex.join(words)}: {capsys.readouterr().err}"
        else:
            build_parser(words).parse(words)
    return len(calls) if snippet.kind == "sh" else 0


def commands(snippet):
    """The arguments of every call of curioplan in a snippet of shell or text, placeholders aside."""
    if snippet.kind in ("sh", "text"):
        for line in snippet.text.splitlines():
            words = shlex.split(line, comments=True)
            if "curioplan" in words and not (snippet.kind == "text" and PLACEHOLDER.search(line)):
                yield words[words.index("curioplan") + 1 :]


def forget_modules(folder):
    """Drop the modules that were imported from a folder."""
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(f"{folder}/"):
            del sys.modules[name]
