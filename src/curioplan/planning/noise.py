"""Coloured noise: smooth action sequences whose power falls with frequency."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor


@lru_cache(maxsize=32)
def colouring_matrix(horizon: int, exponent: float, device: str | torch.device = "cpu") -> Tensor:
    """The matrix C (horizon, horizon) that turns white noise z into coloured noise z C.

    Multiplying the spectrum of white noise by f^(−exponent/2) is a circular convolution, hence a
    circulant matrix. The lowest frequency stands in for zero (Timmer and König, 1995), and rows have unit
    norm, so that every entry of z C has variance exactly 1. Exponent 0 gives the identity.
    """
    frequencies = torch.arange(horizon // 2 + 1, dtype=torch.float64).clamp(min=1)
    kernel = torch.fft.irfft(frequencies.pow(-exponent / 2).to(torch.complex128), n=horizon)
    kernel /= kernel.norm()
    return torch.stack([kernel.roll(shift) for shift in range(horizon)]).float().to(device)


def coloured_noise(
    count: int, horizon: int, dim: int, exponent: float, generators: Sequence[torch.Generator]
) -> Tensor:
    """Gaussian noise of unit variance with power spectrum 1/f^exponent along the horizon.

    Returns:
        Noise (episodes, count, horizon, dim), each episode's drawn from its own generator, and there where
        the generators are.
    """
    device = generators[0].device
    white = torch.empty(len(generators), count, dim, horizon, device=device)
    for episode, generator in zip(white, generators, strict=True):
        episode.normal_(generator=generator)
    if exponent:
        white = white @ colouring_matrix(horizon, exponent, device)
    return white.transpose(2, 3)
