"""Keeps the target's topics like the source's: which there are, their partitions and options."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from pyrklog.mirror.errors import AwayError, Kind, MirrorError
from pyrklog.mirror.names import (
    NAME_MAX,
    Names,
    Patterns,
    Policy,
    Unmatched,
    chosen,
    is_heartbeats,
    is_internal,
    is_state_topic,
)
from pyrklog.mirror.others import CHAINS, Other, Others
from pyrklog.mirror.state import Partition, chain_of

_NOT_COPIED = re.compile(
    r"message\.timestamp\..*|min\.insync\.replicas|unclean\.leader\.election\.enable"
    r"|.*throttled.*|remote\..*|local\..*|pyrklog\..*"
)
BROKER_DEFAULT = -1
ABSENT_S = 10.0
"""A topic is gone at the target when it has been missing for so long."""
ABSENT_AT_SOURCE_S = 3.0
RETRY_S = 0.5

Options = Mapping[str, tuple[str | None, bool]]
"""Values of a topic's options, and whether they are its own."""


class Admin(Protocol):
    """Of :class:`pyrklog.mirror.cluster.ClusterAdmin`."""

    def topics(self) -> tuple[str, dict[str, int]]: ...
    def leaderless(self) -> Collection[tuple[str, int]]: ...
    def create(
        self, topic: str, partitions: int, replicas: int, options: Mapping[str, str]
    ) -> bool: ...
    def add_partitions(self, topic: str, count: int) -> None: ...
    def options(self, topics: Sequence[str]) -> Mapping[str, Options]: ...
    def set_options(self, topic: str, options: Mapping[str, str]) -> None: ...
    def records(
        self, topic: str, *, exists: bool, timeout_s: float
    ) -> Iterable[tuple[bytes | None, bytes | None]]: ...


class Wanted(NamedTuple):
    """What is mirrored."""

    topics: Patterns
    replicas: int = BROKER_DEFAULT
    is_whole: bool = False
    """Partitions without a leader are waited for."""
    has_heartbeats: bool = False


@dataclass(frozen=True)
class Look:
    """What there is to mirror, while nothing is changed at the target: the source's topics with
    their partitions, those of the target. ``chains``: see :class:`State`; unless ``is_read`` there
    may be clusters that they lack."""

    source_id: str
    target_id: str
    topics: dict[str, int]
    at_target: dict[str, int]
    chains: dict[str, list[str]] | None = None
    is_read: bool = True

    def without(self, topics: Collection[str]) -> Look:
        """The same without these topics of the source."""
        if not topics:
            return self
        chains = self.chains
        if chains is not None:
            chains = {of: one for of, one in chains.items() if of not in topics}
        left = {topic: count for topic, count in self.topics.items() if topic not in topics}
        return replace(self, topics=left, chains=chains)

    def new_chains(self, known: Mapping[str, list[str]]) -> dict[str, list[str]]:
        """Those that differ from what is known. What cannot be read now is as it was."""
        found = {}
        for topic, chain in (self.chains or {}).items():
            before = known.get(topic, [])
            if not self.is_read:
                chain = [*before, *(one for one in chain if one not in before)]
            if chain != before:
                found[topic] = chain
        return found


@dataclass(frozen=True)
class Plan:
    """The source's topics, with their partitions, which the target has, too. ``offline``:
    partitions that have no leader, here or there."""

    topics: dict[str, int]
    grown: frozenset[str] = frozenset()
    """Topics of the target that existed and got partitions."""
    offline: frozenset[Partition] = frozenset()

    def partitions(self) -> dict[str, list[int]]:
        """Of each topic, those that can be copied now."""
        return {
            topic: [number for number in range(count) if (topic, number) not in self.offline]
            for topic, count in self.topics.items()
        }


def own_options(options: Options, known: Mapping[str, object]) -> dict[str, str]:
    """The topic's own that are copied to a cluster that knows these."""
    return {
        name: value
        for name, (value, is_own) in options.items()
        if is_own and value is not None and name in known and not _NOT_COPIED.fullmatch(name)
    }


