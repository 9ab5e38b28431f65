"""A mirror that keeps offsets: where each partition goes on, and when it may not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from pyrklog.mirror.cluster import ClusterAdmin, Logs
from pyrklog.mirror.copy import COLUMNS, PRODUCER_MEMORY_BYTES, Pace, Writer
from pyrklog.mirror.errors import MirrorError, how_again
from pyrklog.mirror.kept_copy import KeptCopier, OffsetWriter
from pyrklog.mirror.names import CLIENT_ID, Names
from pyrklog.mirror.state import Partition, Progress, Row
from pyrklog.mirror.tails import Tail, compare
from pyrklog.mirror.topics import Plan
from pyrklog.mirror.transaction_size import TransactionSize
from pyrklog.producing import Producer, ProducerSettings, UnsupportedClusterError
from pyrklog.scanning import LeftOut


class Resumed(NamedTuple):
    """Where a partition goes on. ``tail_begin`` is where the target has more than is noted."""

    progress: Progress
    tail_begin: int | None = None


def resumed(one: Progress, end: int) -> Resumed:
    """With the target's log end. A target that has lost records gets them again, at their offsets;
    of one that has more it is not known yet what that is."""
    if end < one.target_end:
        position = max(end, one.begin)
        return Resumed(one._replace(position=position, epoch=-1, target_end=end))
    if end > one.target_end:
        found = one._replace(position=max(end, one.position), epoch=-1, target_end=end)
        return Resumed(found, one.target_end)
    return Resumed(one)


def why_not_begun(start: int, end: int, position: int) -> str:
    """Why a target's log that begins and ends there cannot become a copy that begins at this
    offset; empty if it can."""
    if start < end:
        return f"has records already, at offsets {start} to {end - 1}"
    return f"ends at {end}, behind where the copy begins ({position})" if end > position else ""


class Keeping:
    """Of one mirror. With ``is_whole`` leaders that do not answer count as away."""

    def __init__(
        self,
        names: Names,
        source: ClusterAdmin,
        target: ClusterAdmin,
        note: Callable[[str], None],
        *,
        is_whole: bool,
    ) -> None:
        self._names = names
        self._source = source
        self._target = target
        self._note = note
        self._is_whole = is_whole
        self._copier: KeptCopier | None = None
        """Of this session."""

    def writer(self, codec: str) -> Producer:
        """Raises MirrorError if the target does not take records at offsets of their own."""
        settings = ProducerSettings(
            bootstrap_servers=self._target.cluster.bootstrap,
            columns=list(COLUMNS),
            client_id=CLIENT_ID,
            codec=codec,
            memory_bytes=PRODUCER_MEMORY_BYTES,
            keeps_offsets=True,
            security=self._target.cluster.security,
        )
        try:
            return Producer(settings)
        except UnsupportedClusterError as error:
            raise MirrorError(
                f"{self._target.cluster.alias} cannot keep offsets: {error}",
                "copy without --offsets keep: offsets of groups are then translated",
            ) from error

    def copier(
        self,
        producer: Writer,
        writer: OffsetWriter,
        pace: Pace,
        size: TransactionSize,
        due: Callable[[], Sequence[Row]],
    ) -> KeptCopier:
        """Of a new session."""
        trim = self._target.delete_records
        self._copier = KeptCopier(self._names, producer, writer, trim, pace, size=size, due=due)
        return self._copier

    def lacks(self, logs: Logs) -> bool:
        """Whether the target has lost records that this session knows of."""
        known = self._of_session().ends
        return any(end < known.get(target, 0) for target, end in logs.ends.items())

    def refuse_filled(
        self, plan: Plan, logs: Logs, at_end: Collection[str], again: Collection[str]
    ) -> Sequence[LeftOut]:
        """Raises MirrorError if the copy of a partition of ``plan`` cannot begin in the target's
        log, before anything is written. Topics of ``at_end`` begin at their present ends; of those
        in ``again`` there are copies. Returns what :meth:`adopt` does."""
        wanted = self._answering(plan, logs)
        at_source = self._source.logs(wanted, "read_committed", leaves=not self._is_whole)
        for partition in at_source.starts:
            self._first_position(partition, logs, at_source, at_end, again)
        return at_source.left_out

    def adopt(
        self,
        plan: Plan,
        logs: Logs,
        at_end: Collection[str],
        rows: Sequence[Row],
    ) -> Sequence[LeftOut]:
        """Goes on with all partitions whose target's ends are known, or begins them: topics of
        ``at_end`` at their present ends. Other ``rows`` are written with where these begin. Returns
        those of the source that do not answer. Raises MirrorError for records that are no copies.
        """
        copier = self._of_session()
        wanted = {
            topic: [one for one in some if not copier.follows((topic, one))]
            for topic, some in self._answering(plan, logs).items()
        }
        at_source = self._source.logs(wanted, "read_committed", leaves=not self._is_whole)
        copier.check_ids(at_source.topic_ids)
        self._begin(logs, at_source, at_end, rows)
        for topic, some in wanted.items():
            for number in some:
                partition = (topic, number)
                if partition in copier.progress and partition in at_source.ends:
                    self._resume(partition, logs, at_source)
        return at_source.left_out

    def _answering(self, plan: Plan, logs: Logs) -> dict[str, list[int]]:
        """Partitions whose ends at the target are known."""
        names = {topic: self._names.at_target(topic) for topic in plan.topics}
        return {
            topic: [one for one in some if (names[topic], one) in logs.ends]
            for topic, some in plan.partitions().items()
        }

    def _of_session(self) -> KeptCopier:
        assert self._copier is not None
        return self._copier

    def _begin(
        self,
        logs: Logs,
        at_source: Logs,
        at_end: Collection[str],
        rows: Sequence[Row],
    ) -> None:
        copier = self._of_session()
        positions = {}
        for partition in at_source.starts:
            if partition not in copier.progress:
                positions[partition] = self._first_position(partition, logs, at_source, at_end)
        if positions or rows:
            copier.begin_at(positions, at_source.topic_ids, rows)

    def _first_position(
        self,
        partition: Partition,
        logs: Logs,
        at_source: Logs,
        at_end: Collection[str],
        again: Collection[str] = (),
    ) -> int:
        """Where the copy begins. Raises MirrorError if it cannot begin in the target's log."""
        topic, number = partition
        position = (at_source.ends if topic in at_end else at_source.starts)[partition]
        target = (self._names.at_target(topic), number)
        wrong = why_not_begun(logs.starts[target], logs.ends[target], position)
        if not wrong:
            return position
        fix = (
            f"delete topic {target[0]} there, so that the mirror creates it; or leave {topic} out "
            "with --topics"
        )
        if topic in again:
            fix = (
                f"{how_again(topic, target[0], keeps=True)}; without --again the copy goes on "
                "where it is"
            )
        raise MirrorError(
            f"partition {number} of topic {target[0]} at {self._target.cluster.alias} {wrong}: a "
            "copy that keeps offsets begins in an empty topic",
            fix,
        )

    def _resume(self, partition: Partition, logs: Logs, at_source: Logs) -> None:
        copier = self._of_session()
        one = copier.progress[partition]
        target = (one.target, partition[1])
        start, end = logs.starts[target], logs.ends[target]
        found = resumed(one, end)
        if found.tail_begin is not None:
            tail = Tail(
                *partition,
                one.target,
                max(found.tail_begin, start, at_source.starts[partition]),
                end,
                at_source.ends[partition],
                self._is_compacted(partition[0], one.target),
                (one.position, one.epoch),
            )
            epoch = self._checked(tail)
            found = found._replace(progress=found.progress._replace(epoch=epoch))
        elif end < one.target_end:
            self._note(
                f"partition {partition[1]} of topic {one.target} ends at {end} at the target, "
                f"before {one.target_end}: what was lost there is copied again, to the same offsets"
            )
        copier.progress[partition] = found.progress
        copier.follow(partition, start, end)

    def _checked(self, tail: Tail) -> int:
        """The leader epoch of the source's record before the end. Raises MirrorError."""
        found = compare(self._source, self._target, tail)
        if found.foreign is None:
            return found.epoch
        raise MirrorError(
            f"offset {found.foreign} of partition {tail.partition} of topic {tail.target} at "
            f"{self._target.cluster.alias} is no copy of the source's: somebody else has written "
            "to the topic, and offsets cannot be kept",
            f"let nobody else write to {tail.target}; delete it there, and copy {tail.topic} from "
            f"its beginning with --again {tail.topic}",
        )

    def _is_compacted(self, topic: str, target: str) -> bool:
        options = (
            self._source.options([topic])[topic],
            self._target.options([target])[target],
        )
        policies = (one.get("cleanup.policy", ("", False))[0] for one in options)
        return any("compact" in (policy or "") for policy in policies)
