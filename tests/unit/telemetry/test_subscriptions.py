from collections import Counter

import pytest

from pyrklog.config.client_metrics import INTERVAL_MS_DEFAULT
from pyrklog.errors import ApiError, ErrorCode
from pyrklog.telemetry import subscriptions as module
from pyrklog.telemetry.subscriptions import (
    ALL_CHARS_MAX,
    ALL_PATTERN_BYTES_MAX,
    ATTRIBUTE_CHARS_MAX,
    NAME_CHARS_MAX,
    PATTERN_BYTES_MAX,
    RESOURCE_CHARS_MAX,
    SHARED_REMEMBERED_MAX,
    Attributes,
    Subscriptions,
    Terms,
    attributes_of,
    check_room,
    read_subscription,
    subscription_id,
)

INSTANCE = bytes(range(16))
LARGEST = {"match": "client_id=(?:a?){100}a*"}
"""Few characters, and as large as a compiled pattern may be."""
BAD_REQUEST, BAD_CONFIG = ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG


def client(client_id: str | None = "shop-1", port: int = 40_001) -> Attributes:
    return attributes_of(
        INSTANCE,
        client_id=client_id,
        software_name="apache-kafka-java",
        software_version="3.9.1",
        address="10.0.0.7",
        port=port,
    )


def test_a_subscription_without_options_has_defaults() -> None:
    read = read_subscription("s", {})
    assert (read.metrics, read.interval_ms) == (frozenset(), INTERVAL_MS_DEFAULT)
    assert read.matches(client()), "no pattern is a match"


@pytest.mark.parametrize(
    ("name", "options", "code", "message"),
    [
        ("", {}, BAD_REQUEST, "Subscription name can't be empty"),
        ("s" * (NAME_CHARS_MAX + 1), {}, BAD_REQUEST, "at most 255 characters"),
        ("s", {"interval": "1"}, BAD_REQUEST, "Unknown client metrics configuration: interval"),
        (
            "s",
            {"interval.ms": "99"},
            BAD_REQUEST,
            "Invalid value 99 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        ),
        ("s", {"interval.ms": "3600001"}, BAD_REQUEST, "Invalid value 3600001 for interval.ms"),
        (
            "s",
            {"interval.ms": "soon"},
            BAD_CONFIG,
            "Invalid value soon for configuration interval.ms: Not a number of type INT",
        ),
        ("s", {"metrics": "x" * (RESOURCE_CHARS_MAX + 1)}, BAD_REQUEST, "at most 16384 characters"),
    ],
)
def test_wrong_subscriptions_are_refused(
    name: str, options: dict[str, str], code: ErrorCode, message: str
) -> None:
    with pytest.raises(ApiError) as refused:
        read_subscription(name, options)
    assert refused.value.code is code
    assert message in str(refused.value.message)


@pytest.mark.parametrize("interval_ms", [100, 3_600_000])
def test_the_bounds_of_the_interval_are_allowed(interval_ms: int) -> None:
    read = read_subscription("s", {"interval.ms": str(interval_ms)})
    assert read.interval_ms == interval_ms


NOT_TWO_PARTS = "not ATTRIBUTE=PATTERN"


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("client_id", NOT_TWO_PARTS),
        ("client_id=", NOT_TWO_PARTS),
        ("client_id=a=b", NOT_TWO_PARTS),
        ("=x", "the attributes are client_id, "),
        ("name=x", "the attributes are client_id, "),
        ("client_id=(", "found open group"),
        ("client_id=a)|(b", "without matching '('"),
        ("client_id=(?!a)", "look-around is not supported"),
        (r"client_id=(a)\1", "backreferences are not supported"),
        (r"client_id=\p{Alpha}", "Unicode character classes are not supported"),
        (r"client_id=\Qa\E", "unrecognized escape sequence"),
        ("client_id=[a&&b]", "character class intersection is not supported"),
        ("client_id=(a{1000}){1000}", "exceeded size limit"),
    ],
)
def test_wrong_patterns_are_refused_with_the_reason(pattern: str, reason: str) -> None:
    with pytest.raises(ApiError) as refused:
        read_subscription("s", {"match": f"client_source_port=1,{pattern}"})
    assert refused.value.code is BAD_CONFIG
    assert refused.value.message.startswith(f"Illegal client matching pattern: {pattern} (")
    assert reason in refused.value.message


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        ("client_id=shop-.*", True),
        ("client_id=shop", False),
        (" client_id = shop-1 ", True),
        ("client_id=shop-1=", True),
        ("client_id=shop|shop-1", True),
        ("client_instance_id=AAECAwQFBgcICQoLDA0ODw", True),
        ("client_software_name=apache-kafka-(java|python)", True),
        (r"client_software_version=3\..*", True),
        (r"client_software_version=4\..*", False),
        (r"client_source_address=10\.0\.0\.\d+", True),
        ("client_source_port=4[0-9]{4}", True),
        ("client_id=shop-1,client_source_port=1", False),
        ("client_id=no,client_id=shop-.*", True),
    ],
)
def test_all_patterns_must_match_whole_attributes(match: str, expected: bool) -> None:
    assert read_subscription("s", {"match": match}).matches(client()) is expected


def test_an_attribute_that_is_missing_or_too_long_matches_nothing() -> None:
    subscription = read_subscription("s", {"match": "client_id=.*"})
    assert subscription.matches(client("x" * ATTRIBUTE_CHARS_MAX))
    assert not subscription.matches(client("x" * (ATTRIBUTE_CHARS_MAX + 1)))
    assert not subscription.matches(client(None))


