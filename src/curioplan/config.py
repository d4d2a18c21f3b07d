"""Settings of every stage, as frozen dataclasses; the defaults are those of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class ModelConfig:
    """The dynamics ensemble."""

    members: int = 7
    """Networks in the ensemble."""
    elites: int = 5
    """Members, best by held-out likelihood, that planning uses."""
    layers: int = 4
    """Hidden layers of each member."""
    units: int = 200
    """Units per hidden layer."""
    learning_rate: float = 2.8e-4
    """Step size of Adam."""
    weight_decay: float = 1e-4
    """Weight decay of Adam."""
    batch_size: int = 512
    """Transitions per update and member."""
    beta: float = 0.0
    """Weight each likelihood term by its variance to this power (β-NLL); 0 is the plain likelihood."""
    log_variance_min: float = -10.0
    """Soft lower bound of predicted log-variances."""
    log_variance_max: float = 0.5
    """Soft upper bound of predicted log-variances."""
    held_out: float = 0.1
    """Share of transitions kept from training, to rank members and to stop early."""
    patience: int = 5
    """Epochs without better held-out likelihood after which training stops early."""


@dataclass(frozen=True)
class PlannerConfig:
    """Trajectory optimisation with the learned model."""

    method: Literal["icem", "cem"] = "icem"
    """Optimiser: iCEM, or plain CEM (white noise, no memory)."""
    iterations: int = 3
    """Refits of the sampling distribution per plan."""
    population: int = 400
    """Action sequences sampled per iteration."""
    elite_ratio: float = 0.01
    """Share of the population the distribution is refitted to."""
    momentum: float = 0.1
    """Share of the old mean and deviation kept at each refit."""
    noise_exponent: float = 3.0
    """Exponent of the power spectrum of the sampled noise; 0 is white."""
    keep_fraction: float = 0.3
    """Share of elites kept across iterations and, shifted, across steps."""
    population_decay: float = 1.0
    """Factor by which the population shrinks per iteration; 1 keeps it."""
    initial_std: float = 0.25
    """Initial standard deviation, as a share of the action range."""
    execute: Literal["mean", "best"] = "mean"
    """What is executed: the refitted mean, or the best sampled sequence."""
    replan_every: int = 1
    """Environment steps between two plans."""
    propagation: Literal["ts1", "mean", "shared"] = "ts1"
    """How imagined states advance: sampled particles that change members (ts1), each elite with a mean of
    its own (mean), or one state on which all members are evaluated (shared)."""
    particles: int = 20
    """Particles per action sequence with ts1."""
    variance_limit: float = 100.0
    """Sequences whose particle variance, summed over the horizon, exceeds this are discarded."""
