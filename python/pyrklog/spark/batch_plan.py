"""What a batch read reads: fixed once, when the query is planned."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from pyrklog.spark.cluster import Cluster, ClusterError, GoneError
from pyrklog.spark.high_watermarks import HighWatermarks
from pyrklog.spark.narrowing import EVERYWHERE, Narrowing
from pyrklog.spark.offsets import OffsetRange, Position, TopicPartition
from pyrklog.spark.options import SourceOptions
from pyrklog.spark.places import EARLIEST, LATEST, Kind, Place
from pyrklog.spark.planning import plan_tasks
from pyrklog.spark.resolve import (
    SelectionError,
    is_offset,
    partitions_of,
    require_all,
    resolve,
    selected,
)
from pyrklog.spark.sizes import Sizes
from pyrklog.spark.stream_engine import DataLossError

logger = logging.getLogger("pyrklog.spark")


def plan_batch(
    options: SourceOptions,
    cluster: Cluster,
    high_watermarks: HighWatermarks,
    sizes: Sizes,
    narrowing: Narrowing = EVERYWHERE,
) -> list[OffsetRange]:
    """The tasks of a batch read: all rows of it that ``narrowing`` allows, and perhaps others.

    Raises SelectionError for what is not there and for starts behind their ends, DataLossError for
    offsets that are not there any more, ClusterError, TooManyTasksError.
    """
    topics = selected(cluster, options.selection, {})
    require_all(cluster, topics, options.selection)
    everywhere = partitions_of(topics)
    partitions = [place for place in everywhere if narrowing.admits(place)]
    starts = resolve(
        cluster,
        everywhere,
        options.starting,
        latest_if_no_record_is_so_late=options.latest_if_no_record_is_so_late,
        asked=partitions,
    )
    ends = resolve(
        cluster,
        everywhere,
        options.ending,
        latest_if_no_record_is_so_late=True,
        asked=partitions,
    )
    for place in partitions:
        are_offsets = is_offset(options.starting, place) and is_offset(options.ending, place)
        if are_offsets and starts[place].offset > ends[place].offset:
            raise SelectionError(
                f"{place} would be read from offset {starts[place].offset} to "
                f"{ends[place].offset}, which is before"
            )
    starts, ends = _what_is_left(options, cluster, high_watermarks, starts, ends)
    ranges = [
        OffsetRange(
            *place,
            start,
            end,
            starts[place].epoch if start == starts[place].offset else -1,
            topics[place.topic].topic_id,
        )
        for place in partitions
        for start, end in narrowing.ranges(
            starts[place].offset, ends[place].offset, keeps_end=options.is_table
        )
    ]
    if narrowing.least_ms is not None:
        ranges = _not_before(ranges, narrowing.least_ms, cluster)
    if options.tasks.max_bytes is None:
        return plan_tasks(ranges, options.tasks)
    estimates = sizes.record_bytes(ranges)
    return plan_tasks(ranges, options.tasks, lambda place: estimates[place])


def _what_is_left(
    options: SourceOptions,
    cluster: Cluster,
    high_watermarks: HighWatermarks,
    starts: Mapping[TopicPartition, Position],
    ends: Mapping[TopicPartition, Position],
) -> tuple[dict[TopicPartition, Position], dict[TopicPartition, Position]]:
    """Offsets of options within the logs. Raises DataLossError, or warns, for others."""
    first = cluster.offsets(
        {place: EARLIEST for place in starts if is_offset(options.starting, place)}
    )
    last = cluster.offsets({place: LATEST for place in ends if is_offset(options.ending, place)})
    short = [place for place, position in last.items() if position.offset < ends[place].offset]
    if short and options.connection.isolation == "read_committed":
        for place, end in high_watermarks.ends(short).items():
            if end >= ends[place].offset:
                # An open transaction has these records: the task waits for its end.
                del last[place]
    losses = [
        f"{place} begins at offset {position.offset}, behind the start {starts[place].offset}"
        for place, position in first.items()
        if position.offset > starts[place].offset
    ]
    losses += [
        f"{place} ends at offset {position.offset}, before the end {ends[place].offset}"
        for place, position in last.items()
        if position.offset < ends[place].offset
    ]
    losses += _beyond_the_end(options, high_watermarks, starts, ends)
    if losses and options.fail_on_data_loss:
        raise DataLossError(losses)
    for loss in losses:
        logger.warning("data loss, and failOnDataLoss is false: %s", loss)
    return (
        {place: max(one, first.get(place, one)) for place, one in starts.items()},
        {place: min(one, last.get(place, one)) for place, one in ends.items()},
    )


def _beyond_the_end(
    options: SourceOptions,
    high_watermarks: HighWatermarks,
    starts: Mapping[TopicPartition, Position],
    ends: Mapping[TopicPartition, Position],
) -> list[str]:
    """Sentences about given starts behind logs' ends: an empty range would hide that what was
    there is gone. Open transactions may begin before the start."""
    beyond = [
        place
        for place, start in starts.items()
        if is_offset(options.starting, place)
        and not is_offset(options.ending, place)
        and start.offset > ends[place].offset
    ]
    if not beyond:
        return []
    return [
        f"{place} ends at offset {end}, before the start {starts[place].offset}"
        for place, end in high_watermarks.ends(beyond).items()
        if end < starts[place].offset
    ]


def _not_before(ranges: list[OffsetRange], least_ms: int, cluster: Cluster) -> list[OffsetRange]:
    """What is left of ranges without those records that lie before the first one of a time or
    later. Where that is not known, all is."""
    if least_ms <= 0:
        return ranges
    ends = {one.place: one.end for one in ranges}
    try:
        first, without = _first_at(ends, least_ms, cluster)
    except GoneError:
        raise
    except ClusterError as failure:
        logger.warning("a condition on timestamp does not narrow what is read: %s", failure)
        return ranges
    found = []
    for one in ranges:
        begin = first.get(one.place, Position(one.start, one.epoch))
        if one.place in without or begin.offset >= one.end:
            continue
        begin = max(begin, Position(one.start, one.epoch))
        found.append(one._replace(start=begin.offset, epoch=begin.epoch))
    return found


def _first_at(
    ends: Mapping[TopicPartition, int], least_ms: int, cluster: Cluster
) -> tuple[dict[TopicPartition, Position], set[TopicPartition]]:
    """The first record of a time or later, of the partitions in which it is known; and the
    partitions that are known to have none before their ends. Raises ClusterError."""
    listed = cluster.offsets(dict.fromkeys(ends, Place(Kind.TIMESTAMP, least_ms)))
    first = {place: position for place, position in listed.items() if position.offset >= 0}
    # That a leader finds none is no proof: Kafka looks in one segment.
    others = [place for place in ends if place not in first]
    if not others:
        return first, set()
    try:
        times = cluster.latest_times(others)
        old = [place for place, at_ms in times.items() if at_ms < least_ms]
        # A leader that was replaced, and does not know it, may lack what the range has.
        lasts = cluster.offsets(dict.fromkeys(old, LATEST))
    except GoneError:
        raise
    except ClusterError as failure:
        logger.warning("partitions may be read without a row of the times asked for: %s", failure)
        return first, set()
    return first, {place for place, last in lasts.items() if last.offset >= ends[place]}
