"""Imports point one way."""

import ast
from pathlib import Path

import pytest

import curioplan

ROOT = Path(curioplan.__file__).parent
RANKS = {
    "errors": 0,
    "devices": 1,
    "seeding": 0,
    "options": 1,
    "config": 2,
    "storage": 2,
    "metrics": 2,
    "envs": 2,
    "presets": 3,
    "runs": 3,
    "data": 3,
    "models": 4,
    "planning": 5,
    "values": 5,
    "graph": 6,
    "analysis": 7,
    "stages": 8,
    "studies": 9,
    "web": 9,
    "cli": 10,
    "__main__": 11,
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
