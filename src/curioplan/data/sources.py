"""The transitions a stage trains on: the run's own, those of other runs, files, or a mixture."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import torch

from curioplan.data.formats import load
from curioplan.data.mixing import mix
from curioplan.data.trajectories import TrajectoryStore
from curioplan.envs.task import Task
from curioplan.errors import ConfigError, DataError
from curioplan.seeding import seed_for

OWN = "own"
"""The word for the run's own exploration data; a folder of that name is ``./own``."""


class Source(NamedTuple):
    """An entry of a list of sources."""

    name: str
    share: float | None


def gather(
    spec: str, own: Path | None, task: Task | None, *, size: int = 0, seed: int = 0
) -> TrajectoryStore:
    """The transitions a stage trains on.

    Args:
        spec: Sources separated by commas, such as ``expert.npz=0.2,runs/maze=0.8``. A source is whatever
            :func:`~curioplan.data.load` takes, a run folder (for its exploration data) or the word ``own``;
            empty means ``own``. Either all have a share, which sum to one, and are mixed, or none has, and
            all their episodes are taken in order.
        own: Where the run's own exploration data are, if it can have any.
        task: What the data must fit.
        size: Transitions wanted. A mixture comes as close as whole episodes allow; otherwise the first
            episodes are taken until there are at least so many. 0 takes as many as there are, in a mixture as
            many as the shares allow without repeating any.
        seed: Chooses the episodes of a mixture.

    Raises:
        ConfigError: The list of sources is malformed.
        DataError: A source is missing or damaged, does not fit, or has too few transitions.
    """
    sources = parse_sources(spec)
    stores = [load(_locate(source.name, own), task) for source in sources]
    _require_same_dimensions(sources, stores)
    shares = [source.share for source in sources if source.share is not None]
    if not shares:
        return _first_episodes(_together(stores), size)
    # Shares of which nothing is wanted set no limit.
    most = min(store.transitions / share for store, share in zip(stores, shares, strict=True) if share)
    size = size or int(most)
    for source, share, store in zip(sources, shares, stores, strict=True):
        if (wanted := round(share * size)) > store.transitions:
            raise DataError(
                f"{source.name} has {store.transitions} of the {wanted} transitions wanted; ask for at most "
                f"{int(most)} in all."
            )
    return mix(stores, shares, size, torch.Generator().manual_seed(seed_for(seed, "mixture")))


def parse_sources(spec: str) -> list[Source]:
    """The sources of a list, checked as far as possible without looking into them."""
    sources = [_parse(entry.strip()) for entry in (spec.strip() or OWN).split(",")]
    names = [source.name for source in sources]
    if "" in names:
        raise ConfigError(f"A source is missing in {spec!r}: write names separated by single commas.")
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{name} is named twice in {spec!r}; name each source once.")
    shares = [source.share for source in sources if source.share is not None]
    if shares and len(shares) < len(sources):
        bare = next(source.name for source in sources if source.share is None)
        raise ConfigError(f"{bare} has no share in {spec!r}: give every source a share, or none.")
    if shares and abs(sum(shares) - 1) > 1e-6:
        raise ConfigError(f"The shares in {spec!r} sum to {sum(shares):g}; they must sum to 1.")
    return sources


def _parse(entry: str) -> Source:
    """One source; what exists under the whole text is a path, whatever characters it has."""
    name, equals, text = entry.rpartition("=")
    if not equals or _exists(Path(entry)):
        return Source(entry, None)
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 <= share <= 1:
        raise ConfigError(f"The share of {name.strip()} must be a number from 0 to 1, not {text.strip()!r}.")
    return Source(name.strip(), share)


def _locate(name: str, own: Path | None) -> str | Path:
    """What to load for a source."""
    if name == OWN:
        if own is None or not _exists(own):
            where = "The run" if own is None else f"{own} does not exist, so the run"
            raise DataError(f"{where} has no exploration data: explore first, or name the data to train on.")
        return own
    if not _exists(Path(name) / "run.json"):
        return name
    explored = Path(name) / "explore" / "data"
    if not _exists(explored):
        raise DataError(f"The run {name} has no exploration data: finish its exploration first.")
    return explored


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # too long for a path, or with characters that none has
        return False


def _require_same_dimensions(sources: list[Source], stores: list[TrajectoryStore]) -> None:
    dims = [(store.observation_dim, store.goal_dim, store.action_dim) for store in stores]
    for source, found in zip(sources, dims, strict=True):
        if found != dims[0]:
            raise DataError(
                f"{sources[0].name} and {source.name} differ in dimensions (observation, goal, action): "
                f"{dims[0]} and {found}; choose data of one environment."
            )


def _together(stores: list[TrajectoryStore]) -> TrajectoryStore:
    """All episodes, store after store."""
    first, *others = stores
    for store in others:
        first.extend(store)
    return first


def _first_episodes(store: TrajectoryStore, size: int) -> TrajectoryStore:
    """The first whole episodes that have at least so many transitions together; 0 takes all."""
    if not size:
        return store
    if size > store.transitions:
        raise DataError(
            f"The data have {store.transitions} of the {size} transitions wanted; ask for at most so many."
        )
    count = int(torch.searchsorted(store.episode_lengths.cumsum(0), size))
    part = TrajectoryStore(store.observation_dim, store.goal_dim, store.action_dim, store.device)
    part.append_rows(store.rows(0, int(store.last_rows[count]) + 1))
    return part
