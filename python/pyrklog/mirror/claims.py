"""Keeps two mirrors of different names from copying the same topic to the same topic.

A mirror writes to its topic of progress which topics it copies, before it creates them: its claims.
Then it reads what mirrors of other names have written there. Of two that start at once, each has
written before it reads, so at least one of them sees the other. What it cannot read holds up topics
that it has not begun, and no others.

Two mirrors of the same name have one transactional id, and the target itself fences the first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from pyrklog.mirror.errors import MirrorError
from pyrklog.mirror.names import Names, is_state_topic
from pyrklog.mirror.others import COPIES, Others
from pyrklog.mirror.topics import Look


class Admin(Protocol):
    """Of :class:`pyrklog.mirror.cluster.ClusterAdmin`."""

    def topics(self) -> tuple[str, dict[str, int]]: ...


def new_claims(names: Names, look: Look, claimed: Mapping[str, str]) -> dict[str, str]:
    """The target's topics, by the source's, that the mirror has not claimed yet."""
    wanted = {topic: names.at_target(topic) for topic in look.topics}
    return {topic: target for topic, target in wanted.items() if claimed.get(topic) != target}


def without_doubles(
    names: Names, target: Admin, look: Look, begun: Collection[str], others: Others
) -> Look:
    """Raises MirrorError if a mirror of another name copies one of these topics to the same topic;
    those in ``begun`` were this mirror's before. While it is not known what another one copies,
    only these are left."""
    new = {names.at_target(one): one for one in look.topics if one not in begun}
    if not new:
        return look
    is_read = True
    for other in target.topics()[1]:
        if not is_state_topic(other) or other == names.state_topic:
            continue
        state = others.read(other, COPIES, lambda one: one[:2] == (look.source_id, look.target_id))
        if state is None:
            is_read = False
            continue
        for topic, there in state.copied:
            if new.get(there) == topic:
                raise MirrorError(
                    f"topic {topic} is copied to {there} by another mirror, whose progress is in "
                    f"{other}: its records would be there twice",
                    "give that mirror's --name, leave the topic out with --topics, or delete "
                    f"{other} if nobody needs it",
                )
    return look.without(others.waiting(look.topics, begun, is_read=is_read))
