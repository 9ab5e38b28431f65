"""The steps of a stream: where it starts, what a batch takes, which ranges that is.

Nothing that matters is kept here: a new engine goes on from offsets alone. No pyspark, no clock:
the cluster and the time are arguments.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from pyrklog.spark.admission import Limits, Turns, admit, should_wait
from pyrklog.spark.cluster import Cluster, GoneError
from pyrklog.spark.group_commit import Group
from pyrklog.spark.high_watermarks import HighWatermarks
from pyrklog.spark.offsets import (
    Json,
    OffsetRange,
    Position,
    StreamOffset,
    TopicPartition,
    from_json,
    ranges_between,
    sentence_of,
)
from pyrklog.spark.options import Assign, SourceOptions
from pyrklog.spark.places import EARLIEST, LATEST
from pyrklog.spark.planning import plan_tasks
from pyrklog.spark.resolve import (
    SelectionError,
    is_selected,
    partitions_of,
    passing,
    require_all,
    resolve,
    selected,
)
from pyrklog.spark.sizes import Sizes
from pyrklog.spark.view import Standing, TopicView, View, compare, left_behind

LAGGING_MOST_S = 60.0
"""How long an end may stay below a position whose epoch is unknown before that counts as loss."""
TRUNCATION_CHECK_S = 5.0
"""Between two questions whether a lagging partition was truncated."""
DOUBT_PAUSE_S = 1.0
"""Between two looks at ends that may be lost, when a run has nothing else to do."""
SENTENCES_MAX = 10
VIEWS_MAX = 3
"""Tries to describe topics and list their offsets before one that the stream knows is deleted."""

logger = logging.getLogger("pyrklog.spark")


class DataLossError(Exception):
    """Records were deleted or cut off before they were read. The message has a sentence for each
    loss, at most ``SENTENCES_MAX``."""

    def __init__(self, losses: list[str]) -> None:
        more = len(losses) - SENTENCES_MAX
        lines = losses[:SENTENCES_MAX] + ([f"and {more} more losses"] if more > 0 else [])
        lines.append("failOnDataLoss=false continues with what is left")
        super().__init__("\n".join(lines))


@dataclass
class _Lagging:
    """A partition whose end is below the stream's position."""

    since_s: float
    checked_s: float | None = None


