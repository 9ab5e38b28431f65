"""What Kafka was told to keep: options of brokers, and defaults that nobody can see."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from pyrklog.adoption.broker_options import (
    CENTURY_MS,
    Defaults,
    kept_options,
    known_defaults,
    run_time_options,
)
from pyrklog.adoption.kraft import ALL_BROKERS, KraftMetadata
from pyrklog.adoption.plan import KEEP_EVERYTHING
from pyrklog.config.load import load_config
from pyrklog.config.topic import check_topic_options

MARK = "pyrklog.adopted.unconfirmed"
NEVER = {"retention.ms": "-1", MARK: "retention.ms"}
FROZEN = {
    "delete.retention.ms": CENTURY_MS,
    "min.compaction.lag.ms": CENTURY_MS,
    MARK: "delete.retention.ms,min.compaction.lag.ms",
}
COMPACT = {"cleanup.policy": "compact"}


def defaults(
    of_all: Mapping[str, str] | None = None,
    overrides: Sequence[str] = (),
    file: Path | None = None,
    compacted: frozenset[str] = frozenset(),
    *,
    is_known: bool = True,
    is_own_export: bool = False,
) -> Defaults:
    kraft = KraftMetadata(
        broker_options={ALL_BROKERS: dict(of_all or {})},
        knows_broker_options=is_known,
        is_own_export=is_own_export,
    )
    config = load_config(overrides=overrides, file=file)
    return known_defaults(config, kraft, run_time_options(1, kraft), compacted)


@pytest.fixture
def kafkas_file(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text("process.roles=broker,controller\nlog.retention.hours=-1\n")
    return path


def test_options_of_this_broker_and_of_all_are_taken_over() -> None:
    kraft = KraftMetadata(
        broker_options={
            ALL_BROKERS: {"log.retention.ms": "-1", "background.threads": "3"},
            "1": {
                "log.retention.ms": "5",
                "log.segment.bytes": "none",
                "listener.name.ssl.ssl.keystore.password": "secret",
                "from.kafka.9": "1",
            },
            "2": {"log.retention.ms": "6", "log.segment.bytes": "9999"},
        }
    )
    found = run_time_options(1, kraft)
    assert found.usable == {
        ALL_BROKERS: {"log.retention.ms": "-1", "background.threads": "3"},
        "1": {"log.retention.ms": "5"},
    }
    assert found.left_out == {
        "1": ["from.kafka.9", "listener.name.ssl.ssl.keystore.password", "log.segment.bytes"]
    }
    assert found.of_others == 2
    assert found.in_force == {"log.retention.ms": "5", "background.threads": "3"}


def test_with_kafkas_file_nothing_is_unknown(kafkas_file: Path) -> None:
    found = defaults(file=kafkas_file)
    assert (found.unseen, found.unusable) == (set(), set())
    assert kept_options("t", {}, (), found) == {}
    assert kept_options("t", COMPACT, (), found) == {}


@pytest.mark.parametrize(
    ("own", "kept"),
    [
        ({}, NEVER),
        ({"retention.bytes": "7"}, NEVER),
        ({"retention.ms": "7"}, {}),
        ({"cleanup.policy": "delete"}, NEVER),
        ({"cleanup.policy": "delete", "retention.ms": "7"}, {}),
        (COMPACT, FROZEN),
        ({**COMPACT, "min.compaction.lag.ms": "0", "delete.retention.ms": "0"}, {}),
        (
            {**COMPACT, "max.compaction.lag.ms": "8"},
            {**FROZEN, "min.compaction.lag.ms": "8"},
        ),
        (
            {**COMPACT, "min.compaction.lag.ms": "0"},
            {"delete.retention.ms": CENTURY_MS, MARK: "delete.retention.ms"},
        ),
        (
            {"cleanup.policy": "compact, delete"},
            {
                **FROZEN,
                "retention.ms": "-1",
                MARK: "delete.retention.ms,min.compaction.lag.ms,retention.ms",
            },
        ),
    ],
)
def test_without_kafkas_file_topics_keep_what_they_may_have_kept(
    own: Mapping[str, str], kept: Mapping[str, str]
) -> None:
    found = kept_options("t", own, (), defaults())
    assert found == kept
    check_topic_options({**own, **found})
    for internal in ("__consumer_offsets", "__transaction_state"):
        assert kept_options(internal, own, (), defaults()) == {}


@pytest.mark.parametrize(
    ("of_all", "overrides"),
    [
        ({"log.retention.ms": "99"}, ()),
        ({}, ["log.retention.ms=99"]),
        ({}, ["log.retention.hours=99"]),
        ({}, ["log.retention.minutes=99"]),
    ],
)
def test_a_default_that_was_given_counts(
    of_all: Mapping[str, str], overrides: Sequence[str]
) -> None:
    found = defaults(of_all, overrides)
    assert kept_options("t", {}, (), found) == {}
    assert kept_options("t", COMPACT, (), found) == FROZEN


def test_a_default_policy_counts() -> None:
    found = defaults({"log.cleanup.policy": "compact"})
    assert kept_options("t", {}, (), found) == FROZEN
    assert kept_options("t", {"cleanup.policy": "delete"}, (), found) == NEVER
    given = defaults({"log.cleanup.policy": "compact", "log.cleaner.max.compaction.lag.ms": "5"})
    assert kept_options("t", {}, (), given)["min.compaction.lag.ms"] == "5"


def test_what_kafka_compacted_is_not_deleted_by_a_retention_that_meant_nothing() -> None:
    found = defaults(compacted=frozenset({"t"}))
    assert kept_options("t", {"retention.ms": "7"}, (), found) == KEEP_EVERYTHING
    assert kept_options("u", {"retention.ms": "7"}, (), found) == {}
    own = {"cleanup.policy": "delete", "retention.ms": "7"}
    assert kept_options("t", own, (), found) == {}


@pytest.mark.parametrize(
    ("of_all", "left_out", "kept"),
    [
        ({"log.cleanup.policy": "never"}, [], KEEP_EVERYTHING),
        ({}, ["cleanup.policy"], KEEP_EVERYTHING),
        ({"log.retention.ms": "a while"}, [], NEVER),
        ({}, ["retention.ms"], NEVER),
        ({}, ["retention.bytes"], {"retention.bytes": "-1", MARK: "retention.bytes"}),
        ({"log.segment.bytes": "?"}, ["segment.bytes"], {}),
    ],
)
def test_values_that_are_not_understood_keep_everything(
    kafkas_file: Path, of_all: Mapping[str, str], left_out: Sequence[str], kept: Mapping[str, str]
) -> None:
    found = defaults(of_all, file=kafkas_file)
    assert kept_options("t", {"segment.ms": "7"}, left_out, found) == kept


def test_options_that_could_not_be_read_are_unknown_whatever_the_file_says(
    kafkas_file: Path,
) -> None:
    found = defaults(file=kafkas_file, overrides=["log.retention.ms=5"], is_known=False)
    assert kept_options("t", {}, (), found) == NEVER


def test_our_own_export_hides_no_file_of_kafkas() -> None:
    assert kept_options("t", {}, (), defaults(is_own_export=True)) == {}
