"""Means and their intervals, held against rliable and against what intervals promise."""

from dataclasses import astuple
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from rliable import library, metrics

from curioplan.analysis.statistics import interquartile_mean, iqm_interval, mean_interval
from curioplan.errors import ConfigError, CurioplanError

INTERVALS = pytest.mark.parametrize("interval", [mean_interval, iqm_interval])
MATRICES = arrays(
    np.float64, st.tuples(st.integers(1, 6), st.integers(1, 5)), elements=st.floats(0, 1, width=16)
)
DRAWS = 1500


def rng(seed=0):
    return np.random.default_rng(seed)


def scores_of(kind, runs=9, cases=24):
    """Scores as they come: success or not in easy and hard cases, or steps to the goal."""
    chance = rng(1).uniform(0.05, 0.95, cases)
    if kind == "success":
        return (rng(2).random((runs, cases)) < chance).astype(float)
    return rng(2).gamma(2.0, 30.0, (runs, cases)) * chance


def seed_rliable():
    np.random.seed(0)  # noqa: NPY002  the global generator is what it draws from, even if given another


def draws_of_rliable(scores, statistic):
    """Bootstrapped values of a statistic, as rliable draws them: about a millisecond each."""
    seed_rliable()
    bootstrap = library.StratifiedBootstrap(scores)
    return bootstrap.apply(lambda each: np.array([statistic(each)]), reps=DRAWS)[:, 0]


def assert_between_percentiles(found, draws, confidence):
    """The ends of an interval cut off what they should of some other bootstrap's draws, up to four sigma."""
    outside = (1 - confidence) / 2
    slack = 4 * np.sqrt(outside * (1 - outside) * (1 / len(draws) + 1 / 10_000))
    close = 1e-9 * max(abs(found.low), abs(found.high), 1)  # sums of the same scores in another order
    for below, up_to in (
        ((draws < found.low - close).mean(), (draws <= found.low + close).mean()),
        ((draws > found.high + close).mean(), (draws >= found.high - close).mean()),
    ):
        assert below - slack <= outside <= up_to + slack


@pytest.mark.parametrize("kind", ["success", "steps"])
@pytest.mark.parametrize("shape", [(9, 24), (3, 5)])
def test_interquartile_means_and_their_intervals_equal_those_of_rliable(shape, kind):
    scores = scores_of(kind, *shape)
    draws = draws_of_rliable(scores, metrics.aggregate_iqm)
    for confidence in (0.9, 0.95):
        found = iqm_interval(scores, rng(), confidence=confidence)
        assert found.estimate == pytest.approx(metrics.aggregate_iqm(scores), rel=1e-12)
        assert_between_percentiles(found, draws, confidence)


@pytest.mark.parametrize("kind", ["success", "steps"])
def test_mean_intervals_equal_those_of_rliable_on_the_means_of_runs(kind):
    scores = scores_of(kind)
    draws = draws_of_rliable(scores.mean(1, keepdims=True), metrics.aggregate_mean)
    for confidence in (0.9, 0.95):
        found = mean_interval(scores, rng(), confidence=confidence)
        assert found.estimate == pytest.approx(metrics.aggregate_mean(scores), rel=1e-12)
        assert_between_percentiles(found, draws, confidence)


def test_intervals_of_rliable_are_ours_within_a_tenth_of_their_width():
    scores = scores_of("steps")
    seed_rliable()
    _, theirs = library.get_interval_estimates(
        {"ours": scores},
        lambda each: np.array([metrics.aggregate_iqm(each)]),
        reps=DRAWS,
        confidence_interval_size=0.9,
    )
    found, (low, high) = iqm_interval(scores, rng()), theirs["ours"][:, 0]
    assert [found.low, found.high] == pytest.approx([low, high], abs=0.1 * (high - low))


def test_the_interval_of_three_runs_is_that_of_all_27_ways_to_draw_them():
    per_run = np.array([0.1, 0.35, 0.9])
    ways = np.array([np.mean(way) for way in product(per_run, repeat=3)])
    assert_between_percentiles(mean_interval(per_run[:, None], rng()), np.tile(ways, 1000), 0.9)


@given(scores=MATRICES)
def test_the_interquartile_mean_is_that_of_rliable_whatever_the_scores(scores):
    assert interquartile_mean(scores) == pytest.approx(metrics.aggregate_iqm(scores), rel=1e-9, abs=1e-12)


