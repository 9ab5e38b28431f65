"""What an earlier run of ``drain`` or ``replace`` with the same ``--plan FILE`` has left.

Its moves that have ended, or go on, are kept in the new record, so that one rollback undoes both.
They are never begun again, and what others have changed since is forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pyrklog.balance.model import PartitionKey, Replicas
from pyrklog.balance.record import Record
from pyrklog.cli import reassign_past, reassign_record, reassign_run
from pyrklog.cli.connection import Connection
from pyrklog.cli.failures import counted
from pyrklog.cli.reassign_cluster import ReassignmentAdmin
from pyrklog.cli.throttles import Throttles


@dataclass
class Earlier:
    """``kept``: what is as the earlier run wanted it, or on the way there. ``before``: how replicas
    were before that run, also of partitions whose leadership only was handed over."""

    path: Path | None = None
    record: Record | None = None
    other: Record | None = None
    """An unfinished plan that is none of this broker's."""
    kept: dict[PartitionKey, Replicas] = field(default_factory=dict)
    before: dict[PartitionKey, Replicas] = field(default_factory=dict)

    @classmethod
    def read(
        cls, admin: ReassignmentAdmin, broker: int, plan: str | None, cluster_id: str | None
    ) -> Earlier:
        path = reassign_record.path_of(plan)
        record = reassign_record.load(path)
        if record is None or record.finished_ms is not None:
            return cls(path)
        is_same = all(
            broker in one.before and broker not in one.after for one in record.entries.values()
        )
        if not reassign_record.is_of(record, cluster_id):
            raise reassign_past.of_another_cluster(path)
        if not is_same:
            return cls(path, other=record)
        changed = reassign_past.changed_since(admin, record)
        placed, moving = admin.origins()[0], admin.moving()
        same = {
            key: one for key, one in record.entries.items() if key in placed and key not in changed
        }
        kept = {
            key: one.after
            for key, one in same.items()
            if placed[key] == one.after
            or (key in moving and reassign_past.target_of(moving[key]) == one.after)
        }
        return cls(path, record, None, kept, {key: one.before for key, one in same.items()})

    def told(self, admin: ReassignmentAdmin) -> str | None:
        """What to say of it before the user is asked."""
        if not self.kept:
            return None
        going = len(admin.moving().keys() & self.kept.keys())
        count = counted(len(self.kept), "partition")
        return f"an earlier run has moved {count}, {going} of them still on the way: kept as it is"

    def refuse_under_way(self, admin: ReassignmentAdmin) -> None:
        """Raises :class:`CliError` if the file keeps another plan that moves something still."""
        if self.other is not None:
            reassign_past.refuse_under_way(self.other, admin.moving(), self.path)

    def put_aside(self, connection: Connection, admin: ReassignmentAdmin) -> None:
        if self.other is not None:
            throttles = Throttles(connection, admin)
            reassign_past.put_aside(self.other, admin.moving().keys(), self.path, throttles)

    def finish(self, admin: ReassignmentAdmin) -> None:
        """Keeps that the earlier run has ended, if nothing of it moves any more."""
        if self.record is not None and not admin.moving().keys() & self.record.entries.keys():
            reassign_run.finished(admin, self.record, self.path, is_watched=False)
