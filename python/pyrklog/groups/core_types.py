"""Values of the data plane that the groups keep: their offset tables, and commits on their way.

They decide nothing and do no I/O; :mod:`.offsets` and :mod:`.committing` are built on them.
"""

from pyrklog._core import CommitBatch, Heartbeat, OffsetCommit, OffsetTable

__all__ = ["CommitBatch", "Heartbeat", "OffsetCommit", "OffsetTable"]
