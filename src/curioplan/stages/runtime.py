"""How stages use the process they run in: its threads, its memory and its terminal."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from tqdm import tqdm


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Give torch a number of threads for a while; 0 leaves it those it has."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@cache
def keep_memory() -> None:
    """Have this process keep, from now on, the memory that tensors free, for the next ones.

    By default glibc returns large blocks to the system at once, and an update gets them back as fresh pages
    that the system first fills with zeros: a quarter of the time of 30 learners.
    """
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        m_trim_threshold, m_mmap_max = -1, -4
        libc.mallopt(m_mmap_max, 0)
        libc.mallopt(m_trim_threshold, -1)


def progress_bar(title: str, unit: str, total: int, done: int, *, show: bool) -> tqdm:
    """A bar that goes on from what is done already; where nobody watches, a line every half minute."""
    return tqdm(
        total=total,
        initial=done,
        unit=f" {unit}",
        desc=title,
        disable=not show,
        dynamic_ncols=True,
        mininterval=0.2 if sys.stderr.isatty() else 30.0,
    )
