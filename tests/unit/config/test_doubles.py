"""Doubles as Java reads and writes them."""

import pytest

from pyrklog.config.option import InvalidValueError, as_java, double

RATIO = double("some.ratio", 0.5)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (0.5, "0.5"),
        (100.0, "100.0"),
        (0.001, "0.001"),
        (0.0009, "9.0E-4"),
        (9_999_999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (-12_345_678.5, "-1.23456785E7"),
        (1e8, "1.0E8"),
        (1e23, "1.0E23"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
    ],
)
def test_a_double_is_written_as_by_java(value: float, text: str) -> None:
    assert as_java(value) == text
    assert RATIO.format(value) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.5f", 0.5),
        (" 2D ", 2.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("+1e-2", 0.01),
        ("-1E+3d", -1000.0),
        ("Infinity", float("inf")),
    ],
)
def test_a_double_is_read_as_by_java(text: str, value: float) -> None:
    assert RATIO.parse(text) == value


@pytest.mark.parametrize(
    "text", ["", "x", "1_0", "inf", "nan", "NaN", "1e", ".", "f", "0x1p-2", "1 f"]
)
def test_no_double(text: str) -> None:
    with pytest.raises(InvalidValueError, match="Not a number of type DOUBLE"):
        RATIO.parse(text)
