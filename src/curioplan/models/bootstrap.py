"""Which transitions each member of an ensemble trains on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor


class Bootstrap:
    """Bootstrapped row numbers per member that grow with the data, and the rows held out from all of them.

    When k training rows arrive, each member's list grows by k draws with replacement from these k, so that
    old draws never change and every stretch of the data is equally represented (a stratified bootstrap).
    A share of the rows, chosen at random on arrival, is held out and never trained on.
    Lists and draws stay on the CPU whatever computes with them: only row numbers of a batch go elsewhere.

    Args:
        members: Number of lists.
        share: Share of rows to hold out.
    """

    def __init__(self, members: int, share: float) -> None:
        self.members, self.share = members, share
        self._rows = torch.empty(members, 0, dtype=torch.int32)
        self._held_out = torch.empty(0, dtype=torch.int32)
        self._known = torch.empty(0, dtype=torch.bool)
        self.count = 0
        self.held_out_count = 0

    @property
    def rows(self) -> Tensor:
        """Training rows (members, count), a view."""
        return self._rows[:, : self.count]

    @property
    def held_out(self) -> Tensor:
        """Held-out rows (held_out_count,), a view."""
        return self._held_out[: self.held_out_count]

    def add(self, rows: Tensor, generator: torch.Generator) -> None:
        """Divides arriving rows into training and held-out rows and extends every member's list."""
        arrived = self.count + self.held_out_count + len(rows)
        self._mark(rows)
        held = min(int(self.share * arrived) - self.held_out_count, len(rows))
        rows = rows.to(torch.int32)[torch.randperm(len(rows), generator=generator)]
        kept = len(rows) - held
        if held:
            self._held_out = _grow(self._held_out, self.held_out_count + held)
            self._held_out[self.held_out_count : self.held_out_count + held] = rows[:held]
            self.held_out_count += held
        if kept:
            draws = torch.randint(kept, (self.members, kept), generator=generator)
            self._rows = _grow(self._rows, self.count + kept)
            self._rows[:, self.count : self.count + kept] = rows[held:][draws]
            self.count += kept

    def _mark(self, rows: Tensor) -> None:
        before, room = len(self._known), int(rows.max()) + 1 if len(rows) else 0
        if room > before:
            self._known = _grow(self._known, room)
            self._known[before:] = False
        self._known[rows.long()] = True

    def leading_to(self, rows: Tensor, most: Tensor) -> Tensor:
        """How many transitions lead to those of some rows without a gap, held-out ones included.

        Args:
            rows: Rows of transitions, (…).
            most: How far to look back at most, (…).
        """
        count, going = torch.zeros_like(rows), torch.ones_like(rows, dtype=torch.bool)
        for step in range(1, int(most.max()) + 1):
            going &= (most >= step) & (rows >= step) & self._known[(rows - step).clamp(min=0)]
            count += going
        return count

    def sample(self, size: int, generator: torch.Generator) -> Tensor:
        """A batch of training rows (members, size), drawn uniformly from each member's list."""
        draws = torch.randint(self.count, (self.members, size), generator=generator)
        return self.rows.gather(1, draws).long()

    def epoch(self, size: int, generator: torch.Generator) -> Iterator[Tensor]:
        """Every member's list once, in an order of its own, in batches (members, at most size)."""
        order = torch.stack([torch.randperm(self.count, generator=generator) for _ in range(self.members)])
        for start in range(0, self.count, size):
            yield self.rows.gather(1, order[:, start : start + size]).long()

    def held_out_sample(self, limit: int) -> Tensor:
        """At most `limit` held-out rows, spread evenly over their arrival."""
        if self.held_out_count <= limit:
            return self.held_out.long()
        picks = torch.arange(limit, dtype=torch.float64) * (self.held_out_count / limit)
        return self.held_out[picks.long()].long()

    def state(self) -> dict[str, Any]:
        """All row numbers."""
        return {"rows": self.rows.clone(), "held_out": self.held_out.clone(), "known": self._known.clone()}

    def load(self, state: dict[str, Any]) -> None:
        """Takes over the row numbers of `state`."""
        self._rows, self._held_out = state["rows"].clone(), state["held_out"].clone()
        self._known = state["known"].clone() if "known" in state else torch.empty(0, dtype=torch.bool)
        self.count, self.held_out_count = self._rows.shape[1], len(self._held_out)


def _grow(buffer: Tensor, size: int) -> Tensor:
    """The buffer with room for `size` entries along its last dimension, at least doubled if it must grow."""
    room = buffer.shape[-1]
    if size <= room:
        return buffer
    grown = buffer.new_empty(*buffer.shape[:-1], max(size, 2 * room))
    grown[..., :room] = buffer
    return grown
