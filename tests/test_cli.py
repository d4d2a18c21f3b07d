"""The command line: what it shows, and that bad input costs one sentence and no file."""

import itertools
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import curioplan
from curioplan.cli import ABOUT_DATA, COMMANDS, build_parser, main

CALLS = [command.name for command in COMMANDS] + [f"data {command.name}" for command in ABOUT_DATA]


def run(capsys, *arguments):
    """Exit code, standard output and error of a command."""
    code = main([str(argument) for argument in arguments])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def refused(capsys, *arguments):
    """The sentence with which a command is refused."""
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert err.startswith("curioplan: ")
    assert err.count("\n") == 1
    assert err.rstrip().endswith((".", "?"))
    return err


def snapshot(folder):
    return {path: path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file()}


def walk(seed=0, episodes=4, length=20, dim=4):
    """An OGBench file's worth of states, actions and ends."""
    rng = np.random.default_rng(seed)
    observations = rng.uniform(0, 3, (episodes * (length + 1), dim)).astype(np.float32)
    actions = rng.uniform(-1, 1, (len(observations), 2)).astype(np.float32)
    ends = np.zeros(len(observations), np.float32)
    ends[length :: length + 1] = 1
    return {"observations": observations, "actions": actions, "terminals": ends}


@pytest.fixture
def recording(tmp_path):
    path = tmp_path / "recording.npz"
    np.savez(path, **walk(episodes=40))
    return path


@pytest.fixture
def mounted(tmp_path):
    """A folder on a disk of its own, if this process may mount one."""

    def mount(*options):
        folder = tmp_path / "disk"
        folder.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", folder],
            capture_output=True,
            check=False,
        )
        return folder if done.returncode == 0 else None

    yield mount
    subprocess.run(["umount", tmp_path / "disk"], capture_output=True, check=False)


