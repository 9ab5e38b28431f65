"""Whether a broker may depose a controller that refuses connections or does not answer. Pure.

A deposal is an election that does not wait for the end of a session: one transaction deletes the
/controller that was seen, creates the broker's own and raises /controller_epoch at the version that
was read before. It follows the rules of a suspicion (``cluster.md``, section 7): a deposed
controller that lives is fenced by its epoch, as after an expired session, and stays registered.

Two refusals of one observer, or one of each of two, make a suspect. So does silence towards a
majority of the registered brokers. They prove nothing: a packet filter may refuse one broker alone.
Two brokers that refuse each other would depose each other for ever. So a deposal waits while the
last one is *unproven*, that is until the deposed broker's registration is gone: for one session
time-out, doubled each time that it happens again. A dead broker is proven dead by then, so this
never delays longer than without suspicions. All times are the store's, not the brokers' clocks.
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
    broker: int
    stat: Stat
    """Of its /controller."""

    def is_still(self, node: Node | None) -> bool:
        if node is None:
            return False
        seen = self.stat
        return (node.stat.czxid, node.stat.ephemeral_owner) == (seen.czxid, seen.ephemeral_owner)


class LastDeposal(NamedTuple):
    at_ms: int
    unproven: int
    is_proven: bool


class Silence(NamedTuple):
    """The controller does not answer this broker, or refuses it."""

    others: int
    """Other brokers with the same mark for this term."""
    registered: int
    """Registered brokers, including the controller and this one."""

    @property
    def is_to_a_majority(self) -> bool:
        """False for one broker alone, even of two: it may be the one that is cut off."""
        return self.others > 0 and 2 * (1 + self.others) > self.registered


class Evidence(NamedTuple):
    refusals: int
    """Of this broker's own connections, consecutive, up to now."""
    others: int
    """Other brokers that this term of the controller refuses."""
    now_ms: int
    last: LastDeposal | None
    silence: Silence | None = None
    """None while the controller answers this broker."""

    @property
    def is_suspected(self) -> bool:
        if self.refusals >= (REFUSALS_OF_EACH if self.others else REFUSALS_OF_ONE):
            return True
        return self.silence is not None and self.silence.is_to_a_majority

    def wait_ms(self, session_timeout_ms: int) -> int | None:
        """How long to wait before a deposal; None without a reason for one."""
        if not self.is_suspected:
            return None
        last = self.last
        if last is None or last.is_proven:
            return 0
        pause_ms = session_timeout_ms << min(last.unproven - 1, DOUBLINGS_MAX)
        return max(0, pause_ms - max(0, self.now_ms - last.at_ms))

    @property
    def unproven(self) -> int:
        """The count for the deposal that follows."""
        return 1 if self.last is None or self.last.is_proven else self.last.unproven + 1


class Found(NamedTuple):
    epoch: Node
    """/controller_epoch, read before /controller was checked: a later election raises its version.
    """
    broker_epoch: int
    """Of the incumbent's registration."""
    deposed_version: int | None
    """Of /pyrklog/deposed; None without one."""


def operations(
    node_id: int, incumbent: Incumbent, found: Found, unproven: int, timestamp_ms: int
) -> list[Operation]:
    """The transaction; its third result is the stat of /controller_epoch."""
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
