"""Keeps two mirrors of different names from copying the same topic to the same topic.

A mirror writes to its topic of progress which topics it copies, before it creates them: its claims.
Then it reads what mirrors of other names have written there. Of two that start at once, each has
written before it reads, so at least one of them sees the other.

Two mirrors of the same name have one transactional id, and the target itself fences the first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Protocol

from pyrklog.mirror.errors import MirrorError
from pyrklog.mirror.names import Names, is_state_topic
from pyrklog.mirror.state import State, read_state
from pyrklog.mirror.topics import Look


class Admin(Protocol):
    """Of :class:`pyrklog.mirror.cluster.ClusterAdmin`."""

    def topics(self) -> tuple[str, dict[str, int]]: ...
    def records(self, topic: str, *, exists: bool) -> object: ...


def new_claims(names: Names, look: Look, claimed: Mapping[str, str]) -> dict[str, str]:
    """The target's topics, by the source's, that the mirror has not claimed yet."""
    wanted = {topic: names.at_target(topic) for topic in look.topics}
    return {topic: target for topic, target in wanted.items() if claimed.get(topic) != target}


def refuse_doubles(names: Names, target: Admin, look: Look, begun: Collection[str]) -> None:
    """Raises MirrorError if a mirror of another name copies one of these topics to the same topic;
    those in ``begun`` were this mirror's before."""
    new = {names.at_target(one): one for one in look.topics if one not in begun}
    others = [
        topic
        for topic in (target.topics()[1] if new else ())
        if is_state_topic(topic) and topic != names.state_topic
    ]
    for other in others:
        state = read_state(other, target.records(other, exists=True))  # type: ignore[arg-type]
        if state.origin is None or state.origin[:2] != (look.source_id, look.target_id):
            continue
        for topic, there in _copied(state):
            if new.get(there) == topic:
                raise MirrorError(
                    f"topic {topic} is copied to {there} by another mirror, whose progress is in "
                    f"{other}: its records would be there twice",
                    "give that mirror's --name, leave the topic out with --topics, or delete "
                    f"{other} if nobody needs it",
                )


def _copied(state: State) -> Iterator[tuple[str, str]]:
    """Topics at the source and at the target."""
    yield from state.claims.items()
    for (topic, _), one in state.partitions.items():
        yield topic, one.target
