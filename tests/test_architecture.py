"""Imports point one way."""

import ast
from pathlib import Path

import pytest

import curioplan

ROOT = Path(curioplan.__file__).parent
RANKS = {
    "errors": 0,
    "seeding": 0,
    "config": 1,
    "storage": 1,
    "metrics": 1,
    "envs": 1,
    "options": 2,
    "runs": 2,
    "data": 2,
    "models": 3,
    "planning": 4,
    "values": 4,
    "graph": 5,
    "analysis": 6,
    "stages": 7,
    "studies": 8,
    "web": 8,
    "cli": 9,
}
FILES = [path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py"]


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where a name comes from"
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_imports_upwards(path):
    own = path.relative_to(ROOT).parts[0].removesuffix(".py")
    for module in imported(path):
        parts = module.split(".")
        if parts[0] == "curioplan" and len(parts) > 1 and parts[1] != own:
            assert RANKS[parts[1]] < RANKS[own], f"{own} imports {parts[1]}"
