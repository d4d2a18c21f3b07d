"""What users install: an sdist, the wheel made of it, and the command outside the repository."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "src")


def call(*words, **keywords):
    """Run a command to its end, without anything that leads back to the repository."""
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, check=False, env=env, **keywords
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def build(source, hook, out):
    """What a build front end does, with the setuptools that is installed: no network."""
    out.mkdir(exist_ok=True)
    script = f"import sys; from setuptools import build_meta; build_meta.{hook}(sys.argv[1])"
    call(sys.executable, "-c", script, out, cwd=source)
    [made] = out.iterdir()
    return made


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """An sdist, and a wheel built from what is in it."""
    folder = tmp_path_factory.mktemp("built")
    source = folder / "source"
    source.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
            )
        else:
            shutil.copy(ROOT / name, source / name)
    sdist = build(source, "build_sdist", folder / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    [unpacked] = (folder / "unpacked").iterdir()
    return sdist, build(unpacked, "build_wheel", folder / "wheel")


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """An environment with the wheel, which sees the dependencies of this one but not its curioplan."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    call(sys.executable, "-m", "venv", "--without-pip", folder)
    [packages] = folder.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
    call(*pip, "install", "--quiet", "--no-deps", "--no-index", "--ignore-installed", built[1])
    return folder


def test_sdist_and_wheel_hold_every_module_and_the_playground(built):
    sdist, wheel = built
    package = ROOT / "src" / "curioplan"
    wanted = {
        path.relative_to(package.parent).as_posix()
        for path in package.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert "curioplan/web/static/app.js" in wanted
    with zipfile.ZipFile(wheel) as archive:
        assert wanted <= set(archive.namelist())
        assert not [name for name in archive.namelist() if name.startswith(("tests", "examples"))]
    with tarfile.open(sdist) as archive:
        names = {name.partition("/src/")[2] for name in archive.getnames()}
    assert wanted <= names


def test_the_installed_command_runs_outside_the_repository(installed, tmp_path):
    where = call(
        installed / "bin" / "python",
        "-c",
        "import importlib.util; print(importlib.util.find_spec('curioplan').origin)",
        cwd=tmp_path,
    )
    assert Path(where.strip()).is_relative_to(installed)
    shown = call(
        installed / "bin" / "curioplan",
        "run",
        "maze_umaze",
        "--preset",
        "smoke",
        "--steps",
        "620",
        cwd=tmp_path,
    )
    assert "mbp+graph" in shown
    assert (tmp_path / "runs" / "maze_umaze" / "report.html").stat().st_size > 10_000
