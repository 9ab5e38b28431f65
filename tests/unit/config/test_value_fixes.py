"""Numbers with units, where an option takes a plain number."""

import pytest

from pyrklog.config.load import load_config
from pyrklog.config.value_fixes import fix_for_number
from pyrklog.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "text", "fix"),
    [
        ("log.retention.ms", "7d", "it takes milliseconds: log.retention.ms=604800000"),
        ("retention.ms", " 90 min ", "it takes milliseconds: retention.ms=5400000"),
        ("log.retention.hours", "7d", "it takes hours: log.retention.hours=168"),
        ("log.retention.hours", "90m", "it takes hours, as a number"),
        ("segment.bytes", "1GiB", "it takes bytes: segment.bytes=1073741824"),
        ("segment.bytes", "64k", "it takes bytes: segment.bytes=65536"),
        ("segment.bytes", "7d", None),
        ("retention.ms", "1GiB", None),
        ("retention.ms", "soon", None),
        ("retention.ms", "12", None),
        ("num.partitions", "3d", None),
    ],
)
def test_a_number_in_the_unit_of_the_option(name: str, text: str, fix: str | None) -> None:
    assert fix_for_number(name, text) == fix


@pytest.mark.parametrize(
    ("given", "fix"),
    [
        ("log.retention.ms=7d", "it takes milliseconds: log.retention.ms=604800000"),
        ("num.partitions=none", "see `pyrklog config explain num.partitions`"),
    ],
)
def test_a_broker_that_does_not_start_tells_it(given: str, fix: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(overrides=[given])
    assert refused.value.fix == fix
