"""The data plane's types for groups. They decide nothing and do no I/O."""

from pyrklog._core import CommitBatch, Heartbeat, OffsetCommit, OffsetTable

__all__ = ["CommitBatch", "Heartbeat", "OffsetCommit", "OffsetTable"]
