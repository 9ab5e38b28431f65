import pytest

from pyrklog.cli.durations import parse_seconds
from pyrklog.cli.failures import CliError, Exit


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("60s", 60.0), ("5m", 300.0), ("1h", 3600.0), ("2d", 172_800.0), ("250ms", 0.25), ("3", 3.0)],
)
def test_durations_are_parsed(text: str, seconds: float) -> None:
    assert parse_seconds(text, "--for") == seconds


@pytest.mark.parametrize("text", ["", "s", "-1s", "1w", "1 s s", "nan", "1e9s", "٣s"])
def test_malformed_durations_are_refused(text: str) -> None:
    with pytest.raises(CliError, match="--for takes a time") as caught:
        parse_seconds(text, "--for")
    assert caught.value.code is Exit.USAGE
