"""Kafka's replica assignment, with and without racks. Pure; randomness is an argument.

Without racks the first replica of partition ``p`` goes to broker ``(start + p) mod n``. The others
follow at a shift that grows by one each time the partitions have gone round all brokers, which
spreads a broker's followers. With racks the brokers are ordered so that neighbours lie in different
racks; a broker is skipped while some rack has no replica of the partition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class PlacementError(Exception):
    """Too few brokers; the message is for the client."""


def place_replicas(
    racks: Mapping[int, str | None],
    partition_count: int,
    replication_factor: int,
    *,
    start: int,
    shift: int,
    first_partition: int = 0,
) -> dict[int, tuple[int, ...]]:
    """Replicas by partition, from ``first_partition`` on.

    ``racks`` has every broker. ``start`` (index of the first broker) and ``shift`` are random for a
    new topic and fixed for added partitions. Brokers without a rack are in one of their own.
    """
    if replication_factor > len(racks):
        raise PlacementError(
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(racks)} broker(s) are registered."
        )
    known = {broker: rack or "" for broker, rack in racks.items()}
    brokers = alternate_racks(known)
    rack_count = len(set(known.values()))
    placed = {}
    for partition in range(first_partition, first_partition + partition_count):
        if partition > 0 and partition % len(brokers) == 0:
            shift += 1
        first = (partition + start) % len(brokers)
        chosen = [brokers[first]]
        used = {known[brokers[first]]}
        number = 0
        while len(chosen) < replication_factor:
            step = 1 + (shift * rack_count + number) % (len(brokers) - 1)
            candidate = brokers[(first + step) % len(brokers)]
            number += 1
            fresh_rack = known[candidate] not in used or len(used) == rack_count
            if candidate not in chosen and fresh_rack:
                chosen.append(candidate)
                used.add(known[candidate])
            if number > len(brokers) * replication_factor:
                raise PlacementError("The racks leave no place for a replica.")
        placed[partition] = tuple(chosen)
    return placed


def alternate_racks(racks: Mapping[int, str]) -> Sequence[int]:
    """Takes a broker from each rack in turn: racks a (0, 1), b (2), c (3) give 0, 2, 3, 1."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    queues = [by_rack[rack] for rack in sorted(by_rack)]
    ordered = []
    for turn in range(max(map(len, queues))):
        ordered += [queue[turn] for queue in queues if turn < len(queue)]
    return ordered
