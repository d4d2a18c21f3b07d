"""Datasets put together from several others."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from curioplan.data.trajectories import TrajectoryStore
from curioplan.errors import ConfigError, DataError


def mix(
    sources: Sequence[TrajectoryStore], fractions: Sequence[float], size: int, generator: torch.Generator
) -> TrajectoryStore:
    """A store of about ``size`` transitions, made of whole episodes of several stores.

    From each source come random episodes, without replacement and in their original order, whose transitions
    add up as closely as possible to its share of ``size``.

    Args:
        sources: Where to draw from; dimensions must agree.
        fractions: The share of transitions from each source; they sum to one.
        size: How many transitions to aim for.
        generator: Draws the episodes, on the CPU.
    """
    if len(sources) != len(fractions) or not sources:
        raise ConfigError(f"{len(sources)} sources cannot be mixed by {len(fractions)} fractions.")
    if min(fractions) < 0 or abs(sum(fractions) - 1) > 1e-6:
        raise ConfigError(f"Fractions of a mixture are positive and sum to one, unlike {list(fractions)}.")
    dims = {(source.observation_dim, source.goal_dim, source.action_dim) for source in sources}
    if len(dims) > 1:
        listed = " and ".join(str(each) for each in sorted(dims))
        raise DataError(
            f"Sources of different dimensions (observation, goal, action) cannot be mixed: {listed}."
        )
    mixture = TrajectoryStore(*dims.pop(), device=sources[0].device, capacity=size + size // 8)
    for number, (source, fraction) in enumerate(zip(sources, fractions, strict=True)):
        wanted = round(fraction * size)
        if wanted > source.transitions:
            raise DataError(
                f"Source {number} of the mixture has {source.transitions} of the {wanted} transitions wanted."
            )
        lengths = source.episode_lengths.cpu()
        order = torch.randperm(source.episodes, generator=generator)
        totals = torch.cat([lengths.new_zeros(1), lengths[order].cumsum(0)])
        chosen = order[: int((totals - wanted).abs().argmin())]
        taken = torch.zeros(source.episodes, dtype=torch.bool)
        taken[chosen] = True
        keep = taken.to(source.device)[source.episode_of]
        mixture.append_rows({name: rows[keep] for name, rows in source.rows(0, source.states).items()})
    return mixture
