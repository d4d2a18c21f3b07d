"""How densely the data lie around their states, in temporal distance."""

from __future__ import annotations

import torch
from torch import Tensor

from curioplan.values import Distances


def density(values: Distances, states: Tensor, goals: Tensor, scale: float, longest: float) -> Tensor:
    """Mean over goals g of exp(−d(s, g) / scale) for every state s, with d clipped at `longest`, (N,)."""
    return torch.exp(values.distances(states, goals).clamp_(max=longest).div_(-scale)).mean(1)


def draw_sparse(density: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Indices of `count` different states, drawn with probability ∝ 1 / density, in order; on the CPU."""
    weights = 1 / density.double().cpu().clamp(min=1e-12)
    return torch.multinomial(weights / weights.max(), count, generator=generator).sort().values
