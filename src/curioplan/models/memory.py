"""Memory that hot loops use again and again."""

from __future__ import annotations

import math

import torch
from torch import Tensor


class Memory:
    """Named float32 buffers kept between calls: fresh pages for a large result cost as much as computing it.

    A buffer holds the last result written under its name, whatever its shape then.

    Args:
        device: Where the buffers live.
    """

    def __init__(self, device: str | torch.device = "cpu") -> None:
        self._device = device
        self._flat: dict[str, Tensor] = {}
        self._views: dict[tuple[str, tuple[int, ...]], Tensor] = {}

    def get(self, name: str, *shape: int) -> Tensor:
        """The buffer of that name, with undefined content, in the given shape."""
        view = self._views.get((name, shape))
        if view is None:
            size = math.prod(shape)
            flat = self._flat.get(name)
            if flat is None or len(flat) < size:
                flat = self._flat[name] = torch.empty(size, device=self._device)
                self._views = {key: value for key, value in self._views.items() if key[0] != name}
            view = self._views[name, shape] = flat[:size].view(shape)
        return view