def test_terms_are_the_union_of_those_that_match() -> None:
    found = Subscriptions()
    found.replace(
        {
            "a": {"metrics": "b.,a.", "interval.ms": "60000"},
            "b": {"metrics": "c.", "interval.ms": "30000", "match": "client_id=shop-.*"},
            "c": {"metrics": "d.", "interval.ms": "100", "match": "client_id=other"},
        }
    )
    assert found.terms_for(client()) == Terms(["a.", "b.", "c."], 30_000)
    assert found.terms_for(client("x")) == Terms(["a.", "b."], 60_000)
    assert found.names == ["a", "b", "c"]


def test_all_metrics_replace_single_ones() -> None:
    found = Subscriptions()
    found.replace({"a": {"metrics": "b."}, "b": {"metrics": "*"}})
    assert found.terms_for(client()).metrics == ["*"]


def test_an_interval_above_the_default_is_not_granted() -> None:
    """As in Kafka: the default is the longest."""
    found = Subscriptions()
    found.replace({"a": {"metrics": "b.", "interval.ms": "3600000"}})
    assert found.terms_for(client()).interval_ms == INTERVAL_MS_DEFAULT


def test_a_subscription_that_cannot_be_read_is_set_aside() -> None:
    found = Subscriptions()
    found.replace({"bad": {"match": "client_id=("}, "good": {"metrics": "a."}})
    assert found.terms_for(client()).metrics == ["a."]
    assert found.names == ["bad", "good"]
    found.replace({"bad": {"metrics": "b."}})
    assert found.terms_for(client()).metrics == ["b."]


def test_the_subscription_id_is_kafkas() -> None:
    """CRC-32C of the metrics and the interval, with the hash of the instance's id."""
    terms, crc = Terms(["a."], 1000), 0x8F4AC1C4
    assert subscription_id(terms, bytes(16)) == crc - 2**32
    # Both halves together have the high word 2 and the low word 1.
    halves = (1).to_bytes(8, "big") + (2 << 32).to_bytes(8, "big")
    assert subscription_id(terms, halves) == (crc ^ 2 ^ 1) - 2**32
    assert subscription_id(Terms([], 300_000), bytes(16)) == 0xD4C75BDE - 2**32


def test_a_pattern_takes_room_as_it_is_compiled() -> None:
    assert read_subscription("s", LARGEST).takes.pattern_bytes == PATTERN_BYTES_MAX
    digits = {"match": "client_source_address=[0-9]{40}"}
    assert read_subscription("s", digits).takes.pattern_bytes == PATTERN_BYTES_MAX // 8
    two = {"match": "client_id=shop-.*,client_source_port=1"}
    assert read_subscription("s", two).takes.pattern_bytes <= 1024


@pytest.mark.parametrize(
    ("options", "most"),
    [
        (LARGEST, ALL_PATTERN_BYTES_MAX // PATTERN_BYTES_MAX),
        ({"metrics": "x" * (ALL_CHARS_MAX // 4 - len("metrics") // 8)}, 4),
    ],
)
def test_all_subscriptions_together_are_bounded(options: dict[str, str], most: int) -> None:
    one = read_subscription("s", options)
    check_room({}, one, [options] * (most - 1))
    with pytest.raises(ApiError, match="All subscriptions together") as refused:
        check_room({}, one, [options] * most)
    assert refused.value.code is BAD_REQUEST
    check_room(options, one, [options] * (most + 5))  # it does not grow
    check_room({}, one, [{"match": "client_id=("}] * 100)  # they are not used


def test_what_was_planted_beyond_the_bounds_is_left_out_by_its_name() -> None:
    found = Subscriptions()
    most = ALL_PATTERN_BYTES_MAX // PATTERN_BYTES_MAX
    planted = {f"p{n:02}": {**LARGEST, "metrics": f"m{n:02}."} for n in range(most + 50)}
    found.replace(dict(reversed(planted.items())))
    assert found.terms_for(client("aa")).metrics == [f"m{n:02}." for n in range(most)]
    assert len(found.names) == most + 50
    found.replace({"p99": planted["p49"]})
    assert found.terms_for(client("aa")).metrics == ["m49."]


def test_ids_and_ports_are_free_but_cost_no_match_of_other_patterns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    matched: Counter[str] = Counter()

    class Counting:
        def __init__(self, text: str) -> None:
            self.text = text

        def matches(self, text: str) -> bool:
            matched[self.text] += 1
            return self.text != "40005" or text == self.text

    module._compiled.cache_clear()
    monkeypatch.setattr(module, "Pattern", Counting)
    found = Subscriptions()
    found.replace(
        {
            "a": {"metrics": "a.", "match": "client_id=x"},
            "b": {"metrics": "b.", "match": "client_software_name=y,client_source_port=40005"},
        }
    )
    module._compiled.cache_clear()
    told = [found.terms_for(client(port=40_000 + n)).metrics for n in range(10)]
    assert told == [["a."]] * 5 + [["a.", "b."]] + [["a."]] * 4
    assert matched == {"x": 1, "y": 1, "40005": 10}
    for number in range(2 * SHARED_REMEMBERED_MAX):
        found.terms_for(client(f"c{number}"))
    assert found._by_shared.cache_info().currsize == SHARED_REMEMBERED_MAX
