"""How many of the given options take effect, for ``serve --check``. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from pyrklog.config.broker import OPTIONS
from pyrklog.config.dynamic import listener_option
from pyrklog.config.known import JVM_ONLY, PREFIXES, WITHOUT_EFFECT
from pyrklog.config.option import Option
from pyrklog.config.providers import PROVIDERS, is_definition


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


class Effect(Enum):
    """What an option does here."""

    FULL = "full"
    NONE = "none"
    """Kafka's, of features that this version lacks."""
    JVM_ONLY = "jvm"
    UNKNOWN = "unknown"


def effect_of(name: str) -> Effect:
    option: Option | None = OPTIONS.get(name) or listener_option(name)
    if name in JVM_ONLY:
        return Effect.JVM_ONLY
    if (option is not None and option.effective) or name == PROVIDERS:
        return Effect.FULL
    if option is not None or name in WITHOUT_EFFECT or name.startswith(PREFIXES):
        return Effect.NONE
    return Effect.NONE if is_definition(name) else Effect.UNKNOWN


def count_given(names: Iterable[str]) -> GivenCounts:
    found = Counter(map(effect_of, names))
    return GivenCounts(*(found[one] for one in Effect))


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
