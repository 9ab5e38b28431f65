"""What a batch read reads: fixed once, when the query is planned."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from pyrklog.spark.cluster import Cluster
from pyrklog.spark.high_watermarks import HighWatermarks
from pyrklog.spark.offsets import OffsetRange, Position, TopicPartition
from pyrklog.spark.options import SourceOptions
from pyrklog.spark.places import EARLIEST, LATEST
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
    options: SourceOptions, cluster: Cluster, high_watermarks: HighWatermarks, sizes: Sizes
) -> list[OffsetRange]:
    """The tasks of a batch read.

    Raises SelectionError for what is not there and for starts behind their ends, DataLossError for
    offsets that are not there any more, ClusterError, TooManyTasksError.
    """
    topics = selected(cluster, options.selection, {})
    require_all(cluster, topics, options.selection)
    partitions = partitions_of(topics)
    starts = resolve(
        cluster,
        partitions,
        options.starting,
        latest_if_no_record_is_so_late=options.latest_if_no_record_is_so_late,
    )
    ends = resolve(cluster, partitions, options.ending, latest_if_no_record_is_so_late=True)
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
            starts[place].offset,
            ends[place].offset,
            starts[place].epoch,
            topics[place.topic].topic_id,
        )
        for place in partitions
        if starts[place].offset < ends[place].offset
    ]
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
    if losses and options.fail_on_data_loss:
        raise DataLossError(losses)
    for loss in losses:
        logger.warning("data loss, and failOnDataLoss is false: %s", loss)
    return (
        {place: max(one, first.get(place, one)) for place, one in starts.items()},
        {place: min(one, last.get(place, one)) for place, one in ends.items()},
    )