class StreamEngine:
    """One query's source, on the driver. Offsets are documents as Spark keeps them."""

    def __init__(
        self,
        options: SourceOptions,
        cluster: Cluster,
        high_watermarks: HighWatermarks,
        sizes: Sizes,
        group: Group | None,
        now: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._options = options
        self._cluster = cluster
        self._high_watermarks = high_watermarks
        self._sizes = sizes
        self._group = group
        self._now = now
        self._sleep = sleep
        self._initial: Json | None = None
        self._target: Mapping[TopicPartition, Position] | None = None
        self._lagging: dict[TopicPartition, _Lagging] = {}
        self._turns = Turns()
        self._is_in_doubt = False
        self._are_names_told = False
        self._are_dropped_told = False
        self._last_batch_s: float | None = None
        self._told_number = 0
        self._seen: StreamOffset | None = None

    def initial(self) -> Json:
        """The starting places as offsets, the same in one run. Raises SelectionError."""
        if self._initial is None:
            topics = selected(self._cluster, self._options.selection, {})
            require_all(self._cluster, topics, self._options.selection)
            positions = resolve(
                self._cluster,
                partitions_of(topics),
                self._options.starting,
                latest_if_no_record_is_so_late=self._options.latest_if_no_record_is_so_late,
            )
            topic_ids = {name: topic.topic_id for name, topic in topics.items()}
            self._initial = StreamOffset(positions, topic_ids, is_initial=True).to_json()
        return self._initial

    def prepare_available_now(self) -> None:
        """Fixes the last offsets: nothing above them is read by this run."""
        self._target = self._view({}).latest

    def latest(self, start_document: Json, *, is_limited: bool) -> Json:
        """The end of the next batch; the same document if there is nothing to read.

        ``is_limited`` is False where Spark lifts the limits of options. Raises DataLossError,
        SelectionError, ClusterError, OffsetFormatError.
        """
        start = from_json(start_document)
        self._tell_group(start)
        while True:
            end = self._next(start, is_limited=is_limited)
            if _is_other(start, end):
                self._last_batch_s = self._now()
                return end.to_json()
            if self._target is None or not self._is_in_doubt:
                return start_document
            # The next run would know as little, and so never tell a loss.
            self._sleep(DOUBT_PAUSE_S)

    def _next(self, start: StreamOffset, *, is_limited: bool) -> StreamOffset:
        """Where the next batch would end, also if that is where it begins."""
        are_assigned = isinstance(self._options.selection, Assign)
        before = self._still_selected(start)
        self._tell_dropped(start, before)
        awaited = {place.topic for place in self._target or ()}
        view = self._view(_topics_of(before), awaited)
        self._tell_missing(start, view)
        standing = compare(before, view, are_assigned=are_assigned)
        self._judge_lagging(standing, view)
        self._tell_losses(standing)
        ends = self._ends(standing, view)
        backlogs = {
            place: end.offset - standing.positions[place].offset for place, end in ends.items()
        }
        taken = self._admit(standing, backlogs, start.number, is_limited=is_limited)
        positions = {
            place: self._moved(position, taken.get(place, 0), ends.get(place))
            for place, position in standing.positions.items()
        }
        topic_ids = {
            name: topic.topic_id or start.topic_ids.get(name, "")
            for name, topic in view.topics.items()
        }
        gone = left_behind(before, view, standing)
        return StreamOffset(positions, topic_ids, standing.begins, start.number + 1, gone=gone)

    def report(self) -> Json | None:
        """The last offsets that were seen, for the query's progress."""
        return None if self._seen is None else self._seen.to_json()

    def tasks(self, start_document: Json, end_document: Json) -> list[OffsetRange]:
        """What a batch reads, from its two offsets alone. Raises OffsetFormatError,
        TooManyTasksError."""
        if start_document == end_document:
            return []
        end = from_json(end_document)
        if end.is_initial:
            # A first batch that was empty, repeated: the start is another one by now.
            return []
        ranges = ranges_between(from_json(start_document), end)
        if self._options.tasks.max_bytes is None:
            return plan_tasks(ranges, self._options.tasks)
        sizes = self._sizes.record_bytes(ranges)
        return plan_tasks(ranges, self._options.tasks, lambda place: sizes[place])

    def commit(self, end_document: Json) -> None:
        """The batch that ends here is finished."""
        self._tell_group(from_json(end_document))

    def stop(self) -> None:
        self._cluster.close()
        self._high_watermarks.close()
        if self._group is not None:
            self._group.close()

    def _tell_group(self, finished: StreamOffset) -> None:
        """Never goes back: Spark tells of a batch that we know of already."""
        if self._group is None or finished.is_initial or finished.number < self._told_number:
            return
        self._told_number = finished.number
        self._group.commit(finished)

    def _view(
        self, expected: Mapping[str, TopicView], awaited: Collection[str] | None = None
    ) -> View:
        """``awaited`` as for ``selected``."""
        for attempt in range(VIEWS_MAX):
            topics = selected(self._cluster, self._options.selection, expected, awaited)
            try:
                view = self._listed(topics, expected, awaited)
                break
            except GoneError:
                # A topic of the stream's was deleted meanwhile.
                if attempt + 1 == VIEWS_MAX:
                    raise
        topic_ids = {name: topic.topic_id for name, topic in view.topics.items()}
        self._seen = StreamOffset(view.latest, topic_ids)
        return view

    def _listed(
        self,
        topics: Mapping[str, TopicView],
        expected: Mapping[str, TopicView],
        awaited: Collection[str] | None,
    ) -> View:
        """Leaves out topics that were deleted since they were described, unless they are expected:
        a pattern's topics may come and go. Raises GoneError."""
        unawaited = passing(self._options.selection, topics, expected, awaited)
        while True:
            partitions = partitions_of(topics)
            try:
                earliest = self._cluster.offsets(dict.fromkeys(partitions, EARLIEST), unawaited)
                latest = self._cluster.offsets(dict.fromkeys(partitions, LATEST), unawaited)
            except GoneError as error:
                gone = error.topics & topics.keys()
                if not gone or gone & expected.keys():
                    raise
                logger.info("left out, as new topics that are deleted: %s", ", ".join(sorted(gone)))
                topics = {name: topic for name, topic in topics.items() if name not in gone}
            else:
                return View(topics, earliest, latest)

    def _still_selected(self, start: StreamOffset) -> StreamOffset:
        """Without the partitions that the query's options no longer name: that is no loss."""
        selection = self._options.selection
        kept = {
            place: position
            for place, position in start.positions.items()
            if is_selected(selection, place)
        }
        gone = {}
        for name, one in start.gone.items():
            left = {
                number: position
                for number, position in one.positions.items()
                if is_selected(selection, TopicPartition(name, number))
            }
            gone[name] = replace(one, positions=left)
        return replace(start, positions=kept, gone=gone)

    def _tell_dropped(self, start: StreamOffset, kept: StreamOffset) -> None:
        """Once a run: a misspelt name in the options gives up a backlog."""
        dropped = sorted(start.positions.keys() - kept.positions.keys())
        if not dropped or self._are_dropped_told:
            return
        self._are_dropped_told = True
        told = ", ".join(
            f"{place} from offset {start.positions[place].offset}"
            for place in dropped[:SENTENCES_MAX]
        )
        more = len(dropped) - SENTENCES_MAX
        logger.warning(
            "partitions of the stream are no longer selected by the options, and their records are "
            "not read: %s",
            f"{told} and {more} more" if more > 0 else told,
        )

    def _tell_missing(self, start: StreamOffset, view: View) -> None:
        """Of names that were added to the query's options, once a run: those in the offset are
        losses. Not an error without ``failOnDataLoss``, since that drops what is gone."""
        if self._are_names_told:
            return
        try:
            known = start.positions.keys()
            require_all(self._cluster, view.topics, self._options.selection, known)
        except SelectionError as missing:
            if self._options.fail_on_data_loss:
                raise
            logger.warning("%s, and failOnDataLoss is false: it is not read", missing)
        self._are_names_told = True

    def _judge_lagging(self, standing: Standing, view: View) -> None:
        """Turns those lagging partitions into losses that will not come back."""
        now = self._now()
        self._lagging = {
            place: self._lagging.get(place) or _Lagging(since_s=now) for place in standing.lagging
        }
        due = {
            place: standing.positions[place]
            for place, lagging in self._lagging.items()
            if lagging.checked_s is None or now - lagging.checked_s >= TRUNCATION_CHECK_S
        }
        undated = {place: one for place, one in due.items() if one.epoch < 0}
        if undated:
            for place in undated:
                self._lagging[place].checked_s = now
            logger.warning(
                "%s end before the stream's position, and are waited for", sentence_of(undated)
            )
        self._judge_undated(standing, view)
        self._judge_dated(standing, view, {p: one for p, one in due.items() if one.epoch >= 0})

    def _judge_undated(self, standing: Standing, view: View) -> None:
        """Of positions without an epoch, about which no leader can be asked."""
        now = self._now()
        self._is_in_doubt = False
        places = [place for place in self._lagging if standing.positions[place].epoch < 0]
        whole = self._whole_ends(places, view)
        for place in places:
            position, end = standing.positions[place], view.latest[place]
            if whole[place] >= position.offset:
                # An open transaction holds back the last stable offset.
                self._lagging[place].since_s = now
            elif now - self._lagging[place].since_s < LAGGING_MOST_S:
                self._is_in_doubt = True
            else:
                standing.losses.append(
                    f"{place} ends at offset {end.offset} since {LAGGING_MOST_S:.0f} s, before "
                    f"the stream's position {position.offset}: it was truncated or created "
                    "anew, or the stream was started behind its end"
                )
                standing.restart(place, end)

    def _whole_ends(self, places: list[TopicPartition], view: View) -> dict[TopicPartition, int]:
        """Where logs end if open transactions count."""
        if places and self._options.connection.isolation == "read_committed":
            try:
                return self._high_watermarks.ends(places)
            except GoneError as error:
                # The next view tells it, and that is a loss, too.
                logger.info("no end of a log with open transactions: %s", error)
        return {place: view.latest[place].offset for place in places}

    def _judge_dated(
        self, standing: Standing, view: View, due: Mapping[TopicPartition, Position]
    ) -> None:
        if not due:
            return
        now = self._now()
        truncated = self._cluster.find_truncated(due)
        if truncated is not None:
            position, end = due[truncated], view.latest[truncated]
            standing.losses.append(
                f"{truncated} was truncated to offset {end.offset}: records up to "
                f"{position.offset - 1} had been read from a leader of epoch {position.epoch}"
            )
            standing.restart(truncated, end)
            return
        for place in due:
            self._lagging[place].checked_s = now
        logger.warning(
            "the leaders of %s have fewer records than the stream has read, and are waited for",
            sentence_of(due),
        )

    def _tell_losses(self, standing: Standing) -> None:
        if not standing.losses:
            return
        if self._options.fail_on_data_loss:
            raise DataLossError(standing.losses)
        for loss in standing.losses:
            logger.warning("data loss, and failOnDataLoss is false: %s", loss)

    def _ends(self, standing: Standing, view: View) -> dict[TopicPartition, Position]:
        """Up to where each partition may be read; those that may not are left out."""
        ends = {}
        for place, position in list(standing.positions.items()):
            end = view.latest[place]
            if self._target is not None:
                target = self._target.get(place)
                if target is None:
                    # New since this run began: the next one reads it.
                    if place in standing.begins:
                        del standing.positions[place], standing.begins[place]
                    continue
                end = min(end, target)
            if end.offset > position.offset:
                ends[place] = end
        return ends

    def _admit(
        self,
        standing: Standing,
        backlogs: Mapping[TopicPartition, int],
        number: int,
        *,
        is_limited: bool,
    ) -> Mapping[TopicPartition, int]:
        if not is_limited or not backlogs:
            return backlogs
        if self._target is None and self._last_batch_s is not None:
            available, waited_s = sum(backlogs.values()), self._now() - self._last_batch_s
            least, wait_most_s = self._options.min_records, self._options.max_delay_s
            if should_wait(available, least, waited_s, wait_most_s):
                return {}
        limits: Limits = self._options.limits
        sizes: Mapping[TopicPartition, float] = {}
        if limits.bytes is not None:
            sizes = self._sizes.record_bytes(
                [
                    OffsetRange(*place, position.offset, position.offset + backlogs[place])
                    for place, position in standing.positions.items()
                    if place in backlogs
                ]
            )
        turns = self._turns.order(backlogs, number)
        taken = admit(limits, backlogs, sizes, turns)
        self._turns.note(taken, standing.positions, number)
        return taken

    @staticmethod
    def _moved(position: Position, taken: int, end: Position | None) -> Position:
        """The end's epoch is not older than that of any record before it."""
        if taken == 0 or end is None:
            return position
        return Position(position.offset + taken, end.epoch)


def _topics_of(offset: StreamOffset) -> dict[str, TopicView]:
    """What a stream knows of its topics."""
    partitions: dict[str, list[int]] = {}
    for topic, partition in offset.positions:
        partitions.setdefault(topic, []).append(partition)
    return {
        topic: TopicView(offset.topic_ids.get(topic, ""), tuple(numbers))
        for topic, numbers in partitions.items()
    }


def _is_other(start: StreamOffset, end: StreamOffset) -> bool:
    """Whether an end differs in partitions, offsets, or topics of the same name. Epochs that became
    known make no batch."""
    if start.positions.keys() != end.positions.keys():
        return True
    if any(one.offset != end.positions[place].offset for place, one in start.positions.items()):
        return True
    return any(end.topic_ids.get(name, known) != known for name, known in start.topic_ids.items())
