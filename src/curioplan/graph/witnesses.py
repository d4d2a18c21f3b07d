"""Edges that other vertices bear out: the triangle inequality against values that leak through walls."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_SHARE = 0.75
"""A length is raised to what this share of the witnesses agrees to: each may be wrong about the goal, too."""
_ENTRIES = 2**22
"""Testimonies held in memory at a time."""


class Witnesses:
    """For every vertex v, some vertices u from which it is soonest reached.

    Whoever goes from u to g by way of v has arrived, so that d(u, g) ≤ d(u, v) + d(v, g), and v cannot be
    nearer to the goal than d(u, g) − d(u, v). Where v alone claims to be near, as one that flies towards a
    wall with the goal behind it, those that lead to it know better.

    Args:
        lengths: d(u, v) between all vertices, (n, n).
        count: How many witnesses.
    """

    def __init__(self, lengths: Tensor, count: int) -> None:
        others = lengths.clone().fill_diagonal_(torch.inf)
        count = min(count, len(lengths) - 1)
        self.steps, self.vertices = others.topk(max(count, 0), dim=0, largest=False)  # (count, n) each

    def correct(self, lengths: Tensor) -> Tensor:
        """Lengths (n, m) from every vertex to some goals, raised to what its witnesses bear out."""
        count = len(self.vertices)
        if count == 0:
            return lengths
        columns = max(1, _ENTRIES // (count * len(lengths)))
        parts = []
        for part in lengths.split(columns, 1):
            least = part[self.vertices] - self.steps[..., None]  # (count, n, ·)
            least = least.masked_fill_(self.steps.isinf()[..., None], -torch.inf)  # these see nothing of v
            agreed = least.sort(0).values[math.ceil(_SHARE * count) - 1]
            parts.append(torch.maximum(part, agreed))
        return torch.cat(parts, 1)
