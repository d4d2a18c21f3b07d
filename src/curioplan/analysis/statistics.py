"""What a few runs tell about all runs: means and interquartile means with bootstrap intervals.

Scores are a matrix ``(runs, cases)``: a run is one seed, a case one goal of the task or, over several tasks,
one of them. Intervals are those between percentiles of the statistic over resampled scores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curioplan.envs.task import Floats
from curioplan.errors import ConfigError, DataError

CONFIDENCE = 0.9  # that of the paper
RESAMPLES = 10_000
TRIMMED = 0.25  # share of the scores left out at either end by the interquartile mean
BATCH = 2**20  # scores resampled at once


@dataclass(frozen=True)
class Interval:
    """An estimate and its confidence interval.

    One run knows nothing of others, and its interval is the estimate alone: say how many runs there were.
    """

    estimate: float
    low: float
    high: float
    runs: int


def mean_interval(
    scores: NDArray[Any],
    rng: np.random.Generator,
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
) -> Interval:
    """The mean score with its simple bootstrap interval, as in the paper: whole runs are drawn anew.

    So all cases of a run stay together, and what they share (its data, its seed) widens the interval.
    """
    scores = _checked(scores)
    per_run = scores.mean(1)

    def resampled(count: int) -> Floats:
        return per_run[rng.integers(len(per_run), size=(count, len(per_run)))].mean(1)

    return _interval(float(per_run.mean()), resampled, scores, confidence, resamples)


def iqm_interval(
    scores: NDArray[Any],
    rng: np.random.Generator,
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
) -> Interval:
    """The interquartile mean with its stratified bootstrap interval, as of rliable (Agarwal et al., 2021).

    Stratified: the runs are drawn anew for every case on its own.
    """
    scores = _checked(scores)
    columns = np.arange(scores.shape[1])

    def resampled(count: int) -> Floats:
        rows = rng.integers(len(scores), size=(count, *scores.shape))
        return _middle_mean(scores[rows, columns].reshape(count, -1))

    return _interval(interquartile_mean(scores), resampled, scores, confidence, resamples)


def interquartile_mean(scores: NDArray[Any]) -> float:
    """The mean of the middle half of all scores of all runs and cases."""
    return float(_middle_mean(_checked(scores).reshape(1, -1))[0])


def _middle_mean(scores: Floats) -> Floats:
    """The mean of the middle half of each row."""
    cut = int(TRIMMED * scores.shape[1])
    kept = np.partition(scores, (cut, scores.shape[1] - cut - 1), axis=1)[:, cut : scores.shape[1] - cut]
    return kept.mean(1)


def _interval(
    estimate: float, resampled: Callable[[int], Floats], scores: Floats, confidence: float, resamples: int
) -> Interval:
    """The interval between the percentiles of a statistic, given a function that draws it so many times."""
    if not 0 < confidence < 1 or resamples < 1:
        raise ConfigError(
            "An interval needs a confidence between 0 and 1 and at least one resample, "
            f"not {confidence} and {resamples}."
        )
    at_once = max(1, BATCH // scores.size)
    counts = [min(at_once, resamples - done) for done in range(0, resamples, at_once)]
    draws = np.concatenate([resampled(count) for count in counts])
    low, high = np.quantile(draws, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(estimate, float(low), float(high), len(scores))


def _checked(scores: NDArray[Any]) -> Floats:
    scores = np.asarray(scores, np.float64)
    if scores.ndim != 2 or not scores.size:
        raise DataError(
            f"Scores must be a matrix of at least one run and one case, not of shape {scores.shape}; "
            "one score per run is a matrix of one column."
        )
    if not np.isfinite(scores).all():
        run, case = np.argwhere(~np.isfinite(scores))[0]
        raise DataError(
            f"The score of run {run} in case {case} (counted from 0) is {scores[run, case]}: "
            "leave unfinished runs out."
        )
    return scores
