"""Running mean, deviation and range of a growing dataset."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_CONSTANT = 1e-6
"""Deviation, relative to max(1, |mean|), below which a dimension counts as constant."""


class Normaliser(nn.Module):
    """Running mean, deviation and range per dimension, exact whatever the chunks in which the data arrive.

    Counts, means and sums of squared deviations are merged in float64 (Chan et al., 1979). A dimension
    that does not vary has deviation 1 on the way in, so that it is centred and otherwise left alone, and
    `scale` 0 on the way back, so that nothing a network says of it is believed; an empty normaliser changes
    nothing. All state lies in buffers.

    Args:
        dim: Dimensions.
        device: Where the buffers live, and the data will.
    """

    count: Tensor
    mean64: Tensor
    squares: Tensor
    mean: Tensor
    std: Tensor
    scale: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, dim: int, device: str | torch.device = "cpu") -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64, device=device))
        self.register_buffer("mean64", torch.zeros(dim, dtype=torch.float64, device=device))
        self.register_buffer("squares", torch.zeros(dim, dtype=torch.float64, device=device))
        self.register_buffer("mean", torch.zeros(dim, device=device))
        self.register_buffer("std", torch.ones(dim, device=device))
        self.register_buffer("scale", torch.ones(dim, device=device))
        self.register_buffer("low", torch.full((dim,), -torch.inf, device=device))
        self.register_buffer("high", torch.full((dim,), torch.inf, device=device))

    @torch.no_grad()
    def update(self, data: Tensor) -> None:
        """Merges rows (N, dim) into the statistics."""
        new = len(data)
        if new == 0:
            return
        low, high = data.aminmax(dim=0)
        before = int(self.count)
        self.low.copy_(torch.minimum(self.low, low) if before else low)
        self.high.copy_(torch.maximum(self.high, high) if before else high)
        data = data.double()
        mean = data.mean(0)
        total = before + new
        shift = mean - self.mean64
        self.squares += (data - mean).square().sum(0) + shift.square() * (before * new / total)
        self.mean64 += shift * (new / total)
        self.count.fill_(total)
        std = (self.squares / total).sqrt()
        constant = std <= _CONSTANT * self.mean64.abs().clamp(min=1)
        self.mean.copy_(self.mean64)
        self.std.copy_(torch.where(constant, 1.0, std))
        self.scale.copy_(torch.where(constant, 0.0, std))

    def normalise(self, x: Tensor) -> Tensor:
        """(x − mean) / std."""
        return (x - self.mean) / self.std

    def denormalise(self, x: Tensor) -> Tensor:
        """The inverse: x · scale + mean."""
        return torch.addcmul(self.mean, x, self.scale)
