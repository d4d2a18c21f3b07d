"""The one network of the system: several MLPs of one shape, evaluated in one batched product."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from curioplan.errors import ConfigError
from curioplan.models.memory import Memory

Activation = Literal["silu", "relu"]
Layer = tuple[Tensor, Tensor]
"""Weights (members, in, out) and biases (members, 1, out) of one layer."""
Packed = list[tuple[Tensor, Tensor | None]]
"""Layers as `BatchedMLP.pack` gives them: without biases where these are weights of a constant input."""

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"silu": functional.silu, "relu": torch.relu_}
"""In place where the gradient needs the result alone."""
_SLOPES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "silu": lambda grad, raw: torch.ops.aten.silu_backward.grad_input(grad, raw, grad_input=grad),
    "relu": lambda grad, raw: torch.ops.aten.threshold_backward.grad_input(grad, raw, 0, grad_input=grad),
}
"""The gradient by the argument of an activation, in place of that by its result."""
_TILE = 400_000
"""Activations of a hidden layer that the inference path computes at a time: 2000 rows of 200 units, one
member after the other, or several members on few rows. Two such buffers stay in cache; the network then takes
1.1 times as long as its products, against 1.25 with tiles of all seven members and more without tiles."""
_TILE_ELSEWHERE = 40 * _TILE
"""The same on other devices than CPUs, which want few and large products; it bounds memory alone."""
_FEW = 128
"""Up to so many rows, transposing outputs is faster than computing them transposed."""
_MANY = 16
"""More members than these are computed together where one by one would be less work."""
_REGISTER = 16
"""Numbers in the widest vector register."""
CONSTANT = 32.0
"""The input whose weights are biases (see `BatchedMLP.pack`): SiLU and ReLU leave it exactly as it is, and
division by it does not round."""


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
            truncated at two deviations. Biases start at zero. It is a CPU's, whatever the device.
        device: Where the weights live.
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
        device: str | torch.device = "cpu",
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
            self.weights.append(nn.Parameter(weight.to(device)))
            self.biases.append(nn.Parameter(torch.zeros(members, 1, fan_out, device=device)))
        self._memory = Memory(device)
        self._tile = _TILE if torch.device(device).type == "cpu" else _TILE_ELSEWHERE

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (members, N, outputs), differentiable, of inputs (members, N, inputs) or (N, inputs)."""
        return self.apply_layers(x, list(zip(self.weights, self.biases, strict=True)))

    def apply_layers(self, x: Tensor, layers: Sequence[Layer]) -> Tensor:
        """As `forward`, through other layers: through those of `select`, gradients flow to x alone."""
        hidden = x.expand(len(layers[0][0]), -1, -1)
        out: Tensor = _Propagate.apply(hidden, self.activation, *chain.from_iterable(layers))
        return out

    def select(self, members: Sequence[int] | None = None) -> list[Layer]:
        """The layers of some members (default all), for `apply_layers`.

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

    def pack(self, members: Sequence[int] | None = None) -> Packed:
        """The layers of some members (default all), for `tiles`; the next call may overwrite them.

        Products take as long for a number of units as for the next multiple of a register. Hidden layers are
        filled up to it, with zeros but for one unit that is always `CONSTANT`: its weights are the biases of
        the next layer, which then need not be added. Inputs get such a column in any case.
        """
        width = math.ceil(self.units / _REGISTER) * _REGISTER
        packed: Packed = []
        for k, (weight, bias) in enumerate(self.select(members)):
            if k and width == self.units:
                packed.append((weight, bias))
                continue
            count, fan_in, fan_out = weight.shape
            columns = self.outputs if k == len(self.weights) - 1 else width
            joined = self._memory.get(f"layer {k}", count, fan_in + 1, columns).zero_()
            joined[:, :-1, :fan_out] = weight
            joined[:, -1, :fan_out] = bias[:, 0] / CONSTANT
            joined[:, -1, fan_out : fan_out + 1] = 1.0  # the constant of the next layer, if there is one
            packed.append((joined, None))
        return packed

    @torch.no_grad()
    def infer(self, x: Tensor, members: Sequence[int] | None = None) -> Tensor:
        """As `forward`, without gradients, for some members or (default) all."""
        count, total = self.members if members is None else len(members), x.shape[-2]
        if count * total * self.units <= 2 * self._tile:  # cutting would cost more than it saves
            return self.apply_layers(x, self.select(members))
        out = x.new_empty(count, total, self.outputs)
        for rows, part in self.tiles(x, self.pack(members)):
            out[:, rows] = part.transpose(1, 2)
        return out

    def tiles(self, x: Tensor, packed: Packed) -> Iterator[tuple[slice, Tensor]]:
        """Outputs in tiles of rows small enough to stay in cache, without gradients.

        Args:
            x: Inputs as in `forward`; they are not copied if another column, of `CONSTANT`, follows them.
            packed: The members to evaluate, from `pack`.

        Yields:
            The rows of a tile and their outputs (members, outputs, rows), which the next tile overwrites.
        """
        members, total = len(packed[0][0]), x.shape[-2]
        if x.shape[-1] == self.inputs:
            x = torch.cat([x, x.new_full((*x.shape[:-1], 1), CONSTANT)], -1)
        x = x.expand(members, -1, -1)
        size = math.ceil(total / max(1, math.ceil(total * self.units / self._tile))) or 1
        group = max(1, self._tile // (size * self.units))
        groups = [slice(first, first + group) for first in range(0, members, group)]
        parts = [packed] if len(groups) == 1 else [_members(packed, g) for g in groups]
        for start in range(0, total, size):
            rows = slice(start, min(start + size, total))
            out = self._memory.get("out", members, self.outputs, rows.stop - start)
            for g, part in zip(groups, parts, strict=True):
                self._infer_tile(x[g, rows], part, out[g])
            yield rows, out

    def _infer_tile(self, hidden: Tensor, packed: Packed, out: Tensor) -> None:
        """Outputs of some members on some rows, put into `out` (members, outputs, rows)."""
        *layers, (last, end) = packed
        for k, (weight, bias) in enumerate(layers):
            buffer = self._memory.get(("even", "odd")[k % 2], *hidden.shape[:2], weight.shape[2])
            hidden = torch.bmm(hidden[..., : weight.shape[1]], weight, out=buffer)
            if bias is not None:
                hidden.add_(bias)
            hidden = (
                torch.relu_(hidden) if self.activation == "relu" else functional.silu(hidden, inplace=True)
            )
        hidden = hidden[..., : last.shape[1]]
        if hidden.shape[1] <= _FEW:
            out.copy_(torch.bmm(hidden, last).transpose(1, 2))
        else:
            torch.bmm(last.transpose(1, 2), hidden.transpose(1, 2), out=out)
        if end is not None:
            out.add_(end.transpose(1, 2))


class _Propagate(torch.autograd.Function):
    """The layers of a network, with a gradient that goes back through them in place.

    Left to autograd, every step backwards takes fresh memory, and biases are copied out before products are
    added to them: together a tenth of the time of an update of TD3.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, activation: str, *parameters: Tensor) -> Tensor:
        weights, biases = parameters[::2], parameters[1::2]
        inputs, raws = [hidden], []
        for k, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            hidden = _product(hidden, weight).add_(bias)
            if k < len(weights) - 1:
                raws.append(hidden)
                hidden = _ACTIVATIONS[activation](hidden)
                inputs.append(hidden)
        ctx.activation = activation
        ctx.save_for_backward(*inputs, *weights, *raws)
        return hidden

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        count = len(ctx.saved_tensors) // 3 + 1
        inputs, weights, raws = (ctx.saved_tensors[k * count : (k + 1) * count] for k in range(3))
        slopes: list[Tensor | None] = [None] * (2 * count)
        needed = ctx.needs_input_grad
        if not any(needed[2:]) and len(grad) <= _MANY:
            return _slopes_of_inputs(grad, weights, raws, ctx.activation), None, *slopes
        for k in reversed(range(count)):
            if needed[2 + 2 * k]:
                slopes[2 * k] = _slopes(inputs[k], grad)
                slopes[2 * k + 1] = grad.sum(1, keepdim=True)
            if k or needed[0]:
                grad = torch.bmm(grad, weights[k].transpose(1, 2))
            if k:
                _SLOPES[ctx.activation](grad, raws[k - 1])
        return grad if needed[0] else None, None, *slopes


