"""The maximum size of a transaction. Pure.

ZooKeeper takes 1 MiB (``jute.maxbuffer``, less one byte) and closes the connection of a client that
sends more, again on each connection where it is resent.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyrklog.metastore.interface import Check, Delete, Operation

TRANSACTION_BYTES_MAX = 900_000
"""Leaves a tenth: ZooKeeper may count more than is sent."""
OPERATION_BYTES = 160
"""At most, for an operation's header, lengths and ACL."""


def transaction_bytes(operations: Sequence[Operation], chroot: str = "") -> int:
    """The transaction's size in a request, at most."""
    return sum(operation_bytes(operation) + len(chroot.encode()) for operation in operations)


def operation_bytes(operation: Operation) -> int:
    data_bytes = 0 if isinstance(operation, Check | Delete) else len(operation.data)
    return OPERATION_BYTES + len(operation.path.encode()) + data_bytes
