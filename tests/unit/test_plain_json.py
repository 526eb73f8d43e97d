"""JSON without the numbers that JSON lacks."""

from __future__ import annotations

import math

import pytest

from gradientmail.plain_json import dumps, number


def test_numbers_that_json_lacks_are_strings_at_every_depth() -> None:
    value = {"a": [math.nan, (math.inf, 1.5)], "b": {"c": -math.inf}, "d": None, "e": True, "f": "NaN"}
    assert dumps(value) == (
        '{"a": ["NaN", ["Infinity", 1.5]], "b": {"c": "-Infinity"}, "d": null, "e": true, "f": "NaN"}'
    )


@pytest.mark.parametrize(("told", "value"), [("Infinity", math.inf), ("-Infinity", -math.inf), (2, 2.0), (0.5, 0.5)])
def test_numbers_come_back(told: object, value: float) -> None:
    assert number(told) == value


def test_nan_comes_back() -> None:
    assert math.isnan(number("NaN"))


@pytest.mark.parametrize("told", [None, True, [], "x"])
def test_what_is_no_number_is_refused(told: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        number(told)
