"""Which topics are mirrored, and their names at the target: without asking anybody."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum

from pyrklog.mirror.errors import Kind, MirrorError
from pyrklog.security import Security

CLIENT_ID = "pyrklog-mirror"
HEARTBEATS = "heartbeats"
"""MirrorMaker 2's topic."""
NAME_MAX = 249
"""Of a topic."""
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,100}")
_COMMA_MEANT = re.compile(r"\\.|\[\^?\]?(?:\\.|[^]\\])*\]|\{\d*,\d*\}", re.DOTALL)
"""Where a comma in a regular expression is no mistake."""
_NEAR = 0.75
"""As of the commands, which propose names too."""
_STATE = re.compile(r"pyrklog-mirror\.([a-zA-Z0-9_-]{1,100})\.state\.internal")


class Policy(StrEnum):
    """How topics are called at the target."""

    PREFIX = "prefix"
    IDENTITY = "identity"


class Offsets(StrEnum):
    """Which offsets records get at the target."""

    TRANSLATE = "translate"
    """New ones, to which those of groups are translated."""
    KEEP = "keep"
    """Those of the source."""


@dataclass(frozen=True)
class Cluster:
    """Where a cluster is (``HOST:PORT``, several with commas), and how it lets clients in."""

    alias: str
    bootstrap: str
    security: Security = field(default_factory=Security)


@dataclass(frozen=True)
class Names:
    """Of one mirror. Aliases and the name have letters, digits, hyphens and underscores."""

    source: str
    target: str
    policy: Policy
    mirror: str

    def __post_init__(self) -> None:
        for name in (self.source, self.target, self.mirror):
            if not _NAME.fullmatch(name):
                raise MirrorError(
                    f"{name!r} is no name of a cluster or mirror",
                    "1 to 100 letters, digits, hyphens and underscores",
                    Kind.USAGE,
                )
        if self.source == self.target and self.policy is Policy.PREFIX:
            raise MirrorError(
                f"source and target have the same alias, {self.source}",
                "--from ALIAS=HOST:PORT --to ALIAS=HOST:PORT",
                Kind.USAGE,
            )

    def prefix_of(self, topic: str) -> str:
        """Before a topic's name, at the target. MirrorMaker's IdentityReplicationPolicy prefixes
        copies of heartbeats, too: a reader could not tell from which cluster they came."""
        is_prefixed = self.policy is Policy.PREFIX or is_heartbeats(topic)
        return f"{self.source}." if is_prefixed else ""

    @property
    def transactional_id(self) -> str:
        return f"pyrklog-mirror/{self.mirror}"

    @property
    def state_topic(self) -> str:
        return f"pyrklog-mirror.{self.mirror}.state.internal"

    @property
    def offsets_topic(self) -> str:
        return f"pyrklog-mirror.{self.mirror}.offsets.internal"

    @property
    def checkpoints_topic(self) -> str:
        """As MirrorMaker 2's."""
        return f"{self.source}.checkpoints.internal"

    def at_target(self, topic: str) -> str:
        """May be longer than a topic's name can be: see :meth:`is_too_long`."""
        return self.prefix_of(topic) + topic

    def is_too_long(self, topic: str) -> bool:
        """Whether no topic of the target can have its name."""
        return len(self.at_target(topic)) > NAME_MAX

    def is_loop(self, topic: str) -> bool:
        """Whether its name tells that its records came from the target, or from the source by
        another cluster."""
        if not self.prefix_of(topic):
            return False
        *aliases, _ = topic.split(".")
        return self.target in aliases or self.source in aliases


def is_internal(topic: str) -> bool:
    """As MirrorMaker 2 has it."""
    return topic.startswith(("__", ".")) or topic.endswith((".internal", "-internal"))


def is_state_topic(topic: str) -> bool:
    return mirror_of(topic) is not None


def mirror_of(topic: str) -> str | None:
    """The name of the mirror whose progress a topic has."""
    found = _STATE.fullmatch(topic)
    return None if found is None else found[1]


def is_heartbeats(topic: str) -> bool:
    """MirrorMaker's heartbeats, or a copy of them."""
    return topic.rpartition(".")[2] == HEARTBEATS


