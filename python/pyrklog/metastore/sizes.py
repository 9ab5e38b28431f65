"""How large a transaction may be. Pure.

ZooKeeper takes 1 MiB (``jute.maxbuffer``, less one byte) and ends the connection of whoever sends
more. It would do that again for each new connection on which the same is sent.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyrklog.metastore.interface import Check, Delete, Operation

TRANSACTION_BYTES_MAX = 900_000
"""Leaves a tenth: what is counted here is what is sent, and ZooKeeper may count more."""
OPERATION_BYTES = 160
"""Of an operation's header, lengths and ACL, at most."""


def transaction_bytes(operations: Sequence[Operation], chroot: str = "") -> int:
    """What a transaction takes in a request, at most."""
    return sum(operation_bytes(operation) + len(chroot.encode()) for operation in operations)


def operation_bytes(operation: Operation) -> int:
    """The share of one operation."""
    data_bytes = 0 if isinstance(operation, Check | Delete) else len(operation.data)
    return OPERATION_BYTES + len(operation.path.encode()) + data_bytes
