"""A broker's file in its other form starts the same broker."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrklog.config.broker import OPTIONS, BrokerConfig
from pyrklog.config.convert import to_properties, to_toml
from pyrklog.config.entry import OptionType
from pyrklog.config.instead import instead_of
from pyrklog.config.known import JVM_ONLY, WITHOUT_EFFECT
from pyrklog.config.load import load_config
from pyrklog.config.properties import parse_properties
from pyrklog.config.toml_file import parse_toml
from pyrklog.errors import ConfigError
from tests.unit.config.test_load import KRAFT_MODE, ZOOKEEPER_MODE

MEMORY_BYTES = 8 * 2**30
FILE = """! Of the team.
#
# Where it listens.
listeners = PLAINTEXT://127.0.0.1:9092
pyrklog.cache.max.bytes=268435456

# Twice.
num.partitions=1
# The second counts.
num.partitions : 3
# More of memory.
# Less of disk.
pyrklog.cache.keep false
log.cleanup.policy=compact,\\
    delete
broker.rack=caf\\u00e9 \\ud83d\\ude00
config.providers=env
config.providers.env.class=EnvVarConfigProvider
pyrklog.unwritten.max.bytes=-1
log.cleaner.min.cleanable.ratio=0.50
ssl.key.password=a=b\\\\c"d
# The end.
"""
TOML = """# Of the team.
#
# Where it listens.
listeners = "PLAINTEXT://127.0.0.1:9092"

# Twice.
# num.partitions = 1 (line 10 gives it again, and counts)
# The second counts.
num.partitions = 3
log.cleanup.policy = ["compact", "delete"]
broker.rack = "café 😀"
"config.providers" = "env"
config.providers.env.class = "EnvVarConfigProvider"
log.cleaner.min.cleanable.ratio = "0.50"
ssl.key.password = "a=b\\\\c\\"d"
# The end.

[cache]
max.bytes = 268435456
# More of memory.
# Less of disk.
keep = false

[isolation]
unwritten.max.bytes = -1
"""


def test_comments_stay_above_their_options() -> None:
    assert to_toml(FILE) == TOML


def test_toml_becomes_properties() -> None:
    text = 'a.b = 1  # behind\n\n# above\n[cache]  # a table\nkeep = [ # within\n "x", "y"]\n'
    assert to_properties(text) == (
        "# behind\na.b=1\n\n# above\n# a table\n# within\npyrklog.cache.keep=x,y\n"
    )
    back = {one.key: one.value for one in parse_properties(to_properties(TOML))}
    assert back == {one.key: one.value for one in parse_properties(FILE)}
    assert "broker.rack=caf\\u00e9 \\ud83d\\ude00\n" in to_properties(TOML)


def effective(file: Path) -> tuple[object, ...]:
    """All that a broker takes from a file, or why it does not start."""
    try:
        config: BrokerConfig = load_config(file=file)
    except ConfigError as error:
        return (error.problem,)  # of several mistakes any may be the first
    shown = [(name, value) for name, value, _ in config.explain(MEMORY_BYTES)]
    texts = {name: one.text for name, one in config.given.items()}
    return shown, texts, config.has_kafka_file


def check_both_ways(text: str) -> None:
    with TemporaryDirectory() as folder:
        properties, toml = Path(folder, "s.properties"), Path(folder, "s.toml")
        again = Path(folder, "again.properties")
        properties.write_text(text, encoding="utf-8")
        toml.write_text(to_toml(text), encoding="utf-8")
        again.write_text(to_properties(toml.read_text("utf-8")), encoding="utf-8")
        assert effective(toml) == effective(properties)
        assert effective(again) == effective(properties)


@pytest.mark.parametrize("text", [FILE, ZOOKEEPER_MODE, KRAFT_MODE, "", "\n\n#\n", "a=b"])
def test_files_start_the_same_broker(text: str) -> None:
    check_both_ways(text)


def _value_of(name: str) -> st.SearchStrategy[str]:
    option = OPTIONS.get(name)
    anything = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
    if option is None:
        return anything
    default = option.format(option.default)
    good = {
        OptionType.BOOLEAN: st.sampled_from(["true", "false", "TRUE", " true"]),
        OptionType.INT: st.integers(-1, 2**31 - 1).map(str) | st.sampled_from(["+5", " 7", "007"]),
        OptionType.LONG: st.integers(-1, 2**63 - 1).map(str),
        OptionType.DOUBLE: st.floats(0, 1).map(repr) | st.just("5E-1"),
        OptionType.LIST: st.lists(st.sampled_from(["a", " b", ""]), max_size=3).map(",".join),
    }.get(option.type, anything)
    return st.one_of(good, anything, *([] if default is None else [st.just(default)]))


NAMES = st.sampled_from(
    [*OPTIONS, *sorted(WITHOUT_EFFECT), *sorted(JVM_ONLY), "cache.size", "isolation", "a", "a.b"]
) | st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)


@st.composite
def files(draw: st.DrawFn) -> str:
    lines = ["zookeeper.connect=h:2181"] if draw(st.booleans()) else []
    for _ in range(draw(st.integers(0, 6))):
        name = draw(NAMES)
        value = draw(_value_of(name))
        lines.append(draw(st.sampled_from(["", "# a comment", "! another\t\x01", "  ", name])))
        lines.append(_written(name, value, draw(st.sampled_from(["=", " : ", " = "]))))
    return "\n".join(lines) + draw(st.sampled_from(["", "\n", "\r\n"]))


def _written(name: str, value: str, between: str) -> str:
    """By escaping everything, as this side of the test knows nothing of what must be."""
    units = (
        one if one.isascii() and one.isalnum() else f"\\u{ord(one):04x}" if ord(one) < 65536 else ""
        for one in name
    )
    key = "".join(units) or "x"
    text = "".join(
        one if one.isascii() and (one.isalnum() or one == ",") else f"\\u{ord(one):04x}"
        for one in value
        if ord(one) < 65536
    )
    return f"{key}{between}{text}"


@given(files())
def test_any_file_starts_the_same_broker(text: str) -> None:
    check_both_ways(text)


@given(files())
def test_no_option_is_lost(text: str) -> None:
    wanted = {one.key: one.value for one in parse_properties(text)}
    toml = to_toml(text)
    assert {one.key: one.value for one in parse_toml(toml)} == wanted
    back = parse_properties(to_properties(toml))
    assert {one.key: one.value for one in back} == wanted


def test_what_to_set_instead_is_told_once() -> None:
    told = instead_of(["ssl.keystore.location", "process.roles", "ssl.key.password", "num.x"])
    assert [names for _, names in told] == [
        ["ssl.keystore.location", "ssl.key.password"],
        ["process.roles"],
    ]
    assert "node.id, log.dirs, listeners" in told[1][0]
