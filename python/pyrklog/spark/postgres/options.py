"""The options of ``format("pyrklog-postgres")``, as values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pyrklog.spark.given import Given, duration_ms
from pyrklog.spark.option_names import nearest

_NAMES = (
    "conninfo",
    "lag",
    "maxChangesPerTrigger",
    "onTruncate",
    "password",
    "publication",
    "slot",
    "tables",
    "watermark",
)
_OF_LOGICAL = ("onTruncate", "publication", "slot")
_SPELLING = {name.lower(): name for name in _NAMES}
# As PostgreSQL wants it; 63 bytes of a name count.
_SLOT = re.compile(r"[a-z0-9_]{1,63}")


class Table(NamedTuple):
    schema: str
    name: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True)
class PostgresOptions:
    """``slot`` and ``publication`` are empty with ``watermark``, which is None without."""

    conninfo: str = field(repr=False)
    password: str | None = field(repr=False)
    tables: tuple[Table, ...]
    slot: str
    publication: str
    watermark: str | None
    lag_ms: int
    changes_most: int | None
    fails_on_truncate: bool


def parse(options: Mapping[str, str]) -> PostgresOptions:
    """Raises OptionError, with a line for each mistake."""
    given = Given({name.lower(): value for name, value in options.items()})
    for name in given.names():
        if name not in _SPELLING:
            near = nearest(name, _SPELLING)
            hint = f"; did you mean {_SPELLING[near]}?" if near is not None else ""
            given.mistakes.append(f"there is no option {name}{hint}")
    for name in ("conninfo", "tables"):
        if not given.has(name):
            given.mistakes.append(f"option {name} is needed")
    watermark = given.text("watermark")
    if watermark is not None:
        given.mistakes += [
            f"option {name} is of logical decoding, and option watermark does without"
            for name in _OF_LOGICAL
            if given.has(name)
        ]
    elif not given.has("slot"):
        given.mistakes.append("option slot is needed, a name for each checkpoint, or watermark")
    elif given.has("lag"):
        given.mistakes.append("option lag is of option watermark")
    slot = given.value("slot", _slot, "")
    found = PostgresOptions(
        conninfo=given.text("conninfo") or "",
        password=given.text("password"),
        tables=given.value("tables", _tables, ()),
        slot=slot,
        publication=given.text("publication") or slot,
        watermark=watermark,
        lag_ms=given.value("lag", _lag, 0),
        changes_most=given.count("maxChangesPerTrigger", 2**31 - 1),
        fails_on_truncate=given.word("onTruncate", ("fail", "skip")) == "fail",
    )
    given.raise_mistakes()
    return found


def _tables(text: str) -> tuple[Table, ...]:
    found = []
    for one in text.split(","):
        schema, dot, name = one.strip().rpartition(".")
        if not name or (dot and not schema) or "." in schema:
            raise ValueError("it can be TABLE or SCHEMA.TABLE, several with commas")
        found.append(Table(schema or "public", name))
    if len(set(found)) != len(found):
        raise ValueError("it names a table twice")
    return tuple(found)


def _slot(text: str) -> str:
    if not _SLOT.fullmatch(text):
        raise ValueError("it can have lower-case letters, digits and _, at most 63")
    return text


def _lag(text: str) -> int:
    return round(duration_ms(text))
