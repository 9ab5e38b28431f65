"""Writes records to the target at the offsets that they have at the source.

They are in no transaction: a partition's progress is the end of its log at the target. Each append
says where that is to be, and is refused if it is not (``mirroring.md``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pyrklog.mirror.copy import COLUMNS, Copier, Pace, Writer
from pyrklog.mirror.errors import MovedError, how_again
from pyrklog.mirror.groups import Bounds
from pyrklog.mirror.names import Names
from pyrklog.mirror.spans import Segment, Span
from pyrklog.mirror.state import Partition, Progress, Row, progress_row
from pyrklog.mirror.transaction_size import TransactionSize
from pyrklog.producing import LogEndMovedError
from pyrklog.scanning import PartitionProgress

if TYPE_CHECKING:
    import pyarrow


class OffsetWriter(Protocol):
    """A producer that keeps offsets; see :class:`pyrklog.producing.Producer`."""

    def follow(self, topic: str, partition: int, end: int) -> None: ...
    def send(self, batch: pyarrow.RecordBatch) -> None: ...
    def flush(self) -> None: ...


class Same(NamedTuple):
    """Offsets of a partition that are the same on both sides: what was copied begins at ``begin``
    and ends before ``end``."""

    begin: int
    end: int

    def bounds(self, offset: int) -> tuple[int, int] | None:
        """Where a reader goes on at the target that would go on at ``offset`` of the source; None
        before the copy's beginning, and while there is no record."""
        if offset < self.begin or self.end <= self.begin:
            return None
        at = min(offset, self.end)
        return at, at


class KeptCopier(Copier):
    """As :class:`Copier`, whose producer here only writes the topics of progress and checkpoints.

    ``trim`` deletes the target's records before offsets: a log that has lost its beginning begins
    at the same offset there.
    """

    def __init__(
        self,
        names: Names,
        writer: Writer,
        offset_writer: OffsetWriter,
        trim: Callable[[Mapping[Partition, int]], None],
        pace: Pace,
        *,
        size: TransactionSize | None = None,
        due: Callable[[], Sequence[Row]] = tuple,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(names, writer, {}, {}, pace, size=size, due=due, clock=clock, sleep=sleep)
        self._offset_writer = offset_writer
        self._trim = trim
        self._followed: set[Partition] = set()
        self._sent_ends: dict[Partition, int] = {}
        """Behind the last record that was sent since the last commit."""
        self._untrimmed: dict[Partition, int] = {}
        """Where the target's partitions are to begin, once they have records behind it."""

    def follow(self, partition: Partition, start: int, end: int) -> None:
        """From now on a partition of the source is copied, whose log at the target begins and ends
        there. Its progress is known."""
        one = self.progress[partition]
        target = (one.target, partition[1])
        self._offset_writer.follow(*target, end)
        self.ends[target] = end
        self._followed.add(partition)
        if start < one.begin:
            self._untrimmed[target] = one.begin
            self._trim_all()

    def follows(self, partition: Partition) -> bool:
        return partition in self._followed

    def copyable(self, partitions: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
        return {
            topic: [one for one in some if (topic, one) in self._followed]
            for topic, some in partitions.items()
        }

    def places(self) -> Mapping[Partition, Bounds]:
        return {
            partition: Same(one.begin, one.target_end) for partition, one in self.progress.items()
        }

    def how_again(self, topic: str) -> str:
        return how_again(topic, self._names.at_target(topic), keeps=True)

    def commit(self, progress: Sequence[PartitionProgress]) -> None:
        """First all that was sent is acknowledged: what the topic of progress says is there."""
        if self._sent_ends:
            with self._refused_ends():
                self._offset_writer.flush()
            for partition, end in self._sent_ends.items():
                self.ends[self._names.at_target(partition[0]), partition[1]] = end
            self._trim_all()
        # Of the data; what follows is the transaction of the topic of progress.
        self.sent_bytes = 0
        super().commit(progress)
        self._sent_ends.clear()

    def forget_foreign(self, ends: Mapping[Partition, int]) -> list[Partition]:
        """Raises MovedError if the target has more than was written."""
        for (topic, partition), one in self.progress.items():
            target = (one.target, partition)
            if (topic, partition) in self._followed and ends.get(target, 0) > self.ends[target]:
                with self._refused_ends():
                    raise LogEndMovedError(
                        f"partition {partition} of topic {one.target} ends at {ends[target]}, and "
                        f"not at {self.ends[target]}"
                    )
        return []

    def _put(self, columns: Mapping[str, pyarrow.Array], found: Sequence[Segment]) -> None:
        import pyarrow

        rows = [columns[one] for one in COLUMNS]
        with self._refused_ends():
            self._offset_writer.send(pyarrow.RecordBatch.from_arrays(rows, names=list(COLUMNS)))
        for one in found:
            last = columns["offset"][one.end - 1].as_py()
            self._sent_ends[one.topic, one.partition] = last + 1

    def _first(self, partition: Partition, position: int, topic_id: str, now_ms: int) -> Progress:
        """What is kept begins where the source does, though the target's log is still empty."""
        found = super()._first(partition, position, topic_id, now_ms)
        return found._replace(target_begin=position)

    def _reached(self, one: PartitionProgress, now_ms: int) -> tuple[Progress, list[Span]]:
        partition = (one.topic, one.partition)
        known = self.progress[partition]
        progress = self._base[partition]._replace(
            position=one.position,
            epoch=one.leader_epoch,
            target_end=self._sent_ends.get(partition, known.target_end),
            records=self._base[partition].records + one.records,
            bytes=self._base[partition].bytes + one.bytes,
            skipped=self._base[partition].skipped + one.skipped,
            at_ms=now_ms,
        )
        return progress, []

    def _count(
        self, reached: Mapping[Partition, Progress], written: Mapping[Partition, list[Span]]
    ) -> None:
        self.progress.update(reached)

    def _trim_all(self) -> None:
        due = {
            target: begin for target, begin in self._untrimmed.items() if self.ends[target] > begin
        }
        if due:
            self._trim(due)
        for target in due:
            del self._untrimmed[target]

    @contextmanager
    def _refused_ends(self) -> Iterator[None]:
        """An append that finds another end is a matter for the next session. A process of the same
        name that has begun since would have written it: then this one is fenced, and ends."""
        try:
            yield
        except LogEndMovedError as error:
            state = self._names.state_topic
            first = min(self.progress)
            self.write([progress_row(state, first, self.progress[first])])
            raise MovedError(str(error)) from error
