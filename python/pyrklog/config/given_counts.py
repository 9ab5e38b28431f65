"""How many of the given options take effect, for ``serve --check``. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pyrklog.config.broker import OPTIONS
from pyrklog.config.dynamic import listener_option
from pyrklog.config.known import JVM_ONLY, PREFIXES, WITHOUT_EFFECT
from pyrklog.config.option import Option
from pyrklog.config.providers import is_definition


class GivenCounts(NamedTuple):
    """Each option counts once, by the value that counts. Refused ones are errors, and not here."""

    effective: int
    without_effect: int
    """Kafka's options that this version ignores."""
    jvm_only: int
    unknown: int
    """Of a file of Kafka's: settings of its plug-ins, most often."""

    @property
    def total(self) -> int:
        return sum(self)


def count_given(names: Iterable[str]) -> GivenCounts:
    effective = without_effect = jvm_only = unknown = 0
    for name in names:
        option: Option | None = OPTIONS.get(name) or listener_option(name)
        if name in JVM_ONLY:
            jvm_only += 1
        elif option is not None and option.effective:
            effective += 1
        elif option is not None or _is_ignored(name):
            without_effect += 1
        else:
            unknown += 1
    return GivenCounts(effective, without_effect, jvm_only, unknown)


def _is_ignored(name: str) -> bool:
    return name in WITHOUT_EFFECT or name.startswith(PREFIXES) or is_definition(name)


def summary(counts: GivenCounts) -> str:
    """One line: ``5 options are given: 3 take effect, 1 has none, 1 is for Java only``."""
    total = counts.total
    if total == counts.effective:
        return {
            0: "no option is given",
            1: "1 option is given, and takes effect",
        }.get(total, f"{total} options are given, and take effect")
    parts = [
        _part(counts.effective, "takes effect", "take effect"),
        _part(counts.without_effect, "has none in this version", "have none in this version"),
        _part(counts.jvm_only, "is for Java only", "are for Java only"),
        _part(counts.unknown, "is unknown", "are unknown"),
    ]
    given = "1 option is given" if total == 1 else f"{total} options are given"
    return f"{given}: {', '.join(filter(None, parts))}"


def _part(count: int, one: str, several: str) -> str:
    if not count:
        return ""
    return f"{count} {one if count == 1 else several}"
