"""Whether a broker may depose the controller, which refuses connections or does not answer. Pure.

Deposing is an election that does not wait for the end of a session: one transaction takes away the
/controller that was seen, puts the broker's own in its place and raises /controller_epoch at the
version that was read before. It goes by what a suspicion may do (``cluster.md``, section 7): a
controller that lives in spite of it is fenced by its epoch, as one whose session has expired is,
and stays registered.

Two refusals of one observer, or one of each of two, make a suspect. So does silence, where the
brokers that it is silent to are a majority of those registered. They prove nothing: a packet
filter can refuse one broker what it allows all others. Two brokers that refuse each other would
depose each other for ever, so that a deposal is held back as long as the last one is *unproven*,
which it is until the registration of who was deposed is gone: for a session's time-out, and for
twice as long each time that it happens again. Whoever is dead is proven dead by then, so that this
holds up nobody for longer than if there was no suspicion. All times are the store's: the brokers'
clocks need not agree.
"""

from __future__ import annotations

from typing import NamedTuple

from pyrklog.metastore.interface import Create, Delete, Node, Operation, Set, Stat
from pyrklog.metastore.znodes import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    DEPOSED,
    Deposed,
    decode_controller_epoch,
    encode_controller,
    encode_deposed,
    refused_path,
)

REFUSALS_OF_ONE = 2
REFUSALS_OF_EACH = 1
"""Where two brokers observe it."""
DOUBLINGS_MAX = 6


class Incumbent(NamedTuple):
    """The controller that a broker sees."""

    broker: int
    stat: Stat
    """Of its /controller."""

    def is_still(self, node: Node | None) -> bool:
        """Whether /controller is that of the same term."""
        if node is None:
            return False
        seen = self.stat
        return (node.stat.czxid, node.stat.ephemeral_owner) == (seen.czxid, seen.ephemeral_owner)


class LastDeposal(NamedTuple):
    """What /pyrklog/deposed tells."""

    at_ms: int
    unproven: int
    is_proven: bool
    """Whether the registration of who was deposed is gone."""


class Silence(NamedTuple):
    """The controller does not answer this broker, or refuses it."""

    others: int
    """Other brokers that say the same of this term."""
    registered: int
    """Brokers that have a registration, the controller and this one among them."""

    @property
    def is_to_a_majority(self) -> bool:
        """A silence that one broker alone has heard is none, even where there are but two: it may
        be the one that is cut off."""
        return self.others > 0 and 2 * (1 + self.others) > self.registered


class Evidence(NamedTuple):
    """What speaks for a deposal, and against it."""

    refusals: int
    """Of the broker's own connections, one after another, up to now."""
    others: int
    """Brokers that the same term of the controller refuses, too."""
    now_ms: int
    last: LastDeposal | None
    silence: Silence | None = None
    """None while the controller answers this broker."""

    @property
    def is_suspected(self) -> bool:
        """Whether it is enough for a suspicion."""
        if self.refusals >= (REFUSALS_OF_EACH if self.others else REFUSALS_OF_ONE):
            return True
        return self.silence is not None and self.silence.is_to_a_majority

    def wait_ms(self, session_timeout_ms: int) -> int | None:
        """How long to wait before the controller may be deposed; None while there is no reason."""
        if not self.is_suspected:
            return None
        last = self.last
        if last is None or last.is_proven:
            return 0
        pause_ms = session_timeout_ms << min(last.unproven - 1, DOUBLINGS_MAX)
        return max(0, pause_ms - max(0, self.now_ms - last.at_ms))

    @property
    def unproven(self) -> int:
        """Of the deposal that follows from it."""
        return 1 if self.last is None or self.last.is_proven else self.last.unproven + 1


class Found(NamedTuple):
    """The nodes that a deposal replaces."""

    epoch: Node
    """/controller_epoch, read before /controller was seen to be the incumbent's still: an election
    since raises its version."""
    broker_epoch: int
    """Of the incumbent's registration."""
    deposed_version: int | None
    """Of /pyrklog/deposed; None where there is none."""


def operations(
    node_id: int, incumbent: Incumbent, found: Found, unproven: int, timestamp_ms: int
) -> list[Operation]:
    """The transaction; the third result is the stat of /controller_epoch."""
    epoch = decode_controller_epoch(found.epoch.data) + 1
    record = encode_deposed(Deposed(incumbent.broker, found.broker_epoch, node_id, unproven))
    return [
        Delete(CONTROLLER, incumbent.stat.version),
        Create(CONTROLLER, encode_controller(node_id, timestamp_ms), True),
        Set(CONTROLLER_EPOCH, str(epoch).encode(), found.epoch.stat.version),
        Create(DEPOSED, record)
        if found.deposed_version is None
        else Set(DEPOSED, record, found.deposed_version),
        Delete(refused_path(node_id)),
    ]