@INTERVALS
@settings(deadline=None)
@given(scores=MATRICES, seed=st.integers(0, 100))
def test_intervals_are_ordered_and_within_the_range_of_the_scores(interval, scores, seed):
    found = interval(scores, rng(seed), resamples=50)
    assert scores.min() - 1e-9 <= found.low <= found.high <= scores.max() + 1e-9
    assert scores.min() - 1e-9 <= found.estimate <= scores.max() + 1e-9
    assert found.runs == len(scores)


@INTERVALS
@settings(deadline=None)
@given(scores=MATRICES, scale=st.floats(0.01, 100), shift=st.floats(-100, 100))
def test_intervals_follow_the_unit_of_the_scores(interval, scores, scale, shift):
    plain, moved = (interval(each, rng(), resamples=50) for each in (scores, scale * scores + shift))
    for name in ("estimate", "low", "high"):
        assert getattr(moved, name) == pytest.approx(scale * getattr(plain, name) + shift, abs=1e-6)


@INTERVALS
def test_more_confidence_means_wider_intervals_and_more_runs_narrower_ones(interval):
    scores = scores_of("steps", 40, 6)
    (low, high), (lower, higher) = (
        astuple(interval(scores, rng(), confidence=confidence))[1:3] for confidence in (0.5, 0.99)
    )
    assert lower < low < high < higher
    few = interval(scores[:5], rng(), confidence=0.99)
    assert few.high - few.low > 1.2 * (higher - lower)


@INTERVALS
def test_intervals_of_many_runs_hold_the_truth_as_often_as_they_say(interval):
    trials, draw = 400, rng(3)
    found = [interval(draw.normal(size=(30, 3)), draw, resamples=400) for _ in range(trials)]
    covered = np.mean([each.low <= 0 <= each.high for each in found])
    assert covered == pytest.approx(0.9, abs=0.03 + 3 * np.sqrt(0.09 / trials))


def test_what_the_cases_of_a_run_have_in_common_widens_the_mean_interval_only():
    common = np.repeat(rng(4).normal(size=(20, 1)), 12, axis=1)
    alone = rng(5).permuted(common, axis=0)  # the same scores case by case, runs mixed up
    for interval, ratio in ((mean_interval, 12**0.5), (iqm_interval, 1)):
        widths = [found.high - found.low for found in (interval(common, rng()), interval(alone, rng()))]
        assert widths[0] / widths[1] == pytest.approx(ratio, rel=0.35)


@INTERVALS
@pytest.mark.parametrize("scores", [np.full((1, 1), 0.3), np.full((9, 24), 0.7), np.zeros((4, 1))])
def test_where_there_is_no_variation_the_interval_is_a_point(interval, scores):
    found = interval(scores, rng())
    assert [found.low, found.high] == pytest.approx([found.estimate] * 2)
    assert found.estimate == pytest.approx(scores[0, 0])


@INTERVALS
def test_one_run_has_no_interval_and_says_that_it_is_one(interval):
    found = interval(rng().random((1, 24)), rng())
    assert (found.low, found.high, found.runs) == (found.estimate, found.estimate, 1)


@INTERVALS
def test_the_same_seed_gives_the_same_interval(interval):
    scores = scores_of("steps")
    first, again, other = (interval(scores, rng(seed), resamples=100) for seed in (7, 7, 8))
    assert first == again != other


def test_resampling_in_batches_changes_nothing_but_the_memory_it_takes(monkeypatch):
    scores = scores_of("steps")
    whole = iqm_interval(scores, rng(), resamples=500)
    monkeypatch.setattr("curioplan.analysis.statistics.BATCH", 7 * scores.size)
    assert iqm_interval(scores, rng(), resamples=500) == whole


@INTERVALS
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_scores_that_are_no_numbers_are_refused_by_name(interval, bad):
    scores = scores_of("success")
    scores[4, 17] = bad
    with pytest.raises(CurioplanError, match=f"run 4 in case 17 .* is {bad}"):
        interval(scores, rng())


@INTERVALS
@pytest.mark.parametrize("shape", [(9,), (0, 3), (3, 0), (2, 2, 2)])
def test_scores_that_are_no_matrix_are_refused(interval, shape):
    with pytest.raises(CurioplanError, match="matrix"):
        interval(np.zeros(shape), rng())


@INTERVALS
@pytest.mark.parametrize("wrong", [{"confidence": 0.0}, {"confidence": 90}, {"resamples": 0}])
def test_impossible_settings_are_refused(interval, wrong):
    with pytest.raises(ConfigError, match="confidence between 0 and 1"):
        interval(np.zeros((2, 2)), rng(), **wrong)
