"""Options of a broker in TOML."""

from pathlib import Path

import pytest

from pyrklog.base.problems import Problem
from pyrklog.config.load import load_config
from pyrklog.config.properties import PropertiesError
from pyrklog.config.toml_file import parse_toml
from pyrklog.errors import ConfigError

FILE = '''# of the team
broker.id = 7
"log.segment.bytes" = 1_000_000  # quoted
listeners = "PLAINTEXT://127.0.0.1:9092"
log.cleaner.enable = true

[log.retention]
hours = 24
minutes = """
30"""

[cache]
max.bytes = 268435456
keep = false
[isolation]
writer.threads.per.data.dir = 2
[socket]
request.max.bytes = 5
x = [
  "compact",  # both
  'delete',
]
'''


def test_names_lines_and_values() -> None:
    assert [tuple(one) for one in parse_toml(FILE)] == [
        ("broker.id", "7", 2),
        ("log.segment.bytes", "1000000", 3),
        ("listeners", "PLAINTEXT://127.0.0.1:9092", 4),
        ("log.cleaner.enable", "true", 5),
        ("log.retention.hours", "24", 8),
        ("log.retention.minutes", "30", 9),
        ("pyrklog.cache.max.bytes", "268435456", 13),
        ("pyrklog.cache.keep", "false", 14),
        ("pyrklog.writer.threads.per.data.dir", "2", 16),
        ("socket.request.max.bytes", "5", 18),
        ("socket.x", "compact,delete", 19),
    ]


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("a = {b.c = 1, d = [1, 2]}", [("a.b.c", "1"), ("a.d", "1,2")]),
        ("a.b = 0.5", [("a.b", "0.5")]),
        ('"cache.size" = 5', [("cache.size", "5")]),
        ("cache.max.bytes = 5", [("pyrklog.cache.max.bytes", "5")]),
        ("cache = 5", [("cache", "5")]),
        ('a = "# [ \\" no"  # yes', [("a", '# [ " no')]),
        ("a = '''x'\n\\'''\nb = 1", [("a", "x'\n\\"), ("b", "1")]),
        ('a = """x"""" # "\nb = 1', [("a", 'x"'), ("b", "1")]),
        ("a = 1\r\nb = 2\r\n", [("a", "1"), ("b", "2")]),
        ("", []),
    ],
)
def test_forms_of_toml(text: str, options: list[tuple[str, str]]) -> None:
    assert [(one.key, one.value) for one in parse_toml(text)] == options


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a = ", "it is no TOML: Invalid value"),
        ("a = 1\na = 2", "it is no TOML"),
        ("[[a]]\nb = 1", "line 1: a list of tables"),
        ("\na = 2024-01-31", "line 2: a is a date or a time"),
        ('a = ["x,y"]', "line 1: an item of a has a comma"),
    ],
)
def test_what_holds_no_options_is_refused(text: str, told: str) -> None:
    with pytest.raises(PropertiesError, match=told):
        parse_toml(text)


def test_a_broker_reads_toml_and_tells_its_lines(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text("log.retention.hours = 24\n[cache]\nkeep = false\n[isolation]\n")
    config = load_config(file=file)
    assert config.integer("log.retention.hours") == 24
    assert config.given["pyrklog.cache.keep"].origin == "server.toml line 3"
    file.write_text("num.partitons = 3\n")
    with pytest.raises(ConfigError, match=r"num\.partitons \(server\.toml line 1\)") as refused:
        load_config(file=file)
    assert refused.value.problem is Problem.OPTION_UNKNOWN
    file.write_text("num.partitions = \n")
    with pytest.raises(ConfigError, match="it is no TOML") as refused:
        load_config(file=file)
    assert refused.value.problem is Problem.OPTIONS_FILE


def test_a_name_in_two_ways_is_noted(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text('num.partitions = 3\n"num.partitions" = 4\n')
    config = load_config(file=file)
    assert config.integer("num.partitions") == 4
    assert config.notices == [
        "server.toml gives num.partitions in line 1 and again in line 2; the last one counts"
    ]