def _product(x: Tensor, weight: Tensor) -> Tensor:
    """The product x W of all members; those of single columns, as of critics, are slow in batches on CPUs."""
    if weight.shape[2] > 1 or len(weight) > _MANY:
        return torch.bmm(x, weight)
    out = x.new_empty(x.shape[:2])
    for rows, column, result in zip(x, weight[..., 0], out, strict=True):
        torch.mv(rows, column, out=result)
    return out.unsqueeze(2)


def _slopes(x: Tensor, grad: Tensor) -> Tensor:
    """The gradient xᵀ G by the weights; for single columns the transposed product is four times as fast."""
    if grad.shape[2] > 1:
        return torch.bmm(x.transpose(1, 2), grad)
    return torch.bmm(grad.transpose(1, 2), x).transpose(1, 2)


def _slopes_of_inputs(
    grad: Tensor, weights: Sequence[Tensor], raws: Sequence[Tensor], activation: str
) -> Tensor:
    """The gradient by the inputs alone; rows without any, as of the larger of two critics, take no part."""
    out = grad.new_zeros(*grad.shape[:2], weights[0].shape[1])
    for member, result in enumerate(out):
        rows = grad[member].any(1).nonzero()[:, 0]
        part = grad[member].index_select(0, rows)
        for k in reversed(range(len(weights))):
            part = part @ weights[k][member].t()
            if k:
                _SLOPES[activation](part, raws[k - 1][member].index_select(0, rows))
        result.index_copy_(0, rows, part)
    return out


def _members(packed: Packed, part: slice) -> Packed:
    """Some of the members."""
    return [(weight[part], None if bias is None else bias[part]) for weight, bias in packed]
