"""Exit codes, and the form of errors."""

from types import SimpleNamespace
from typing import Any

import pytest
import typer
from confluent_kafka import KafkaError, KafkaException

from pyrklog.base.problems import Problem
from pyrklog.cli import failures
from pyrklog.cli.bootstrap import addresses
from pyrklog.cli.connection import missing_topic
from pyrklog.cli.failures import (
    CliError,
    Exit,
    cli_error,
    counted,
    exit_code,
    guarded,
    missing_partition,
    worst,
)
from pyrklog.cli.group_seek import _given
from pyrklog.cli.group_state import patiently
from pyrklog.cli.option_advice import advice, explained, like_option, like_or_listed, parted
from pyrklog.cli.options import Settings, parse_pairs
from pyrklog.errors import ConfigError


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (KafkaError._TRANSPORT, 3),
        (KafkaError._ALL_BROKERS_DOWN, 3),
        (KafkaError._RESOLVE, 3),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, 4),
        (KafkaError._UNKNOWN_PARTITION, 4),
        (KafkaError._UNKNOWN_TOPIC, 4),
        (KafkaError.TOPIC_ALREADY_EXISTS, 5),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, 6),
        (KafkaError.SASL_AUTHENTICATION_FAILED, 6),
        (KafkaError._AUTHENTICATION, 6),
        (KafkaError._TIMED_OUT, 7),
        (KafkaError._MSG_TIMED_OUT, 7),
        (KafkaError.REQUEST_TIMED_OUT, 7),
        (KafkaError.INVALID_CONFIG, 1),
    ],
)
def test_errors_of_kafka_have_exit_codes(code: int, expected: int) -> None:
    assert exit_code(KafkaError(code)) == expected


def test_an_error_has_its_number_and_fix() -> None:
    error = CliError(Problem.BROKER_REFUSED, "it\nbroke  twice.", "mend it")
    assert error.text() == "error[PK37]: it broke twice\n  fix: mend it"
    assert CliError(Problem.BROKER_REFUSED, "it broke").text() == "error[PK37]: it broke"