def refuse_list(option: str, pattern: str) -> None:
    """Raises MirrorError for a comma that is neither in brackets or braces nor behind a backslash:
    MirrorMaker separates names so, and as a regular expression it would match nothing."""
    if "," not in _COMMA_MEANT.sub("", pattern):
        return
    parts = [part.strip() for part in pattern.split(",")]
    raise MirrorError(
        f"{option} {pattern!r} has a comma, which does not separate names here",
        f"repeat the option ({' '.join(f'{option} {part!r}' for part in parts)}); a comma that is "
        r"part of a name is written \,",
        Kind.USAGE,
    )


class Patterns:
    """Regular expressions, of which one matches a whole name."""

    def __init__(self, patterns: Sequence[str], option: str) -> None:
        """Raises MirrorError, with the option, for one that is none, and for lists."""
        self.texts = list(patterns)
        self.option = option
        self._patterns = []
        for pattern in patterns:
            refuse_list(option, pattern)
            try:
                self._patterns.append(re.compile(pattern))
            except re.error as error:
                what = f"{option} {pattern!r} is no regular expression: {error}"
                raise MirrorError(what, kind=Kind.USAGE) from None

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def matching(self, names: Iterable[str]) -> list[str]:
        """Sorted."""
        return sorted(name for name in names if any(one.fullmatch(name) for one in self._patterns))

    def unmatched(self, names: Iterable[str]) -> dict[str, str | None]:
        """Those that match none of the names, each with a name that is like it."""
        all_of = list(names)
        lone = [one for one in self._patterns if not any(map(one.fullmatch, all_of))]
        return {
            one.pattern: next(iter(get_close_matches(one.pattern, all_of, 1, _NEAR)), None)
            for one in lone
        }

    def names(self, prefix: str, name: str) -> bool:
        """Whether a pattern matches a name that has this prefix in its own text, too."""
        return any(
            prefix in pattern.pattern.replace("\\", "") and pattern.fullmatch(name)
            for pattern in self._patterns
        )


class Unmatched:
    """Tells patterns that match no ``what`` of the source, once each: they may be misspelt."""

    def __init__(self, source: str, what: str, patterns: Patterns) -> None:
        self._source = source
        self._what = what
        self._patterns = patterns
        self._told: set[str] = set()

    def tell(self, names: Iterable[str], note: Callable[[str], None], *, is_whole: bool) -> None:
        """With ``is_whole`` none that come later are waited for."""
        found = self._patterns.unmatched(names)
        later = "" if is_whole else ", so far"
        for text, near in found.items():
            if text not in self._told:
                hint = f"; did you mean {near}?" if near is not None else ""
                option = self._patterns.option
                note(f"no {self._what} of {self._source} matches {option} {text!r}{later}{hint}")
        self._told |= set(found)


GROUPS_OF_TOOLS = ("console-consumer-", "connect-", "__")
"""What their names begin with: MirrorMaker's ``groups.exclude``."""


def chosen_groups(patterns: Patterns, groups: Iterable[str]) -> tuple[list[str], set[str]]:
    """The source's groups that are mirrored; and, by what their names begin with, those that match
    and are not. A sink connector's offsets would else be moved where a connector of the same name
    stands still at the target, which then leaves records out."""
    found, left_out = [], set()
    for group in patterns.matching(groups):
        prefix = next((one for one in GROUPS_OF_TOOLS if group.startswith(one)), None)
        if prefix is None or patterns.names(prefix, group):
            found.append(group)
        else:
            left_out.add(prefix)
    return found, left_out


def chosen(
    names: Names, patterns: Patterns, topics: Iterable[str], *, has_heartbeats: bool = False
) -> list[str]:
    """The source's topics that are mirrored; of a mirror that writes heartbeats those of others,
    too."""
    all_of = list(topics)
    wanted = set(patterns.matching(all_of))
    if has_heartbeats:
        wanted |= {topic for topic in all_of if is_heartbeats(topic)}
    return [
        topic
        for topic in sorted(wanted)
        if not (is_internal(topic) or names.is_loop(topic) or names.is_too_long(topic))
    ]
