"""Frames of a MuJoCo scene, without a screen."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from curioplan.errors import EnvError

FRAME_SIZE = 480  # pixels


class Renderer(mujoco.Renderer):
    """A renderer that is collected quietly even if it could not be made."""

    _gl_context: Any = None
    _mjr_context: Any = None


class Camera:
    """Renders a MuJoCo scene off screen from one viewpoint; takes up memory from its first frame on."""

    def __init__(
        self, model: Any, lookat: tuple[float, ...], distance: float, azimuth: float, elevation: float
    ) -> None:
        self._model = model
        self._view = mujoco.MjvCamera()
        self._view.lookat[:] = lookat
        self._view.distance, self._view.azimuth, self._view.elevation = distance, azimuth, elevation
        self._renderer: Renderer | None = None
        model.vis.global_.offwidth = model.vis.global_.offheight = FRAME_SIZE

    def frame(self, data: Any) -> NDArray[np.uint8]:
        """The scene as ``(height, width, 3)`` bytes."""
        if self._renderer is None:
            try:
                self._renderer = Renderer(self._model, FRAME_SIZE, FRAME_SIZE)
            except Exception as error:  # each of MuJoCo's backends fails in its own way
                raise EnvError(
                    "Frames cannot be rendered because OpenGL is not available; install libegl1, or "
                    "libosmesa6 and set the environment variable MUJOCO_GL=osmesa."
                ) from error
        self._renderer.update_scene(data, self._view)
        return self._renderer.render()

    def close(self) -> None:
        """Free the graphics memory; the next frame takes it again."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
