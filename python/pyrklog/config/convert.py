"""A broker's file of options in its other form: properties as TOML, TOML as properties. Pure.

Every option keeps its name, its text and its place; ours go into tables at the end. Comments stay
above the option that they are about.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from pyrklog.config.broker import OPTIONS
from pyrklog.config.dynamic import listener_option
from pyrklog.config.entry import OptionType
from pyrklog.config.kafka_only import KAFKA_ONLY
from pyrklog.config.option import Option
from pyrklog.config.properties import Property, read_properties
from pyrklog.config.toml_file import ISOLATION, TABLES, read_toml, toml_key, toml_string

_NUMBERS = (OptionType.SHORT, OptionType.INT, OptionType.LONG)
_INTEGER = re.compile(r"0|-?[1-9]\d{0,17}", re.ASCII)
_NOT_IN_COMMENTS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}


def known_option(name: str) -> Option | None:
    """Of ours and of Kafka's, with effect or without."""
    return OPTIONS.get(name) or listener_option(name) or KAFKA_ONLY.get(name)


def to_toml(text: str) -> str:
    """Raises PropertiesError. An option that is given again later becomes a comment: TOML has none
    twice."""
    items = read_properties(text.removesuffix("\n"))
    options = [one for one in items if isinstance(one, Property)]
    last = {one.key: one.line for one in options}
    placed = {name: _table_of(name) for name in last}
    keys = {table: frozenset(key for at, key in placed.values() if at == table) for table in _ORDER}
    parts: dict[str | None, list[str]] = {table: [] for table in _ORDER}
    above: list[str] = []
    for one in items:
        if not isinstance(one, Property):
            above.append(_comment(one.text))
            if not one.text:  # what stands above an empty line belongs to no option
                parts[None] += above
                above = []
            continue
        table, key = placed[one.key]
        line = f"{toml_key(key, keys[table])} = {toml_value(one.key, one.value)}"
        if last[one.key] != one.line:
            line = f"# {line} (line {last[one.key]} gives it again, and counts)"
        parts[table] += [*above, line]
        above = []
    parts[None] += above
    lines = parts[None]
    for table in _ORDER[1:]:
        if parts[table]:
            lines += [*([""] if lines and lines[-1] else []), f"[{table}]", *parts[table]]
    return "".join(f"{line}\n" for line in lines)


_ORDER: tuple[str | None, ...] = (None, *TABLES)


def _table_of(name: str) -> tuple[str | None, str]:
    """The table of an option, and its key there."""
    cache = TABLES["cache"]
    if name.startswith(cache) and name != cache:
        return "cache", name.removeprefix(cache)
    if name in ISOLATION:
        return "isolation", name.removeprefix(TABLES["isolation"])
    return None, name


def toml_value(name: str, text: str) -> str:
    """A number, a flag or an array where reading it gives the same text again, else a string."""
    option = known_option(name)
    if option is not None and option.type in _NUMBERS and _INTEGER.fullmatch(text):
        return text
    if option is not None and option.type is OptionType.BOOLEAN and text in ("true", "false"):
        return text
    if option is not None and option.type is OptionType.DOUBLE and _is_float(text):
        return text
    if option is not None and option.type is OptionType.LIST and "," in text:
        items = text.split(",")
        if all(item and item == item.strip() for item in items):
            return f"[{', '.join(map(toml_string, items))}]"
    return toml_string(text)


def _is_float(text: str) -> bool:
    try:
        number = float(text)
    except ValueError:
        return False
    return math.isfinite(number) and repr(number) == text and "." in text


def _comment(text: str) -> str:
    if not text:
        return ""
    return f"#{_NOT_IN_COMMENTS.sub(' ', text[1:])}"


def to_properties(text: str) -> str:
    """Raises PropertiesError. A comment behind an option comes to stand above it."""
    lines: list[str] = []
    for options, statement in read_toml(text):
        lines += statement.comments
        if not statement.is_code and not statement.comments:
            lines.append("")
        lines += (f"{_key(one.key)}={_value(one.value)}" for one in options)
    return "".join(f"{line}\n" for line in lines)


def _key(name: str) -> str:
    return _escaped(name, {**_ESCAPES, " ": "\\ ", "=": "\\=", ":": "\\:", "#": "\\#", "!": "\\!"})


def _value(text: str) -> str:
    begin = len(text) - len(text.lstrip(" "))
    return "\\ " * begin + _escaped(text[begin:], _ESCAPES)


def _escaped(text: str, escapes: Mapping[str, str]) -> str:
    """Java reads such a file as Latin-1, so that other characters need escapes."""
    return "".join(
        escapes.get(one) or (one if " " <= one <= "~" else _of_java(one)) for one in text
    )


def _of_java(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))
