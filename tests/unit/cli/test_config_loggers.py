"""What is said about loggers and levels that there are not."""

import pytest

from pyrklog.admin import broker_loggers
from pyrklog.cli.config_cluster import DELETE, SET, Operation, refuse_unknown
from pyrklog.cli.config_kinds import Kind
from pyrklog.cli.config_loggers import LEVELS, LISTED_MAX, like_or_all, spelled
from pyrklog.cli.failures import CliError


def test_levels_are_those_of_brokers() -> None:
    assert set(LEVELS) == set(broker_loggers.LEVELS)
    (one,) = spelled([Operation("configs", " debug ", SET)])
    assert one.value == "DEBUG"


def test_an_unknown_level_is_refused_with_those_there_are() -> None:
    with pytest.raises(CliError) as caught:
        spelled([Operation("configs", "loud", SET)])
    assert caught.value.what == "LOUD is no level of a logger (configs)"
    assert caught.value.fix == "levels: TRACE, DEBUG, INFO, WARN, ERROR, FATAL"


def test_loggers_are_named_unless_there_are_too_many() -> None:
    assert like_or_all(["nope"], ["admin", "root"], "1") == "loggers of broker 1: admin, root"
    assert like_or_all(["configz"], ["admin", "configs"], "1") == "did you mean configs?"
    many = [f"org.apache.{number}" for number in range(LISTED_MAX + 1)]
    assert like_or_all(["nope"], many, "1") == "see `pyrklog config describe broker-loggers 1`"


def test_a_logger_that_is_not_there_has_no_level_to_take_away() -> None:
    with pytest.raises(CliError) as caught:
        refuse_unknown(Kind.BROKER_LOGGERS, "3", [Operation("nope", None, DELETE)], {})
    assert str(caught.value.fix).startswith("loggers of broker 3: ")
