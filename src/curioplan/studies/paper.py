"""The figures of the paper, as its table of numerical results prints them."""

from __future__ import annotations

from typing import NamedTuple

ENVS = ("maze_large", "pinpad", "fetch_push", "kitchen")


class Published(NamedTuple):
    """A success rate with its 90 % bootstrap interval, where the paper gives one."""

    mean: float
    low: float | None = None
    high: float | None = None


def _row(*figures: tuple[float, float, float] | float) -> dict[str, Published]:
    """Figures in the order of the environments: low, mean and high as printed, or the mean alone."""
    return {
        env: Published(figure)
        if isinstance(figure, float)
        else Published(mean=figure[1], low=figure[0], high=figure[2])
        for env, figure in zip(ENVS, figures, strict=True)
    }


SUCCESS: dict[str, dict[str, Published]] = {
    "CRR": _row((0.095, 0.173, 0.253), (0.027, 0.055, 0.088), (0.083, 0.083, 0.083), (0.253, 0.331, 0.412)),
    "MBPO": _row((0.000, 0.000, 0.000), (0.017, 0.028, 0.040), (0.083, 0.083, 0.083), (0.111, 0.143, 0.174)),
    "MOPO": _row((0.023, 0.049, 0.079), (0.033, 0.050, 0.072), (0.083, 0.083, 0.083), (0.015, 0.046, 0.079)),
    "TD3": _row((0.079, 0.144, 0.206), (0.244, 0.267, 0.291), (0.083, 0.083, 0.083), (0.079, 0.110, 0.142)),
    "CRR+MBP": _row(
        (0.000, 0.031, 0.063), (0.283, 0.321, 0.361), (0.152, 0.190, 0.231), (0.174, 0.206, 0.238)
    ),
    "MBPO+MBP": _row(
        (0.024, 0.060, 0.098), (0.043, 0.068, 0.091), (0.638, 0.719, 0.791), (0.174, 0.222, 0.285)
    ),
    "MOPO+MBP": _row(
        (0.000, 0.025, 0.098), (0.013, 0.025, 0.038), (0.824, 0.884, 0.935), (0.365, 0.444, 0.523)
    ),
    "TD3+MBP": _row(
        (0.206, 0.301, 0.412), (0.190, 0.232, 0.274), (0.638, 0.693, 0.745), (0.333, 0.379, 0.428)
    ),
    "TD3+MBP+Aggregation": _row(
        (0.627, 0.705, 0.814), (0.314, 0.410, 0.500), (0.587, 0.647, 0.708), (0.301, 0.365, 0.428)
    ),
    "MBP+Sparse": _row(0.030, 0.100, 0.730, 0.430),
}
"""Success rates over nine runs with 200k transitions, by method and environment.

The other studies of the paper are published as plots without numbers; their cells for the default method with
200k transitions are these.
"""
