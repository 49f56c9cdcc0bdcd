"""Student's interval of a few values, and several hypotheses at once, against scipy and statsmodels."""

from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests

from morph_vla.errors import MorphVlaError
from morph_vla.results.intervals import holm, student, within

VALUES = st.lists(st.integers(-300, 300).map(lambda n: n / 300), min_size=2, max_size=12)


@settings(max_examples=40)
@given(st.floats(0, 200), st.integers(1, 60))
def test_the_finite_sum_is_students_distribution(t, degrees):
    np.testing.assert_allclose(within(t, degrees), 1 - 2 * stats.t.sf(t, degrees), atol=1e-12)


@settings(max_examples=40)
@given(VALUES, st.sampled_from([0.5, 0.9, 0.95, 0.999]))
def test_the_interval_and_the_p_value_are_scipys(values, confidence):
    mean = student(values, confidence)
    assert mean is not None
    if np.ptp(values) == 0:
        assert mean.low == mean.high == mean.mean
        return
    theirs: Any = stats.ttest_1samp(values, 0.0)
    bounds = theirs.confidence_interval(confidence)
    np.testing.assert_allclose([mean.low, mean.high], [bounds.low, bounds.high], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose([mean.mean, mean.p_value], [np.mean(values), theirs.pvalue], atol=1e-10)


@settings(max_examples=40)
@given(VALUES)
def test_the_interval_excludes_zero_exactly_where_the_test_rejects(values):
    mean = student(values)
    assert mean is not None
    if abs(mean.p_value - 0.05) > 1e-9 and np.ptp(values) > 0:
        assert (mean.low > 0 or mean.high < 0) == (mean.p_value < 0.05)


def test_one_value_has_no_interval_and_equal_ones_one_of_no_width():
    assert student([0.3]) is None
    assert student([]) is None
    equal = student([0.25, 0.25, 0.25])
    assert equal is not None
    assert (equal.low, equal.high, equal.p_value) == (0.25, 0.25, 0.0)
    nothing = student([0.0, 0.0])
    assert nothing is not None
    assert nothing.p_value == 1.0
    with pytest.raises(MorphVlaError, match=r"^the confidence must be between 0 and 1, got 95"):
        student([1.0, 2.0], 95.0)


@settings(max_examples=40)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holms_p_values_are_those_of_statsmodels(p_values):
    with mock.patch("gc.collect"):  # it calls that each time: a third of a second beside JAX's objects
        theirs: Any = multipletests(p_values, method="holm")[1]
    np.testing.assert_allclose(holm(p_values), theirs, atol=1e-12)


def test_the_smallest_of_two_is_doubled_and_the_other_no_smaller():
    assert holm([0.04, 0.03]) == [0.06, 0.06]
    assert holm([0.01, 0.04]) == [0.02, 0.04]
    assert holm([]) == []
