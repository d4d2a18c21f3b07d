"""The state of a network in training, as plain tensors and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from curioplan.errors import ConfigError


def training_state(parameters: Sequence[nn.Parameter], optimizer: torch.optim.Adam) -> dict[str, Any]:
    """Copies of parameters, Adam's moments and its step, from which training goes on exactly."""
    moments = [optimizer.state[p] for p in parameters if p in optimizer.state]
    return {
        "parameters": [p.detach().clone() for p in parameters],
        "step": int(moments[0]["step"]) if moments else 0,
        "first_moments": [m["exp_avg"].clone() for m in moments],
        "second_moments": [m["exp_avg_sq"].clone() for m in moments],
    }


def load_training_state(
    parameters: Sequence[nn.Parameter], optimizer: torch.optim.Adam, state: dict[str, Any]
) -> None:
    """Takes over a `training_state`, in place, wherever the parameters live.

    Raises:
        ConfigError: It belongs to a network of another shape.
    """
    mine, theirs = ([tuple(p.shape) for p in side] for side in (parameters, state["parameters"]))
    if mine != theirs:
        raise ConfigError(
            f"The saved network has parameters of shapes {theirs}, this one {mine}: same settings?"
        )
    optimizer.state.clear()
    for k, parameter in enumerate(parameters):
        parameter.data.copy_(state["parameters"][k])
        if state["step"]:
            optimizer.state[parameter] = {
                "step": torch.tensor(float(state["step"]), device=parameter.device),
                "exp_avg": state["first_moments"][k].to(parameter.device, copy=True),
                "exp_avg_sq": state["second_moments"][k].to(parameter.device, copy=True),
            }


def buffers(module: nn.Module) -> dict[str, Tensor]:
    """Copies of a module's `state_dict`."""
    return {name: value.clone() for name, value in module.state_dict().items()}
