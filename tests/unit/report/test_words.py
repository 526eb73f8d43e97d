import pytest

from gradientmail.report.words import count, duration, number, percent, rate, size


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.0, "0.0 s"),
        (12.04, "12.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (125.4, "2 min 05 s"),
        (3599.6, "1 h 00 min"),
        (12_000.0, "3 h 20 min"),
    ],
)
def test_duration(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.25, "0.25"), (870.4, "870"), (1234.0, "1,234"), (12_345.0, "12.3k"), (3.21e6, "3.21M")],
)
def test_rate(value: float | None, text: str) -> None:
    assert rate(value) == text


def test_counts_take_their_noun_in_the_right_form() -> None:
    assert count(1, "unit") == "1 unit"
    assert count(100_000, "unit") == "100,000 units"
    assert count(0) == "0"
    assert count(None) == "-"


def test_percentages_and_numbers() -> None:
    assert percent(0.4583) == "46 %"
    assert percent(0.0049, 1) == "0.5 %"
    assert percent(None) == "-"
    assert number(1.23456) == "1.235"
    assert number(None) == "-"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (870, "870 B"), (999, "999 B"), (12_345, "12.3 kB"), (999_999, "1 MB"), (1.254e9, "1.25 GB")],
)
def test_sizes(value: float, text: str) -> None:
    assert size(value) == text
