"""The data plane's types and functions for groups. They decide nothing and do no I/O."""

from pyrklog._core import CommitBatch, Heartbeat, OffsetCommit, OffsetTable, java_hash

__all__ = ["CommitBatch", "Heartbeat", "OffsetCommit", "OffsetTable", "java_hash"]
