"""Videos of episodes: from above with values and plans where there is a map, else as rendered; MP4 or GIF."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import Normalize
from numpy.typing import NDArray
from PIL import Image, ImageColor, ImageDraw
from scipy.ndimage import distance_transform_edt

from curioplan.analysis.landscape import FARTHEST, RIM, WALL, steps_over_map
from curioplan.analysis.style import COLOURS
from curioplan.analysis.values import ValueFunction
from curioplan.envs.task import Case, Floats, FloorPlan, Task, Within
from curioplan.errors import EnvError, RunError
from curioplan.storage import write_atomic

Frame = NDArray[np.uint8]  # (height, width, 3)

FPS = 25
SIDE = 480  # pixels of the longer side of a map, about
SMOOTH = 2  # maps are drawn this much larger and reduced
CAPTION = 28  # pixels
FLOOR = "#F6F6F3"
PATH, PLAN, BALL, GOAL, OTHER, EDGE = "#FFFFFF", COLOURS[3], COLOURS[1], "#FFFFFF", "#B4B4B4", "#000000"


class TopView:
    """Draws an episode on the map: walls, the values of its goal, the way so far and what is planned.

    Args:
        task: A task with a map.
        goal: What is to be achieved.
        value: The value function whose landscape lies under the agent; without one the floor is plain.
        gamma: Its discount factor; by default the task's.
    """

    def __init__(
        self,
        task: Task,
        goal: tuple[float, ...],
        value: ValueFunction | None = None,
        gamma: float | None = None,
    ) -> None:
        if task.floor_plan is None:
            raise EnvError(f"{task.name} has no map to be seen from above.")
        self.task, self.goal, self.value, self.gamma = task, goal, value, gamma or task.gamma
        self.plan: FloorPlan = task.floor_plan
        (top, bottom), (left, right) = (_extent(self.plan.free, axis) for axis in (1, 0))
        self.scale = SMOOTH * max(4, int(SIDE / max(bottom - top, right - left)))
        self._seen = (left * self.scale, top * self.scale, right * self.scale, bottom * self.scale)
        # What of the goal is not the position: values are drawn anew whenever it changes.
        self._beside = [index for index in task.goal_indices or () if index > 1]
        self._colours: Normalize | None = None
        self._grounds: dict[tuple[float, ...], Image.Image] = {}

    def frame(self, path: NDArray[np.float32], plans: NDArray[np.float32], caption: str = "") -> Frame:
        """A frame, given the states so far (t + 1, observation) and imagined positions (elites, H + 1, 2)."""
        image = self._ground(path[-1]).copy()
        draw = ImageDraw.Draw(image)
        if len(path) > 1:
            draw.line(self._pixels(path[:, :2]), PATH, width=2 * SMOOTH, joint="curve")
        self._disc(draw, path[-1, :2], 0.13, BALL, EDGE)
        for positions in plans:
            draw.line(self._pixels(positions), PLAN, width=2 * SMOOTH)
        return captioned(np.asarray(image.crop(self._seen).reduce(SMOOTH)), caption)

    def _ground(self, state: NDArray[np.float32]) -> Image.Image:
        """All that lies under the agent; positions aside, values are those of a state at rest."""
        beside = np.zeros(self.task.observation_dim)
        beside[self._beside] = np.round(state[self._beside])
        key = tuple(beside.tolist())
        if key not in self._grounds:
            rows, columns = self.plan.free.shape
            size = (columns * self.scale, rows * self.scale)
            image = Image.new("RGB", size, FLOOR) if self.value is None else self._values(key, size)
            draw = ImageDraw.Draw(image)
            for i, j in np.argwhere(~self.plan.free) * self.scale:
                draw.rectangle((j, i, j + self.scale - 1, i + self.scale - 1), fill=WALL)
            self._mark(draw)
            self._grounds[key] = image
        return self._grounds[key]

    def _values(self, state: tuple[float, ...], size: tuple[int, int]) -> Image.Image:
        """The landscape of log_γ V, few steps bright; colours mean the same throughout an episode."""
        assert self.value is not None
        steps = steps_over_map(self.value, self.task, self.plan, Case("", self.goal, state), self.gamma)
        if self._colours is None:
            nearest, farthest = (float(np.nanquantile(steps, share)) for share in (0, FARTHEST))
            self._colours = Normalize(nearest, max(farthest, nearest + 10), clip=True)
        # Walls take the colours beside them and are drawn over them, so that there are no seams.
        filled = distance_transform_edt(np.isnan(steps), return_distances=False, return_indices=True)
        colours = colormaps["viridis_r"](self._colours(steps[tuple(filled)]), bytes=True)[..., :3]
        return Image.fromarray(np.ascontiguousarray(colours)).resize(size, Image.Resampling.BILINEAR)

    def _mark(self, draw: ImageDraw.ImageDraw) -> None:
        """The goal, where it is a position, and the zones of the map."""
        wanted = {f"{part:g}" for part in self.goal}
        for name, (x_low, y_low, x_high, y_high) in self.plan.zones.items():
            corners = self._pixels(np.array([(x_low, y_low), (x_high, y_high)]))
            colour, width = (GOAL, 3 * SMOOTH) if name in wanted else (OTHER, SMOOTH)
            draw.rectangle(corners, outline=colour, width=width)
            (left, top), (right, bottom) = corners
            middle = ((left + right) / 2, (top + bottom) / 2)
            draw.text(middle, name, colour, font_size=self.scale // 3, anchor="mm")
        if self.task.goal_indices == (0, 1):
            place = np.array(self.goal)
            if isinstance(self.task.success, Within):
                self._disc(draw, place, self.task.success.radius, None, GOAL)
            turns = np.arange(10) * np.pi / 5
            radii = np.where(np.arange(10) % 2, 0.1, 0.24)
            star = place + radii[:, None] * np.stack([-np.cos(turns), np.sin(turns)], 1)
            draw.polygon(self._pixels(star), GOAL, EDGE, width=SMOOTH)

    def _pixels(self, positions: NDArray[np.floating]) -> list[tuple[float, float]]:
        """Where positions (N, 2) are in the image: rows downwards, columns to the right."""
        places = (np.asarray(positions, np.float64) + self.plan.offset + 0.5) * self.scale
        return [(y, x) for x, y in places.tolist()]

    def _disc(
        self,
        draw: ImageDraw.ImageDraw,
        centre: NDArray[np.floating],
        radius: float,
        fill: str | None,
        edge: str,
    ) -> None:
        corners: Floats = np.array([centre - radius, centre + radius], np.float64)
        draw.ellipse(self._pixels(corners), fill, edge, width=SMOOTH)


def _extent(free: NDArray[np.bool_], axis: int) -> tuple[float, float]:
    """Where free cells begin and end, looking along an axis, with a rim of wall."""
    found = np.flatnonzero(free.any(axis))
    return float(found[0] - RIM), float(found[-1] + 1 + RIM)


def captioned(frame: Frame, text: str) -> Frame:
    """A frame with a line of text beneath."""
    strip = Image.new("RGB", (frame.shape[1], CAPTION), "#FFFFFF")
    ImageDraw.Draw(strip).text((8, CAPTION / 2), text, "#000000", font_size=14, anchor="lm")
    return np.concatenate([frame, np.asarray(strip)])


def write_video(stem: Path, frames: Iterable[Frame], fps: int = FPS) -> Path:
    """Write frames as MP4 where imageio-ffmpeg is installed, else as GIF; the last is held for a second.

    Args:
        stem: The path without a suffix.
        frames: Frames of one size.
        fps: Frames per second.

    Returns:
        The path of the file.
    """
    stream = _held(frames, fps)
    return _write_mp4(stem, stream, fps) if can_write_mp4() else _write_gif(stem, stream, fps)


def can_write_mp4() -> bool:
    """Whether there is a program that encodes MP4, as the extra ``video`` installs it."""
    if importlib.util.find_spec("imageio_ffmpeg") is None:
        return False
    import imageio_ffmpeg

    try:
        return bool(imageio_ffmpeg.get_ffmpeg_exe())
    except RuntimeError:  # installed for another platform
        return False


def _held(frames: Iterable[Frame], fps: int) -> Iterator[Frame]:
    last: Frame | None = None
    for last in frames:
        yield last
    if last is not None:
        yield from [last] * fps


def _write_mp4(stem: Path, frames: Iterator[Frame], fps: int) -> Path:
    import imageio_ffmpeg

    path = stem.with_name(f"{stem.name}.mp4")
    temporary = path.with_name(f".{path.stem}.part.mp4")
    path.parent.mkdir(parents=True, exist_ok=True)
    first = next(frames)
    height, width = (side // 2 * 2 for side in first.shape[:2])  # the format has no odd sizes
    try:
        writer = imageio_ffmpeg.write_frames(
            str(temporary), (width, height), fps=fps, quality=7, macro_block_size=2
        )
        writer.send(None)
        for frame in chain([first], frames):
            writer.send(np.ascontiguousarray(frame[:height, :width]))
        writer.close()
        temporary.replace(path)
    except OSError as error:
        raise RunError(f"Cannot write {path}: {str(error).splitlines()[0]}.") from error
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _write_gif(stem: Path, frames: Iterator[Frame], fps: int) -> Path:
    path = stem.with_name(f"{stem.name}.gif")
    first = Image.fromarray(next(frames))
    # One palette for all frames, so that what does not move takes no space: the colours of the first frame
    # and those that are drawn on later ones.
    swatches = Image.new("RGB", (first.width, first.height + 10 * 8))
    swatches.paste(first)
    draw = ImageDraw.Draw(swatches)
    for number, colour in enumerate(dict.fromkeys([PATH, PLAN, BALL, EDGE, *COLOURS])):
        draw.rectangle(
            (0, first.height + 8 * number, first.width, first.height + 8 * number + 7),
            fill=ImageColor.getrgb(colour),
        )
    palette = swatches.quantize(256, Image.Quantize.MEDIANCUT)

    def reduced(image: Image.Image) -> Image.Image:
        return image.quantize(palette=palette, dither=Image.Dither.NONE)

    buffer = io.BytesIO()
    others = (reduced(Image.fromarray(frame)) for frame in frames)
    reduced(first).save(
        buffer, "GIF", save_all=True, append_images=others, duration=1000 // fps, loop=0, disposal=1
    )
    write_atomic(path, buffer.getvalue())
    return path
