"""Videos: what a frame shows, that files can be played, and that every evaluation can be filmed."""

import subprocess
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from PIL import Image, ImageColor

from curioplan.analysis import video
from curioplan.analysis.video import BALL, CAPTION, PLAN, TopView, captioned, write_video
from curioplan.cli import main
from curioplan.config import EvaluateConfig
from curioplan.envs import make_task
from curioplan.errors import ConfigError, EnvError, RunError
from curioplan.presets import preset
from curioplan.stages.evaluate import load_outcomes, run_cases, run_evaluation
from curioplan.stages.film import LONGEST, film, rendered, seen_from_above
from scripted import Guide, Presser, Restless

MAZE, PINPAD = make_task("maze_umaze"), make_task("pinpad")
NO_PLANS = np.zeros((0, 0, 2), np.float32)


class Crow:
    """Values as the crow flies, counting how often they are asked for."""

    gamma = 0.99

    def __init__(self):
        self.asked = 0

    def value(self, states, goals):
        self.asked += 1
        return self.gamma ** (20 * torch.linalg.norm(states[:, :2] - goals[:, :2], dim=1))


def colour_at(view, frame, position):
    """The colour of a frame at a position of the map."""
    left, top, *_ = view._seen
    ((x, y),) = view._pixels(np.array([position]))
    return tuple(int(part) for part in frame[int((y - top) / video.SMOOTH), int((x - left) / video.SMOOTH)])


def share_of(frame, colour):
    return (frame == ImageColor.getrgb(colour)).all(-1).mean()


def states(*positions):
    path = np.zeros((len(positions), 4), np.float32)
    path[:, :2] = positions
    return path


def test_a_frame_shows_walls_goal_agent_way_and_plan():
    view = TopView(MAZE, (2.8, 2.8))
    path, plan = states((0.8, 0.8), (0.8, 1.8)), np.array([[(0.8, 1.8), (0.8, 2.8), (1.8, 2.8)]], np.float32)
    frame = view.frame(path, plan)
    assert frame.dtype == np.uint8
    assert colour_at(view, frame, (1.8, 0.8)) == ImageColor.getrgb(video.WALL)
    assert colour_at(view, frame, (2.8, 1.8)) == ImageColor.getrgb(video.FLOOR)
    assert colour_at(view, frame, (2.8, 2.8)) == ImageColor.getrgb(video.GOAL)
    assert colour_at(view, frame, (0.8, 1.72)) == ImageColor.getrgb(BALL)
    assert colour_at(view, frame, (0.8, 1.3)) == ImageColor.getrgb(video.PATH)
    assert colour_at(view, frame, (1.4, 2.8)) == ImageColor.getrgb(PLAN)
    assert share_of(view.frame(path, NO_PLANS), PLAN) == 0


def test_values_lie_under_the_agent_bright_where_the_goal_is_near():
    crow = Crow()
    view = TopView(MAZE, (2.8, 2.8), crow.value)
    frame = view.frame(states((0.8, 0.8)), NO_PLANS)
    far, nearer, near = (sum(colour_at(view, frame, place)) for place in ((0.8, 1.1), (0.8, 2.8), (2.2, 2.8)))
    assert far < nearer < near
    view.frame(states((0.8, 0.8), (0.8, 1.0)), NO_PLANS)
    assert crow.asked == 1, "the landscape of a goal is drawn once"


def test_in_the_pinpad_values_change_with_the_buttons_pressed():
    crow = Crow()
    (outcome,) = run_cases(Presser(), PINPAD, PINPAD.cases[:1])
    history = outcome.achieved_goals.round()
    assert len(list(seen_from_above(PINPAD, outcome, crow))) == len(outcome.observations)
    assert crow.asked == 1 + sum(not torch.equal(a, b) for a, b in pairwise(history)) >= 3


def test_only_what_has_a_map_is_seen_from_above():
    with pytest.raises(EnvError, match="kitchen has no map"):
        TopView(make_task("kitchen"), (0.0,) * 17)


def test_long_episodes_are_shown_in_larger_steps_up_to_their_end():
    task = make_task("maze_large")
    (outcome,) = run_cases(Restless(task), task, task.cases[:1])
    frames = list(seen_from_above(task, outcome, None))
    assert len(frames) <= LONGEST + 1
    view = TopView(task, outcome.goal)
    np.testing.assert_array_equal(
        frames[-1], view.frame(outcome.observations.numpy(), NO_PLANS, f"{outcome.case.name}    step 600")
    )


