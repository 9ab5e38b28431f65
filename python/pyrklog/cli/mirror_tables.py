"""What ``pyrklog mirror status`` and ``verify`` list."""

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyrklog.cli.output import Listing, columns

if TYPE_CHECKING:
    from pyrklog.mirror import Names, Patterns
    from pyrklog.mirror.cluster import ClusterAdmin
    from pyrklog.mirror.status import Row
    from pyrklog.mirror.verify import Other, Verdict

STATUS = columns(
    "topic, partition> PART, position>, end>, lag>, rate> REC/S, records>, skipped> LOST, state, "
    "at, target*, begin*>, bytes*>, offsets*"
)
TOPICS_TOLD = 5
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
    offsets = state.origin.offsets if state.origin is not None else None
    items = [{**_status(row, rates), "offsets": offsets} for row in rows(source, state.partitions)]
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
        "state": row.standing.value,
        "at": at.replace("+00:00", "Z"),
        "target": one.target,
        "begin": one.begin,
        "bytes": one.bytes,
    }


def verify_listing(
    names: "Names", source: "ClusterAdmin", target: "ClusterAdmin", topics: "Patterns"
) -> Listing:
    """Raises MirrorError."""
    from pyrklog.mirror.names import Offsets
    from pyrklog.mirror.status import stored
    from pyrklog.mirror.verify import Verdict, compare, sides

    state = stored(names, target)
    copied = {topic for topic, _ in state.partitions}
    _refuse_unmatched(names, topics, copied)
    chosen = set(topics.matching(copied))
    known = {key: one for key, one in sorted(state.partitions.items()) if key[0] in chosen}
    keeps = state.origin is not None and state.origin.offsets == Offsets.KEEP.value
    compared = sides(source, target, known, keeps=keeps)
    same = {topic for topic, _ in compared.sides}
    compacted = _compacted(source, same) | {
        topic
        for topic in same
        if _compacted(target, {known[key].target for key in compared.sides if key[0] == topic})
    }
    verdicts = {
        key: _verdict(compare(*pair, is_compacted=key[0] in compacted, keeps=keeps))
        for key, pair in compared.sides.items()
    }
    for key, (why, side) in compared.others.items():
        verdicts[key] = _other(Verdict(*key, known[key].target), why, side)
    items = [verdicts[key] for key in known]
    cluster_id = state.origin.target_id if state.origin is not None else None
    return Listing("pyrklog.mirror-verify/1", VERIFY, items, cluster_id)


def _refuse_unmatched(names: "Names", topics: "Patterns", copied: set[str]) -> None:
    """Raises MirrorError: what is misspelt would look like what is the same."""
    from pyrklog.mirror import MirrorError
    from pyrklog.mirror.errors import Kind

    for text in topics.unmatched(copied) if copied else ():
        raise MirrorError(
            f"mirror {names.mirror} has no topic that matches {topics.option} {text!r}",
            f"it has {', '.join(sorted(copied)[:TOPICS_TOLD])}",
            Kind.NOT_FOUND,
        )


def _compacted(admin: "ClusterAdmin", topics: set[str]) -> set[str]:
    return {
        topic
        for topic, options in admin.options(sorted(topics)).items()
        if "compact" in (options.get("cleanup.policy", ("", False))[0] or "")
    }


def _other(one: "Verdict", why: "Other", side: str) -> dict[str, Any]:
    """The target is to have what the source has; without a leader nobody knows."""
    from pyrklog.mirror.verify import Other

    if side == "source" or why is Other.LEADERLESS:
        return _verdict(one, f"{why.value} at the {side}")
    one.difference = f"the topic {'is' if why is Other.GONE else 'was'} {why.value} at the {side}"
    return _verdict(one)


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
