"""Seeds that depend on what they are for and on nothing else."""

from __future__ import annotations

import zlib

import numpy as np


def seed_for(seed: int, purpose: str, *numbers: int) -> int:
    """An independent seed for a purpose, such as the noise of the planner in episode 7 of a run."""
    entropy = [seed, zlib.crc32(purpose.encode()), *numbers]
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> np.uint64(1))
