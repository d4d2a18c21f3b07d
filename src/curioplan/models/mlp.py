"""The one network of the system: several MLPs of one shape, evaluated in one batched product."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from curioplan.errors import ConfigError
from curioplan.models.memory import Memory

Activation = Literal["silu", "relu"]
Layer = tuple[Tensor, Tensor]
"""Weights (members, in, out) and biases (members, 1, out) of one layer."""

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"silu": functional.silu, "relu": torch.relu_}
"""In place where the gradient needs the result alone."""
_TILE = 400_000
"""Activations of a hidden layer that the inference path computes at a time: 2000 rows of 200 units, one
member after the other, or several members on few rows. Two such buffers stay in cache; the network then takes
1.1 times as long as its products, against 1.25 with tiles of all seven members and more without tiles."""


class BatchedMLP(nn.Module):
    """Several multilayer perceptrons of one shape, each with weights of its own.

    Each layer of member m computes φ(x W_m + b_m) for all members in one batched product. The dynamics
    ensemble is seven of them, twin critics are two.

    Args:
        members: Number of networks.
        inputs: Input width.
        outputs: Output width; the last layer is linear.
        layers: Hidden layers.
        units: Units per hidden layer.
        activation: Activation of the hidden layers.
        generator: Source of the initial weights: normal with deviation 1 / (2 √inputs of the layer),
            truncated at two deviations. Biases start at zero.
    """

    def __init__(
        self,
        members: int,
        inputs: int,
        outputs: int,
        *,
        layers: int,
        units: int,
        activation: Activation = "silu",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if activation not in _ACTIVATIONS:
            raise ConfigError(f"Unknown activation {activation!r}; choose one of {', '.join(_ACTIVATIONS)}.")
        if min(members, inputs, outputs, units) < 1 or layers < 0:
            raise ConfigError("A network needs at least one member, input, output and unit.")
        self.members, self.inputs, self.outputs, self.units = members, inputs, outputs, units
        self.activation = activation
        widths = [inputs, *[units] * layers, outputs]
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for fan_in, fan_out in pairwise(widths):
            weight, std = torch.empty(members, fan_in, fan_out), 1 / (2 * math.sqrt(fan_in))
            nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std, generator=generator)
            self.weights.append(nn.Parameter(weight))
            self.biases.append(nn.Parameter(torch.zeros(members, 1, fan_out)))
        self._memory = Memory()

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (members, N, outputs), differentiable, of inputs (members, N, inputs) or (N, inputs)."""
        return self.apply_layers(x, list(zip(self.weights, self.biases, strict=True)))

    def apply_layers(self, x: Tensor, layers: Sequence[Layer]) -> Tensor:
        """As `forward`, through other layers: through those of `select`, gradients flow to x alone."""
        activation = _ACTIVATIONS[self.activation]
        hidden = x.expand(len(layers[0][0]), -1, -1)
        for k, (weight, bias) in enumerate(layers):
            hidden = torch.baddbmm(bias, hidden, weight)
            if k < len(layers) - 1:
                hidden = activation(hidden)
        return hidden

    def select(self, members: Sequence[int] | None = None) -> list[Layer]:
        """The layers of some members (default all), for `infer` and `tiles`.

        A contiguous range of members shares memory with the network and so follows its training; other
        choices are copies.
        """
        layers = [(w.detach(), b.detach()) for w, b in zip(self.weights, self.biases, strict=True)]
        if members is None:
            return layers
        chosen = list(members)
        if chosen == list(range(chosen[0], chosen[0] + len(chosen))):
            part = slice(chosen[0], chosen[-1] + 1)
            return [(w[part], b[part]) for w, b in layers]
        return [(w[chosen], b[chosen]) for w, b in layers]

    @torch.no_grad()
    def infer(self, x: Tensor, layers: list[Layer] | None = None, out: Tensor | None = None) -> Tensor:
        """As `forward`, without gradients, for all members or those of `layers` (see `select`)."""
        layers = self.select() if layers is None else layers
        members, total = len(layers[0][0]), x.shape[-2]
        if out is None and members * total * self.units <= 2 * _TILE:  # cutting would cost more than it saves
            return self.apply_layers(x, layers)
        if out is None:
            out = x.new_empty(members, total, self.outputs)
        for rows, part in self.tiles(x, layers):
            out[:, rows] = part[0]
        return out

    def tiles(self, x: Tensor, layers: list[Layer], heads: int = 1) -> Iterator[tuple[slice, Tensor]]:
        """Outputs in tiles of rows small enough to stay in cache, without gradients.

        Args:
            x: Inputs as in `forward`.
            layers: The members to evaluate, from `select`.
            heads: Equal parts into which the outputs are split, each contiguous.

        Yields:
            The rows of a tile and their outputs (heads, members, rows, outputs / heads), which the next tile
            overwrites.
        """
        members, total = len(layers[0][0]), x.shape[-2]
        x = x.expand(members, -1, -1)
        size = math.ceil(total / max(1, math.ceil(total * self.units / _TILE))) or 1
        group = max(1, _TILE // (size * self.units))
        *hidden, last = layers
        split = [*hidden, *zip(*(part.chunk(heads, 2) for part in last), strict=True)]
        groups = [slice(first, first + group) for first in range(0, members, group)]
        parts = [split] if len(groups) == 1 else [[(w[g], b[g]) for w, b in split] for g in groups]
        for start in range(0, total, size):
            rows = slice(start, min(start + size, total))
            out = self._memory.get("out", heads, members, rows.stop - start, self.outputs // heads)
            for g, part in zip(groups, parts, strict=True):
                self._infer_tile(x[g, rows], part, out[:, g])
            yield rows, out

    def _infer_tile(self, hidden: Tensor, layers: list[Layer], out: Tensor) -> None:
        """Outputs of some members on some rows, put into `out` (heads, members, rows, outputs / heads)."""
        heads = len(out)
        for k, (weight, bias) in enumerate(layers[:-heads]):
            buffer = self._memory.get(("even", "odd")[k % 2], *hidden.shape[:2], weight.shape[2])
            hidden = torch.bmm(hidden, weight, out=buffer).add_(bias)
            hidden = (
                torch.relu_(hidden) if self.activation == "relu" else functional.silu(hidden, inplace=True)
            )
        for head, (weight, bias) in zip(out, layers[-heads:], strict=True):
            torch.baddbmm(bias, hidden, weight, out=head)
