"""GroupLag and PartitionOffsets, our own: how far groups are behind, in records and milliseconds.

Their keys are far above Kafka's, as in ``verification.py``. Questions and answers are bounded;
lag.md says how, and what the numbers mean. -1 stands for what is unknown.
"""

from enum import IntEnum
from typing import Annotated

from pyrklog.protocol.api import Api
from pyrklog.protocol.fields import (
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Str,
    empty_list,
    tagged,
)

UNKNOWN = -1
OFFSETS_MAX = 5_000
"""Of a PartitionOffsets request."""
GROUPS_MAX = 100
"""Named in a GroupLag request."""
PAGE_MAX = 1_000
"""Groups of a page."""
PARTITIONS_MAX = 10_000
"""Of a GroupLag answer, all groups together."""


class Trend(IntEnum):
    UNKNOWN = 0
    DOWN = 1
    FLAT = 2
    UP = 3


class PartitionOffsetsPartition(Message):
    partition_index: Int32
    offsets: list[Int64] = empty_list()


class PartitionOffsetsTopic(Message):
    name: Str
    partitions: list[PartitionOffsetsPartition] = empty_list()


class PartitionOffsetsRequest(Message):
    """To the leader of the partitions. ``back_ms``: where their logs ended so long ago; 0: not
    asked. Brokers that do not know the field do not tell it."""

    topics: list[PartitionOffsetsTopic] = empty_list()
    back_ms: Annotated[Int64, tagged(0, since=0)] = 0


class OffsetAge(Message):
    """How long ago the log end left an offset; 0 where it has not. ``is_least``: at least so long,
    as it had left it before the leader's history begins."""

    age_ms: Int64 = UNKNOWN
    is_least: Bool = False


class PastEnd(Message):
    """The end of a log so long ago, and now, without transaction markers behind the data.
    ``age_ms`` is less than was asked for where the leader's history, or its leadership, began
    later."""

    age_ms: Int64
    end_offset: Int64
    end_offset_now: Int64


class PartitionOffsetsResult(Message):
    """``ages`` are in order of the offsets asked for. ``past``: at most one; None: not asked, or
    unknown."""

    partition_index: Int32
    error_code: Int16 = 0
    log_start_offset: Int64 = UNKNOWN
    log_end_offset: Int64 = UNKNOWN
    ages: list[OffsetAge] = empty_list()
    past: Annotated[list[PastEnd] | None, tagged(0, since=0)] = None


class PartitionOffsetsTopicResult(Message):
    name: Str
    partitions: list[PartitionOffsetsResult] = empty_list()


class PartitionOffsetsResponse(Message):
    error_code: Int16 = 0
    topics: list[PartitionOffsetsTopicResult] = empty_list()


class GroupLagRequest(Message):
    """To the coordinator. ``groups``: these, looked at anew, with their partitions. None: a page of
    all groups behind the name ``after``, at most ``limit``, as the coordinator last found them:
    those whose lag is over so many records *or* milliseconds; both -1: all.

    ``history_ms``: how far the one group named, or a topic of it, was behind over so long; nothing
    else of it is told then. Any broker that has been its coordinator may be asked. Brokers that do
    not know the field tell no history.
    """

    groups: list[Str] | None = None
    after: Str = ""
    limit: Int32 = PAGE_MAX
    over_records: Int64 = UNKNOWN
    over_ms: Int64 = UNKNOWN
    history_ms: Annotated[Int64, tagged(0, since=0)] = 0
    history_topic: Annotated[Str, tagged(1, since=0)] = ""


class PastLag(Message):
    """Points, the oldest first, in three columns. Between two points the lag was on a straight
    line; where it is unknown at one of them, that of the earlier one held until the later. The
    first one may be older than was asked for, so that the line from it is known."""

    ages_ms: list[Int64] = empty_list()
    lags: list[Int64] = empty_list()
    lags_ms: list[Int64] = empty_list()


class PartitionLag(Message):
    """``lost``: by how many records the committed offset is below the log start; ``ahead``: beyond
    the log end. The lag is 0 then. Brokers that do not know the field tell 0."""

    topic: Str
    partition_index: Int32
    committed_offset: Int64
    log_end_offset: Int64 = UNKNOWN
    lag: Int64 = UNKNOWN
    lag_ms: Int64 = UNKNOWN
    is_least: Bool = False
    lost: Int64 = UNKNOWN
    trend: Int8 = Trend.UNKNOWN
    ahead: Annotated[Int64, tagged(0, since=0)] = 0


class GroupLag(Message):
    """``lag``, ``lost``, ``ahead``: the sums of what is known; ``lag_ms``: the longest.
    ``left_out`` counts partitions beyond the bound."""

    group_id: Str
    error_code: Int16 = 0
    members: Int32 = 0
    lag: Int64 = UNKNOWN
    lag_ms: Int64 = UNKNOWN
    is_least: Bool = False
    lost: Int64 = UNKNOWN
    trend: Int8 = Trend.UNKNOWN
    partitions: list[PartitionLag] = empty_list()
    left_out: Int32 = 0
    history: Annotated[list[PastLag] | None, tagged(0, since=0)] = None
    """At most one."""
    ahead: Annotated[Int64, tagged(1, since=0)] = 0


class GroupLagResponse(Message):
    """``after``: ask on from there; None: that was all. ``left_out`` counts groups that the
    coordinator does not look at by itself. ``is_whole``: it has looked at all others once."""

    error_code: Int16 = 0
    groups: list[GroupLag] = empty_list()
    after: Str | None = None
    left_out: Int32 = 0
    is_whole: Bool = True


GROUP_LAG = Api(20_005, GroupLagRequest, GroupLagResponse, versions=(0, 0), flexible_since=0)
PARTITION_OFFSETS = Api(
    20_006, PartitionOffsetsRequest, PartitionOffsetsResponse, versions=(0, 0), flexible_since=0
)
