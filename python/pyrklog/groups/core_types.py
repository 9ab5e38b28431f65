"""Types of the data plane that the groups use. They decide nothing and do no I/O."""

from pyrklog._core import CommitBatch, Heartbeat, OffsetCommit, OffsetTable

__all__ = ["CommitBatch", "Heartbeat", "OffsetCommit", "OffsetTable"]