class Topics:
    """Of one mirror. ``note`` is told what a user may want to know."""

    def __init__(
        self,
        names: Names,
        wanted: Wanted,
        source: Admin,
        target: Admin,
        note: Callable[[str], None],
        *,
        absent_s: float = ABSENT_S,
    ) -> None:
        self._names = names
        self._wanted = wanted
        self._source = source
        self._target = target
        self._note = note
        self._absent_s = absent_s
        self._seen: set[str] | None = None
        self._passed_over: set[str] = set()
        self._too_long: set[str] = set()
        self._told_offline: frozenset[Partition] = frozenset()
        self._has_applied = False
        self._told_refused: set[str] = set()
        self._unmatched = Unmatched(names.source, "topic", wanted.topics)
        self._upstream = Others(source, names.source, note)

    @property
    def is_partial(self) -> bool:
        """Whether topics are not mirrored because their names would be too long, or because it is
        not known where their records come from."""
        return bool(self._too_long) or self._upstream.has_waiting

    def look(self, mirrored: Collection[str] = ()) -> Look:
        """Raises MirrorError for a circle, for topics of ``mirrored`` that are gone at the target,
        and if there never will be anything to copy. While it is not known where records at the
        source come from, topics are left out that are not in ``mirrored``."""
        wanted = self._wanted
        source_id, at_source = self._at_source(mirrored)
        self._refuse_unmatched(at_source)
        topics = chosen(self._names, wanted.topics, at_source, has_heartbeats=wanted.has_heartbeats)
        self._tell_passed_over(at_source)
        needed = {self._names.at_target(topic) for topic in topics if topic in mirrored}
        target_id, at_target = self._at_target(needed)
        chains, is_read = self._chains(source_id, target_id, topics, at_source)
        self._tell_gone(topics)
        for topic in topics:
            if topic in mirrored and self._names.at_target(topic) not in at_target:
                raise MirrorError(
                    f"topic {self._names.at_target(topic)}, which has been mirrored, is gone at "
                    "the target",
                    f"--again {topic} copies it from its beginning; or leave it out with --topics",
                )
        counts = {topic: at_source[topic] for topic in topics}
        look = Look(source_id, target_id, counts, at_target, chains, is_read)
        return look.without(self._upstream.waiting(chains or (), mirrored, is_read=is_read))

    def apply(self, look: Look) -> Plan:
        """Creates, enlarges and sets what differs. Raises MirrorError for what the target refuses
        at first; later that is told and left out, so that it stops no other topic."""
        grown, refused = self._sync_partitions(look.topics, look.at_target)
        self._has_applied = not self._wanted.is_whole
        offline = self._offline(list(look.topics))
        return Plan(look.topics, frozenset(grown), offline | refused)

    def begun(self, look: Look, topics: Collection[str], known: Collection[Partition]) -> Plan:
        """Of these topics, the partitions that the target has, without those in ``known`` and those
        that nobody led at the last look, here or there."""
        names = {self._names.at_target(one): one for one in topics if one in look.topics}
        counts = {
            topic: min(look.topics[topic], look.at_target.get(name, 0))
            for name, topic in names.items()
        }
        there = {(names[one], number) for one, number in self._target.leaderless() if one in names}
        return Plan(counts, offline=frozenset({*known, *self._source.leaderless(), *there}))

    def _offline(self, topics: Sequence[str]) -> frozenset[Partition]:
        if self._wanted.is_whole:
            return frozenset()
        names = {self._names.at_target(topic): topic for topic in topics}
        at_source = {one for one in self._source.leaderless() if one[0] in topics}
        at_target = {one for one in self._target.leaderless() if one[0] in names}
        offline = frozenset(at_source | {(names[name], number) for name, number in at_target})
        for topic, number in sorted(offline - self._told_offline):
            where = "source" if (topic, number) in at_source else "target"
            self._note(
                f"partition {number} of topic {topic} has no leader at the {where}; the others go "
                "on without it"
            )
        self._told_offline = offline
        return offline

    def _at_source(self, mirrored: Collection[str]) -> tuple[str, dict[str, int]]:
        before = self._wanted.topics.matching(mirrored) if self._seen is None else self._seen
        return _topics_of(self._source, before, min(ABSENT_AT_SOURCE_S, self._absent_s))

    def _at_target(self, needed: Collection[str]) -> tuple[str, dict[str, int]]:
        return _topics_of(self._target, needed, self._absent_s)

    def _tell_passed_over(self, at_source: Mapping[str, int]) -> None:
        matching = self._wanted.topics.matching(at_source)
        too_long = {topic for topic in matching if self._names.is_too_long(topic)}
        for topic in sorted(too_long - self._too_long):
            name = self._names.at_target(topic)
            self._note(
                f"topic {topic} is not copied: {name} would have {len(name)} characters, and a "
                f"topic's name has at most {NAME_MAX}; an alias that is shorter than "
                f"{self._names.source} can be given with --from"
            )
        self._too_long = too_long
        # Internal topics are nobody's to copy, whatever their names say.
        loops = {
            topic for topic in matching if self._names.is_loop(topic) and not is_internal(topic)
        }
        for topic in sorted(loops - self._passed_over):
            self._note(
                f"topic {topic} is not copied: its name has an alias of these clusters, and it is "
                "taken for a copy from there; other aliases can be given with --from and --to"
            )
        self._passed_over |= loops
        self._unmatched.tell(at_source, self._note, is_whole=self._wanted.is_whole)

    def _refuse_unmatched(self, at_source: Collection[str]) -> None:
        """Raises MirrorError at first if a mirror that does not wait for topics would copy none:
        its patterns may be misspelt, and that would look like what is copied."""
        wanted = self._wanted
        is_waiting = wanted.has_heartbeats or not wanted.is_whole or self._seen is not None
        if is_waiting or wanted.topics.matching(at_source):
            return
        found = wanted.topics.unmatched(at_source)
        near = [one for one in found.values() if one is not None]
        raise MirrorError(
            f"no topic of {self._names.source} matches {wanted.topics.option} "
            + ", ".join(map(repr, found)),
            f"did you mean {', '.join(near)}?"
            if near
            else "give regular expressions that match whole names of its topics",
            Kind.NOT_FOUND,
        )

    def _tell_gone(self, topics: Sequence[str]) -> None:
        for gone in sorted((self._seen or set()) - set(topics)):
            self._note(f"topic {gone} is gone at the source; it stays at the target")
        self._seen = set(topics)

    def _chains(
        self, source_id: str, target_id: str, topics: Sequence[str], at_source: Mapping[str, int]
    ) -> tuple[dict[str, list[str]] | None, bool]:
        """And whether all could be read that may tell of them."""
        if self._names.policy is not Policy.IDENTITY:
            return None, True
        # A topic of progress may have come here as a copy.
        said = [
            self._upstream.read(topic, CHAINS, lambda one: one.target_id == source_id)
            for topic in at_source
            if is_state_topic(topic)
        ]
        upstream: list[Other] = [one for one in said if one is not None]
        found = {
            topic: chain_of(topic, source_id, upstream)
            for topic in topics
            # Their names tell whence they come.
            if not is_heartbeats(topic)
        }
        for topic, chain in found.items():
            if target_id and target_id in chain:
                raise MirrorError(
                    f"topic {topic} would go in a circle: its records come from the target, "
                    f"cluster {target_id}"
                    + (f", by {', '.join(chain)}" if len(chain) > 1 else ", which is the source"),
                    "leave it out with --topics, or use --policy prefix",
                )
        return found, len(upstream) == len(said)

    def check_circles(self, look: Look) -> None:
        """Raises MirrorError if another mirror has closed a circle meanwhile."""
        self._chains(look.source_id, look.target_id, list(look.topics), self._source.topics()[1])

    def _sync_partitions(
        self, topics: Mapping[str, int], at_target: Mapping[str, int]
    ) -> tuple[list[str], frozenset[Partition]]:
        """Topics that got partitions, and partitions that the target refuses to make."""
        grown = []
        refused: set[Partition] = set()
        options = self._source.options(list(topics))
        names = {topic: self._names.at_target(topic) for topic in topics}
        existing = [name for name in names.values() if name in at_target]
        there: Mapping[str, Options] = self._target.options([self._names.state_topic, *existing])
        known = there[self._names.state_topic]
        for topic, count in topics.items():
            name = names[topic]
            own = own_options(options.get(topic, {}), known)
            try:
                if name not in at_target:
                    if self._target.create(name, count, self._wanted.replicas, own):
                        continue
                    at_target = {**at_target, name: self._count_of_others(name)}
                    there = {**there, **self._target.options([name])}
                if at_target[name] < count:
                    self._target.add_partitions(name, count)
                    grown.append(name)
            except MirrorError as error:
                if not self._has_applied or error.kind is Kind.UNREACHABLE:
                    raise
                self._tell_refused(error.what)
                refused |= {(topic, number) for number in range(at_target.get(name, 0), count)}
            if name in there:
                self._set_options(name, own, there[name])
        return grown, frozenset(refused)

    def _tell_refused(self, what: str) -> None:
        """Once for each reason."""
        if what not in self._told_refused:
            self._note(what)
        self._told_refused.add(what)

    def _count_of_others(self, name: str) -> int:
        """Partitions of a topic that somebody else has created meanwhile."""
        found = self._target.topics()[1]
        if name not in found:
            raise AwayError(f"topic {name} exists at the target, but a broker does not know it")
        return found[name]

    def _set_options(self, name: str, own: Mapping[str, str], there: Options) -> None:
        changed = {
            option: value
            for option, value in own.items()
            if there.get(option, (None, False))[0] != value
        }
        if not changed:
            return
        try:
            self._target.set_options(name, changed)
        except MirrorError as error:
            # A target before 2.3 cannot change single options.
            if error.kind is Kind.UNREACHABLE:
                raise
            self._tell_refused(error.what)


def _topics_of(admin: Admin, needed: Collection[str], seconds: float) -> tuple[str, dict[str, int]]:
    """Asks again for a while if a topic is missing that is needed: a broker that has just started
    may know none."""
    until = time.monotonic() + seconds
    while True:
        found = admin.topics()
        if all(topic in found[1] for topic in needed) or time.monotonic() >= until:
            return found
        time.sleep(RETRY_S)
