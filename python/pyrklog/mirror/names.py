"""Which topics are mirrored, and their names at the target: without asking anybody."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pyrklog.mirror.errors import Kind, MirrorError
from pyrklog.security import Security

CLIENT_ID = "pyrklog-mirror"
HEARTBEATS = "heartbeats"
"""MirrorMaker 2's topic."""
NAME_MAX = 249
"""Of a topic."""
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,100}")
_STATE = re.compile(r"pyrklog-mirror\.[a-zA-Z0-9_-]{1,100}\.state\.internal")


class Policy(StrEnum):
    """How topics are called at the target."""

    PREFIX = "prefix"
    IDENTITY = "identity"


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

    @property
    def prefix(self) -> str:
        """Before a topic's name, at the target."""
        return f"{self.source}." if self.policy is Policy.PREFIX else ""

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
        """Raises MirrorError for a name that becomes too long."""
        name = self.prefix + topic
        if len(name) > NAME_MAX:
            raise MirrorError(
                f"topic {topic} cannot be called {name}: that has {len(name)} characters",
                f"leave it out with --topics, or choose an alias shorter than {self.source}",
            )
        return name

    def is_loop(self, topic: str) -> bool:
        """Whether its name tells that its records came from the target, or from the source by
        another cluster."""
        if self.policy is Policy.IDENTITY:
            return False
        *aliases, _ = topic.split(".")
        return self.target in aliases or self.source in aliases


def is_internal(topic: str) -> bool:
    """As MirrorMaker 2 has it."""
    return topic.startswith(("__", ".")) or topic.endswith((".internal", "-internal"))


def is_state_topic(topic: str) -> bool:
    return bool(_STATE.fullmatch(topic))


class Patterns:
    """Regular expressions, of which one matches a whole name."""

    def __init__(self, patterns: Sequence[str], option: str) -> None:
        """Raises MirrorError, with the option, for one that is none."""
        self.texts = list(patterns)
        self._patterns = []
        for pattern in patterns:
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


def chosen(
    names: Names, patterns: Patterns, topics: Iterable[str], *, has_heartbeats: bool = False
) -> list[str]:
    """The source's topics that are mirrored; of a mirror that writes heartbeats those of others,
    too, if they have another name at the target."""
    all_of = list(topics)
    wanted = set(patterns.matching(all_of))
    if has_heartbeats:
        beats = {topic for topic in all_of if topic.rpartition(".")[2] == HEARTBEATS}
        wanted = wanted | beats if names.prefix else wanted - beats
    return [
        topic for topic in sorted(wanted) if not is_internal(topic) and not names.is_loop(topic)
    ]
