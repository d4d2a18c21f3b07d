"""The device that a setting names."""

from __future__ import annotations

import torch

from curioplan.errors import ConfigError


def find_device(name: str) -> torch.device:
    """The device of a setting: ``cpu``, ``cuda``, one of several as ``cuda:1``, or ``auto``.

    ``auto`` is CUDA where there is one, else the CPU.

    Raises:
        ConfigError: This machine does not have it.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "cpu" or (name == "auto" and not count):
        return torch.device("cpu")
    if name in ("auto", "cuda") and count:
        return torch.device("cuda", torch.cuda.current_device())
    known = ["cpu", *(f"cuda:{number}" for number in range(count))]
    if name not in known:
        raise ConfigError(
            f"There is no device {name} here, or torch cannot use it; there is {', '.join(known)}."
        )
    return torch.device(name)