def helped(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_help_teaches(capsys):
    shown = helped(capsys)
    for name in CALLS:
        assert f"curioplan {name}" in shown
    assert "--planner.population" in helped(capsys, "explore")
    assert "--reach.planner.population" in helped(capsys, "evaluate")


@pytest.mark.parametrize("name", CALLS)
def test_help_of_every_command_shows_examples_that_it_understands(capsys, name):
    shown = helped(capsys, *name.split())
    assert re.search(rf"examples?:\n  curioplan {name}\b", shown)
    examples = re.split(r"\nexamples?:\n", shown)[1].strip().splitlines()
    for example in examples:
        words = shlex.split(re.sub(r"\s{2,}\(.*\)$", "", example.strip()))
        assert words[0] == "curioplan"
        if words[-1] == "--help":
            helped(capsys, *words[1:-1])
        else:
            assert build_parser(words[1:]).parse(words[1:]).run


def test_envs_lists_all_six(capsys):
    code, out, _ = run(capsys, "envs")
    assert code == 0
    for name in ("maze_umaze", "maze_medium", "maze_large", "pinpad", "fetch_push", "kitchen"):
        assert name in out


def test_check_env_says_yes_or_what_is_missing(capsys):
    code, out, _ = run(capsys, "check-env", "maze_umaze")
    assert code == 0
    assert "maze_umaze can be used." in out
    code, out, err = run(capsys, "check-env", "CartPole-v1")
    assert code == 2
    assert "MISSING" in out
    assert err == "curioplan: CartPole-v1 cannot be used yet: 3 things are missing.\n"


def test_config_shows_every_preset_side_by_side(capsys):
    code, out, _ = run(capsys, "config", "explore")
    assert code == 0
    row = next(line for line in out.splitlines() if "planner.population " in line)
    assert row.split()[1] == "400"
    code, out, _ = run(capsys, "config", "explore", "--env", "pinpad")
    row = next(line for line in out.splitlines() if " horizon " in line)
    assert row.split()[1:4] == ["0", "50", "0"]


def test_inspect_shows_counts_and_draws_the_coverage(capsys, recording, tmp_path):
    figure = tmp_path / "coverage.png"
    code, out, _ = run(capsys, "data", "inspect", recording, "--env", "maze_large", "--figure", figure)
    assert code == 0
    assert "800" in out
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_convert_goes_from_format_to_format_without_loss(capsys, recording, tmp_path):
    chain = [recording, tmp_path / "minari", tmp_path / "d4rl.hdf5", tmp_path / "again.npz"]
    for source, target in itertools.pairwise(chain):
        code, out, _ = run(capsys, "data", "convert", source, target, "--env", "maze_large")
        assert code == 0
        assert "800 transitions in 40 episodes" in out
    first, last = (
        curioplan.load_data(path, curioplan.make_task("maze_large")) for path in (chain[0], chain[-1])
    )
    for a, b in zip(first, last, strict=True):
        np.testing.assert_array_equal(a.observations, b.observations)
        np.testing.assert_array_equal(a.actions, b.actions)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "required"),
        (["explor"], "did you mean explore?"),
        (["envs", "--frobnicate"], "has no option --frobnicate"),
        (["check-env"], "required"),
        (["check-env", "maze_lage"], "did you mean maze_large?"),
        (["check-env", "no_module:make"], "could not be imported"),
        (["data", "inspect", "nowhere/at/all.npz"], "does not exist"),
        (["data", "inspect", "."], "not a Minari dataset"),
        (["data", "inspect", "walk.npz", "--figure", "coverage.png"], "name it with --env"),
        (["explore", "maze_lage", "--out", "x"], "did you mean maze_large?"),
        (["explore", "maze_umaze", "--out", "x", "--planner.populaton", "3"], "--planner.population?"),
        (["explore", "maze_umaze", "--out", "x", "--preset", "fast"], "cannot be fast"),
        (["explore", "maze_umaze", "--out", "x", "--steps", "0"], "steps must be at least 1"),
        (["explore", "maze_umaze", "--out", "/proc/nothing/here"], "Cannot write"),
        (["evaluate"], "required"),
        (["evaluate", "nowhere"], "There is no run folder nowhere"),
        (["evaluate", "nowhere", "--seeds", "0"], "seeds must be at least 1"),
        (["evaluate", "nowhere", "--contoller", "mbp"], "did you mean --controller?"),
    ],
)
def test_bad_calls_cost_one_sentence_and_write_nothing(capsys, tmp_path, monkeypatch, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    assert sentence in refused(capsys, *arguments)
    assert snapshot(tmp_path) == {}


def bad_files():
    good = walk()
    nan, infinite = (dict(walk(), observations=walk()["observations"].copy()) for _ in range(2))
    nan["observations"][7, 1] = np.nan
    infinite["observations"][7, 1] = np.inf
    yield "nan", nan, "nan"
    yield "infinite", infinite, "inf"
    yield "wrong width", walk(dim=5), "5"
    yield "empty", {key: value[:0] for key, value in good.items()}, ""
    yield "one state", {key: value[:1] for key, value in good.items()}, ""
    yield "no actions", {"observations": good["observations"], "terminals": good["terminals"]}, "actions"
    yield "lengths differ", dict(good, actions=good["actions"][:-3]), ""
    yield "text", dict(good, observations=good["observations"].astype(str)), ""
    yield "flat", dict(good, observations=good["observations"].ravel()), ""
    yield "far actions", dict(good, actions=good["actions"] * 50), "action"


@pytest.mark.parametrize(
    ("content", "word"), [case[1:] for case in bad_files()], ids=[c[0] for c in bad_files()]
)
@pytest.mark.parametrize("suffix", [".npz", ".hdf5"])
def test_bad_datasets_are_refused_and_nothing_is_overwritten(capsys, tmp_path, content, word, suffix):
    path, target = tmp_path / f"bad{suffix}", tmp_path / "target.npz"
    if suffix == ".npz":
        np.savez(path, **content)
    else:
        with h5py.File(path, "w") as file:
            for key, value in content.items():
                file[key] = value.astype("S") if value.dtype.kind == "U" else value
    target.write_bytes(b"precious")
    before = snapshot(tmp_path)
    assert word in refused(capsys, "data", "inspect", path, "--env", "maze_large").lower()
    refused(capsys, "data", "convert", path, target, "--env", "maze_large", "--overwrite")
    refused(capsys, "data", "convert", path, tmp_path / "folder", "--env", "maze_large")
    assert snapshot(tmp_path) == before


def test_an_existing_target_is_refused_unless_told_otherwise(capsys, recording, tmp_path):
    target = tmp_path / "target.npz"
    target.write_bytes(b"precious")
    assert "exists" in refused(capsys, "data", "convert", recording, target, "--env", "maze_large")
    assert target.read_bytes() == b"precious"
    assert run(capsys, "data", "convert", recording, target, "--env", "maze_large", "--overwrite")[0] == 0
    assert target.read_bytes() != b"precious"


def test_a_folder_that_is_no_dataset_is_never_replaced(capsys, recording, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("all of it")
    before = snapshot(tmp_path)
    refused(capsys, "data", "convert", recording, tmp_path / "thesis", "--env", "maze_large", "--overwrite")
    assert snapshot(tmp_path) == before


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_cut_and_changed_files_load_or_cost_one_sentence(capsys, tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("fuzz")
    source = folder / "good.npz"
    np.savez(source, **walk(episodes=2, length=5))
    kind = data.draw(st.sampled_from(["good.npz", "copy.hdf5", "minari"]))
    if kind != "good.npz":
        assert run(capsys, "data", "convert", source, folder / kind, "--env", "maze_large")[0] == 0
    victim = data.draw(st.sampled_from(sorted(snapshot(folder / kind)) or [folder / kind]))
    content = bytearray(victim.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    victim.write_bytes(content)
    before = snapshot(folder)
    code, _, err = run(capsys, "data", "inspect", folder / kind, "--env", "maze_large")
    assert code in (0, 2)
    if code == 2:
        assert err.startswith("curioplan: ")
        assert err.count("\n") == 1
    assert snapshot(folder) == before


def limit_file_size():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))


def assert_one_sentence(done):
    assert done.returncode == 2, done.stderr
    lines = done.stderr.decode().replace("\r", "\n").strip().splitlines()
    assert lines[-1].startswith("curioplan: ")
    assert "Traceback" not in done.stderr.decode()


def command(*arguments, **keywords):
    script = "import sys; from curioplan.cli import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)], capture_output=True, check=False, **keywords
    )


@pytest.mark.parametrize("target", ["target.npz", "target.hdf5", "target"])
def test_a_quota_that_is_used_up_leaves_everything_as_it_was(recording, tmp_path, target):
    assert command("data", "convert", recording, tmp_path / target, "--env", "maze_large").returncode == 0
    before = snapshot(tmp_path)
    arguments = ("data", "convert", recording, tmp_path / target, "--env", "maze_large", "--overwrite")
    assert_one_sentence(command(*arguments, preexec_fn=limit_file_size))
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("target", ["target.npz", "target.hdf5", "target"])
def test_a_full_disk_leaves_everything_as_it_was(recording, mounted, target):
    disk = mounted("size=40k")
    if disk is None:
        pytest.skip("left out: mounting a small disk needs root; the quota test covers the same ground")
    (disk / "filler").write_bytes(bytes(36_000))
    before = snapshot(disk)
    assert_one_sentence(command("data", "convert", recording, disk / target, "--env", "maze_large"))
    assert_one_sentence(command("explore", "maze_umaze", "--out", disk / "run", "--preset", "smoke"))
    assert {path: content for path, content in snapshot(disk).items() if path in before} == before
    assert not (disk / target).exists()


def test_a_read_only_folder_gives_one_sentence(capsys, recording, mounted, tmp_path):
    folder = mounted("size=100k,ro")
    if folder is None:  # not root, so permissions hold
        folder = tmp_path / "locked"
        folder.mkdir(mode=0o555)
    for target in ("target.npz", "target.hdf5", "target"):
        refused(capsys, "data", "convert", recording, folder / target, "--env", "maze_large")
    refused(capsys, "data", "inspect", recording, "--env", "maze_large", "--figure", folder / "figure.png")
    refused(capsys, "explore", "maze_umaze", "--out", folder / "run", "--preset", "smoke")
    assert list(folder.iterdir()) == []


def test_a_closed_pipe_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    script = "import sys; from curioplan.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", script, "config"], stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)
    assert done.returncode == 0
    assert done.stderr == b""