def moving():
    """Frames in which a square moves to the right, of odd sides."""
    for step in range(10):
        frame = np.full((61, 81, 3), 200, np.uint8)
        frame[20:40, 5 * step : 5 * step + 20] = ImageColor.getrgb(BALL)
        yield frame


def test_a_gif_plays_the_frames_and_is_the_same_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(video, "can_write_mp4", lambda: False)
    first, again = (write_video(tmp_path / name, moving()) for name in ("a", "b"))
    assert first == tmp_path / "a.gif"
    assert first.read_bytes() == again.read_bytes()
    with Image.open(first) as film:
        assert (film.n_frames, film.size) == (10, (81, 61))
        for number, frame in enumerate(moving()):
            film.seek(number)
            shown = np.asarray(film.convert("RGB")).astype(int)
            assert np.abs(shown - frame).max() <= 8
        assert film.info["duration"] >= 1000, "the last frame is held"


def test_an_mp4_plays_the_frames(tmp_path):
    ffmpeg = pytest.importorskip(
        "imageio_ffmpeg", reason="left out: pip install 'curioplan[video]' to run it"
    )
    path = write_video(tmp_path / "a", moving())
    assert path == tmp_path / "a.mp4"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.mp4"]
    played = subprocess.run(
        [ffmpeg.get_ffmpeg_exe(), "-i", path, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"],
        capture_output=True,
        check=True,
    )
    frames = np.frombuffer(played.stdout, np.uint8).reshape(-1, 60, 80, 3).astype(int)  # sides are even
    assert len(frames) == 10 + video.FPS, "the last frame is held"
    for expected, shown in zip(moving(), frames, strict=False):
        assert np.abs(shown - expected[:60, :80]).mean() < 8


def test_a_caption_stands_beneath_the_frame():
    frame = next(moving())
    written = captioned(frame, "step 1")
    np.testing.assert_array_equal(written[:61], frame)
    assert written.shape == (61 + CAPTION, 81, 3)
    assert written[61:].min() < 128


@pytest.mark.parametrize("name", ["fetch_push", "kitchen"])
@pytest.mark.usefixtures("graphics")
def test_without_a_map_frames_are_rendered(name):
    task = replace(make_task(name), episode_length=3)
    (outcome,) = run_cases(Restless(task), task, task.cases[:1])
    frames = list(rendered(task, outcome))
    assert len(frames) == 4
    assert frames[0].std() > 10, "there is something to be seen"
    assert not np.array_equal(frames[0][:-CAPTION], frames[-1][:-CAPTION]), "and it moves"


def test_chosen_cases_of_an_evaluation_are_filmed(trained_run):
    config = replace(preset("smoke", EvaluateConfig), controller="mbp", seeds=2)
    folder = run_evaluation(trained_run, config, progress=False)
    (path,) = film(trained_run, folder.name, "(3, 1)")
    assert path.parent == folder / "videos"
    assert path.stem == "3-1"
    assert path.stat().st_size > 1000
    outcome = load_outcomes(folder)[2]
    frames = list(seen_from_above(MAZE, outcome, Crow()))
    assert any(share_of(frame, PLAN) > 0 for frame in frames), "plans are shown"
    with pytest.raises(ConfigError, match=r"no case '\(9, 9\)'"):
        film(trained_run, folder.name, "(9, 9)")
    with pytest.raises(RunError, match="no finished evaluation"):
        film(trained_run, "nothing")


def test_the_command_films_all_cases_of_a_controller_without_values(trained_run, capsys, monkeypatch):
    monkeypatch.setattr(video, "can_write_mp4", lambda: False)
    arguments = ("evaluate", str(trained_run), "--preset", "smoke", "--controller", "mbp+sparse", "--video")
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    folder = trained_run / "evaluations" / "mbp-sparse" / "videos"
    assert sorted(path.name for path in folder.iterdir()) == ["1-3.gif", "3-1.gif", "3-3.gif"]
    assert str(folder / "1-3.gif") in shown


def test_a_guided_episode_in_the_large_maze_can_be_filmed(tmp_path):
    task = make_task("maze_large")
    (outcome,) = run_cases(Guide(task), task, task.cases[:1])
    path = write_video(tmp_path / "guided", seen_from_above(task, outcome, Crow()))
    assert 10_000 < path.stat().st_size < 3_000_000
