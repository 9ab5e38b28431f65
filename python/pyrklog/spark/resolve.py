"""Turns the places of options into offsets, by asking the cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches

from pyrklog.spark.cluster import Cluster, ClusterError
from pyrklog.spark.offsets import Position, TopicPartition, sentence_of
from pyrklog.spark.options import Assign, Pattern, Selection, SourceOptions, Subscribe
from pyrklog.spark.places import LATEST, Kind, Place, Places
from pyrklog.spark.view import TopicView

_NEAR = 0.75
"""As of the commands, which propose names too."""


class SelectionError(ValueError):
    """What the options name is not there."""


def selected(
    cluster: Cluster,
    selection: Selection,
    expected: Mapping[str, TopicView],
    awaited: Collection[str] | None = None,
) -> dict[str, TopicView]:
    """The topics that exist of a selection, with those partitions that exist. If one is not as
    expected, a broker is asked again before that is believed. So it is if one is not there, unless
    ``awaited`` is given: then topics of a pattern that are in neither may come and go."""
    if isinstance(selection, Pattern):
        names = {*cluster.topic_names(), *expected}
        matching = sorted(name for name in names if selection.selects(name))
        return cluster.describe(matching, expected, passing(selection, matching, expected, awaited))
    if isinstance(selection, Assign):
        found = {}
        for name, topic in cluster.describe(list(selection.partitions), expected).items():
            wanted = selection.partitions[name]
            there = tuple(number for number in topic.partitions if number in wanted)
            found[name] = TopicView(topic.topic_id, there)
        return found
    return cluster.describe(list(selection.topics), expected)


def passing(
    selection: Selection,
    names: Collection[str],
    expected: Collection[str],
    awaited: Collection[str] | None,
) -> set[str]:
    """The names of a pattern's topics that nothing waits for: if they come back, they are new."""
    if awaited is None or not isinstance(selection, Pattern):
        return set()
    return {name for name in names if name not in expected and name not in awaited}


def is_selected(selection: Selection, place: TopicPartition) -> bool:
    """Whether a partition, if it exists, is among those selected."""
    if isinstance(selection, Pattern):
        return selection.selects(place.topic)
    if isinstance(selection, Assign):
        return place.partition in selection.partitions.get(place.topic, ())
    return place.topic in selection.topics


def require_all(
    cluster: Cluster,
    topics: Mapping[str, TopicView],
    selection: Selection,
    known: Collection[TopicPartition] = (),
) -> None:
    """Raises SelectionError, which names all topics and partitions that are missing but those that
    are known to have been there. Nothing is missing from a pattern."""
    if isinstance(selection, Pattern):
        return
    names = selection.partitions if isinstance(selection, Assign) else selection.topics
    there = {*topics, *(place.topic for place in known)}
    missing = sorted(name for name in names if name not in there)
    if missing:
        near = _near(cluster, missing)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise SelectionError(f"there is no topic {', '.join(missing)}{hint}")
    if isinstance(selection, Assign):
        absent = [
            TopicPartition(name, number)
            for name, numbers in selection.partitions.items()
            for number in numbers
            if (name not in topics or number not in topics[name].partitions)
            and TopicPartition(name, number) not in known
        ]
        if absent:
            raise SelectionError(f"there is no partition {sentence_of(absent)}")


def require_bad_topic(cluster: Cluster, options: SourceOptions) -> None:
    """Raises SelectionError if the topic for bad records is not there."""
    name = None if options.decoding is None else options.decoding.bad_records
    if name is None:
        return
    wanted = Subscribe((name,))
    try:
        require_all(cluster, selected(cluster, wanted, {}), wanted)
    except SelectionError as error:
        raise SelectionError(f"badRecords: {error}; it is not made") from None


def _near(cluster: Cluster, missing: Collection[str]) -> list[str]:
    """Topics with names like those that are missing; none if the cluster does not tell them."""
    try:
        names = cluster.topic_names()
    except ClusterError:
        return []
    near = (get_close_matches(name, names, n=1, cutoff=_NEAR) for name in missing)
    return list(dict.fromkeys(name for found in near for name in found))


def partitions_of(topics: Mapping[str, TopicView]) -> list[TopicPartition]:
    """All of them, in the order of the topics."""
    return [
        TopicPartition(name, number)
        for name, topic in topics.items()
        for number in topic.partitions
    ]


def resolve(
    cluster: Cluster,
    partitions: list[TopicPartition],
    places: Places,
    *,
    latest_if_no_record_is_so_late: bool,
    asked: Collection[TopicPartition] | None = None,
) -> dict[TopicPartition, Position]:
    """The offset of each partition's place; of those ``asked`` alone, unless that is None.

    Raises SelectionError if some partitions have no place, if places are given for others, and for
    a time after the last record, unless that means latest.
    """
    wanted: dict[TopicPartition, Place] = {}
    without = []
    for partition in partitions:
        place = places.of(partition)
        if place is None:
            without.append(partition)
        else:
            wanted[partition] = place
    if without:
        raise SelectionError(
            f"{places.option} has nothing for {sentence_of(without)}: name every partition, with "
            "-1 for latest or -2 for earliest among offsets"
        )
    others = [place for place in places.single if place not in wanted]
    if others:
        raise SelectionError(f"{places.option} names {sentence_of(others)}, not read here")
    if asked is not None:
        wanted = {partition: wanted[partition] for partition in asked}
    found = cluster.offsets(wanted)
    late = [partition for partition, position in found.items() if position.offset < 0]
    if late and not latest_if_no_record_is_so_late:
        raise SelectionError(
            f"{places.option}: no record is so late in {sentence_of(late)}; "
            "startingOffsetsByTimestampStrategy=latest starts there at latest"
        )
    return found | cluster.offsets(dict.fromkeys(late, LATEST)) if late else found


def is_offset(places: Places, partition: TopicPartition) -> bool:
    """Whether the place of a partition was given as an offset."""
    place = places.of(partition)
    return place is not None and place.kind is Kind.OFFSET
