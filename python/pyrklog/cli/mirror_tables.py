"""What ``pyrklog mirror status`` and ``verify`` list."""

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyrklog.cli.output import Listing, columns

if TYPE_CHECKING:
    from pyrklog.mirror import Names, Patterns
    from pyrklog.mirror.cluster import ClusterAdmin
    from pyrklog.mirror.status import Row
    from pyrklog.mirror.verify import Verdict

STATUS = columns(
    "topic, partition> PART, position>, end>, lag>, rate> REC/S, records>, skipped> LOST, at, "
    "target*, begin*>, bytes*>"
)
VERIFY = columns("topic, partition> PART, target, records>, result, keys*>, difference DIFFERENCE")


def status_listing(
    names: "Names", source: "ClusterAdmin", target: "ClusterAdmin", over_s: float
) -> Listing:
    """Raises MirrorError."""
    from pyrklog.mirror.status import rows, stored

    state = stored(names, target)
    rates: dict[tuple[str, int], float] = {}
    if over_s:
        began = time.monotonic()
        time.sleep(over_s)
        later = stored(names, target)
        seconds = time.monotonic() - began
        for partition, one in later.partitions.items():
            before = state.partitions.get(partition)
            copied = one.records - (before.records if before is not None else 0)
            rates[partition] = copied / seconds
        state = later
    cluster_id = state.origin.target_id if state.origin is not None else None
    items = [_status(row, rates) for row in rows(source, state.partitions)]
    return Listing("pyrklog.mirror-status/1", STATUS, items, cluster_id)


def _status(row: "Row", rates: dict[tuple[str, int], float]) -> dict[str, Any]:
    one = row.progress
    rate = rates.get((row.topic, row.partition))
    at = datetime.fromtimestamp(one.at_ms / 1000, UTC).isoformat(timespec="seconds")
    return {
        "topic": row.topic,
        "partition": row.partition,
        "position": one.position,
        "end": row.end,
        "lag": row.lag,
        "rate": None if rate is None else round(rate, 1),
        "records": one.records,
        "skipped": one.skipped,
        "at": at.replace("+00:00", "Z"),
        "target": one.target,
        "begin": one.begin,
        "bytes": one.bytes,
    }


def verify_listing(
    names: "Names", source: "ClusterAdmin", target: "ClusterAdmin", topics: "Patterns"
) -> Listing:
    """Raises MirrorError."""
    from pyrklog.mirror.status import stored
    from pyrklog.mirror.verify import Verdict, compare, sides

    state = stored(names, target)
    chosen = set(topics.matching({topic for topic, _ in state.partitions}))
    gone = chosen - set(source.topics()[1])
    chosen -= gone
    partitions = {key: one for key, one in sorted(state.partitions.items()) if key[0] in chosen}
    compacted = _compacted(source, chosen) | {
        topic
        for topic in chosen
        if _compacted(target, {one.target for key, one in partitions.items() if key[0] == topic})
    }
    items = [
        _verdict(compare(here, there, is_compacted=here.topic in compacted))
        for here, there in sides(source, target, partitions).values()
    ]
    items += [
        _verdict(Verdict(topic, number, one.target), "gone at the source")
        for (topic, number), one in sorted(state.partitions.items())
        if topic in gone
    ]
    cluster_id = state.origin.target_id if state.origin is not None else None
    return Listing("pyrklog.mirror-verify/1", VERIFY, items, cluster_id)


def _compacted(admin: "ClusterAdmin", topics: set[str]) -> set[str]:
    return {
        topic
        for topic, options in admin.options(sorted(topics)).items()
        if "compact" in (options.get("cleanup.policy", ("", False))[0] or "")
    }


def _verdict(one: "Verdict", result: str | None = None) -> dict[str, Any]:
    return {
        "topic": one.topic,
        "partition": one.partition,
        "target": one.target,
        "records": one.records,
        "result": result or ("differs" if one.difference else "same"),
        "keys": one.keys,
        "difference": one.difference or None,
    }