def test_kafka_error_names_its_subject() -> None:
    error = cli_error(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS), "topic a")
    assert error.text().startswith("error[PK62]: topic a: ")
    assert "--if-not-exists" in error.text()


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([], Exit.OK),
        ([Exit.OK, Exit.OK], Exit.OK),
        ([Exit.EXISTS, Exit.EXISTS], Exit.EXISTS),
        ([Exit.OK, Exit.EXISTS], Exit.PARTIAL),
        ([Exit.NOT_FOUND, Exit.EXISTS], Exit.FAILED),
    ],
)
def test_several_items_end_with_one_code(codes: list[Exit], expected: Exit) -> None:
    assert worst(codes) is expected


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (CliError(Problem.TOPIC_NOT_FOUND, "x"), 4),
        (ConfigError(Problem.OPTION_VALUE, "x"), 78),
        (KeyboardInterrupt(), 130),
        (OSError(28, "No space left on device"), 1),
    ],
)
def test_raised_error_decides_the_exit_code(
    raised: BaseException, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    @guarded
    def command() -> None:
        raise raised

    monkeypatch.setattr(failures, "discard_output", lambda: None)
    with pytest.raises(typer.Exit) as caught:
        command()
    assert caught.value.exit_code == expected


def test_a_bug_says_so(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    @guarded
    def command() -> None:
        raise ZeroDivisionError("division\nby zero")

    monkeypatch.delenv("PYRKLOG_TRACEBACK", raising=False)
    with pytest.raises(typer.Exit) as caught:
        command()
    assert caught.value.exit_code == Exit.FAILED
    told = capsys.readouterr().err
    assert told.startswith(
        "error[PK53]: unexpected ZeroDivisionError: division by zero\n  fix: a bug: "
    )
    assert told.count("\n") == 2
    monkeypatch.setenv("PYRKLOG_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        command()


def test_undecodable_argument_is_a_usage_error() -> None:
    @guarded
    def command(name: str, values: list[str]) -> None:
        assert values == ["a\udcff"]  # a record may have any bytes

    command(name="a", values=["a\udcff"])
    with pytest.raises(typer.Exit) as caught:
        command(name="a\udcff", values=["a\udcff"])
    assert caught.value.exit_code == Exit.USAGE


@pytest.mark.parametrize(
    ("bootstrap", "expected"),
    [
        ("a:1", [("a", 1)]),
        ("a", [("a", 9092)]),
        ("a:1, b:2,", [("a", 1), ("b", 2)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("[::1]", [("::1", 9092)]),
        ("PLAINTEXT://a:1", [("a", 1)]),
        (":9095", [("127.0.0.1", 9095)]),
    ],
)
def test_bootstrap_addresses_are_parsed(bootstrap: str, expected: list[tuple[str, int]]) -> None:
    assert addresses(bootstrap) == expected


@pytest.mark.parametrize("bootstrap", ["", ",", "a:b", "a:0", "a:70000"])
def test_texts_that_are_no_address(bootstrap: str) -> None:
    with pytest.raises(CliError, match="-b takes HOST:PORT") as caught:
        addresses(bootstrap)
    assert caught.value.code is Exit.USAGE


def test_a_topic_with_a_like_name_is_proposed() -> None:
    assert missing_topic("oders", ["orders", "x"]).fix == "did you mean orders?"
    assert missing_topic("new", ["orders"], "make it").fix == "make it"
    assert missing_topic("new", ["orders"]).fix == "see `pyrklog topic list`"
    assert missing_topic("", ["orders"]).code is Exit.USAGE


def test_an_option_with_a_like_name_is_proposed() -> None:
    known = ["retention.ms", "retention.bytes", "segment.ms"]
    assert like_option(["segment.ms", "retention.mss"], known) == "did you mean retention.ms?"
    assert like_option(["cleanup"], known) is None
    assert like_or_listed("retention.mss", known, "topic", "a") == "did you mean retention.ms?"
    listed = "see `pyrklog config describe topic a`"
    assert like_or_listed("nosuch", known, "topic", "a") == listed


class _Asked:
    """Fails with these codes, one a time, then answers."""

    def __init__(self, *codes: int) -> None:
        self._codes = list(codes)

    def __call__(self) -> str:
        if self._codes:
            raise KafkaException(KafkaError(self._codes.pop(0)))
        return "answer"


def test_a_coordinator_that_loads_is_waited_for() -> None:
    patient: Any = SimpleNamespace(settings=Settings(timeout_s=60))
    loading = KafkaError.COORDINATOR_LOAD_IN_PROGRESS
    asked = _Asked(loading, KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE)
    assert patiently(patient, asked) == "answer"
    with pytest.raises(KafkaException):
        patiently(patient, _Asked(KafkaError.GROUP_AUTHORIZATION_FAILED))
    impatient: Any = SimpleNamespace(settings=Settings(timeout_s=-1))
    with pytest.raises(KafkaException):
        patiently(impatient, _Asked(loading))


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
def test_an_internal_topic_takes_no_records(name: str) -> None:
    told = cli_error(KafkaError(KafkaError.TOPIC_EXCEPTION), "nothing written", topic=name)
    what = "nothing written: an internal topic takes no records of clients"
    assert told.text() == f"error[PK37]: {what}"
    own = KafkaError(KafkaError.TOPIC_EXCEPTION, "A broker's own words.")
    assert cli_error(own, "topic a", topic=name).what == "topic a: A broker's own words."


def test_counts_agree_with_their_nouns() -> None:
    assert [counted(count, "record") for count in (0, 1, 2)] == [
        "0 records",
        "1 record",
        "2 records",
    ]
    assert counted(2, "batch", "batches") == "2 batches"


@pytest.mark.parametrize(
    ("message", "given", "fix"),
    [
        (
            "Invalid value 99 for configuration Invalid dynamic configuration",
            ["log.cleaner.threads"],
            "see `pyrklog config explain log.cleaner.threads`",
        ),
        (
            "Invalid value soon for configuration retention.ms: Not a number",
            ["retention.ms", "segment.ms"],
            "see `pyrklog config explain retention.ms`",
        ),
        (
            "Invalid value 7d for configuration retention.ms: Not a number of type LONG",
            ["retention.ms"],
            "it takes milliseconds: retention.ms=604800000",
        ),
        ("Invalid value 1 for configuration no.such: Bad", ["no.such"], None),
        ("Something else", ["retention.ms"], None),
        (
            "Config value append is not allowed for config key: retention.ms",
            ["retention.ms"],
            "it is no list: give --set NAME=VALUE",
        ),
        (
            "Can't SUBTRACT to key retention.ms because its type is not LIST.",
            ["retention.ms"],
            "it is no list: give --set NAME=VALUE",
        ),
    ],
)
def test_only_known_options_are_to_be_explained(
    message: str, given: list[str], fix: str | None
) -> None:
    assert advice(message, given, given) == fix
    assert explained(["no.such", "retention.ms"]) == "see `pyrklog config explain retention.ms`"
    assert explained(["no.such"]) is None


def test_an_option_that_changes_at_run_time_is_named() -> None:
    by_file = "set it in the broker's file (pyrklog: --config, or serve --set), and restart it"
    for option, value, fix in (
        ("log.retention.hours", "24", "give --set log.retention.ms=86400000"),
        ("log.retention.minutes", "-1", "give --set log.retention.ms=-1"),
        ("log.roll.hours", "1", "give --set log.roll.ms=3600000"),
        ("log.roll.jitter.hours", None, "give log.roll.jitter.ms"),
        ("log.flush.scheduler.interval.ms", "5", "give --set log.flush.interval.ms=5"),
    ):
        message = f"Cannot update these configs dynamically: Set({option})"
        told = advice(message, [option], [option], {option: value})
        assert told == f"{fix}, which counts at once and before {option}; or {by_file}"
    assert advice("Cannot update these configs dynamically: x", ["broker.id"], []) == by_file


def test_a_brokers_proposal_is_the_fix() -> None:
    what = "broker 1: Unknown broker option num.io.thread"
    told = f"{what}; did you mean num.io.threads?"
    assert parted(told) == (what, "did you mean num.io.threads?")
    assert parted(f"{what}.") == (f"{what}.", None)


def test_a_missing_partition_tells_those_there_are() -> None:
    assert missing_partition("orders", 7, 1).text() == (
        "error[PK61]: topic orders has no partition 7: it has 1 partition, 0\n"
        "  fix: see `pyrklog topic describe orders`"
    )
    assert missing_partition("a", 7, 3).what.endswith(": it has 3 partitions, 0 to 2")
    refused = KafkaError(KafkaError._UNKNOWN_PARTITION)
    assert cli_error(refused, "a", topic="a").fix == "see `pyrklog topic describe a`"
    assert cli_error(refused, "a").fix == "see `pyrklog topic describe TOPIC`"


def test_fewer_partitions_have_a_fix() -> None:
    refused = cli_error(KafkaError(KafkaError.INVALID_PARTITIONS), "topic orders")
    assert refused.fix == "partitions are added, never removed: give more than there are"


def test_key_value_pairs_are_parsed() -> None:
    assert parse_pairs(["a=1", "b=2=3", "c="], "-X") == {"a": "1", "b": "2=3", "c": ""}
    for bad in ("a", "=1"):
        with pytest.raises(CliError, match="-X takes KEY=VALUE"):
            parse_pairs([bad], "-X")


def test_a_name_is_advised_only_where_it_is_illegal() -> None:
    refused = KafkaError(KafkaError.TOPIC_EXCEPTION)
    advice = "names have up to 249 letters"
    assert advice in (cli_error(refused, "topic a/b", topic="a/b").fix or "")
    assert advice in (cli_error(refused, "x", topic="a" * 250).fix or "")
    # Without the broker's text the reason is unknown.
    assert cli_error(refused, "topic b", topic="b").fix == "`pyrklog topic create b` tells why"
    reason = "A log directory holds folders of an older topic 'b'; move them away first."
    told = cli_error(KafkaError(KafkaError.TOPIC_EXCEPTION, reason), "topic b", topic="b")
    assert told.text() == f"error[PK37]: topic b: {reason.rstrip('.')}"


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("yesterday", "start, end, an offset, +N, -N, @TIME, current, FILE"),
        ("", "not ''"),
        (".", "not '.': it is a directory"),
        ("nowhere", "there is no such file"),
        ("x" * 300, "no file can be read there (File name too long)"),
        (f"{__file__}/offsets", "no file can be read there (Not a directory)"),
        ("/dev/null", "/dev/null has no offsets"),
        ("group:", "--to group: takes the name of a group"),
    ],
)
def test_offset_target_without_offsets_is_refused(target: str, said: str) -> None:
    unasked: Any = None
    with pytest.raises(CliError) as caught:
        _given(unasked, target)
    is_missing = "there is no such file" in caught.value.what and target
    assert caught.value.code is (Exit.NOT_FOUND if is_missing else Exit.USAGE)
    assert said in caught.value.what
