"""Starts this tree's brokers on what an earlier version left, and checks it against the manifest.

The brokers' clock says what it said then: else retention, expiry and time-outs would end what the
fixtures hold, the older they become.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer

from tests.support import wire
from tests.support.clients import TIMEOUT_S
from tests.support.faults.stepped_clock import SteppedClock
from tests.support.lagging import lag_of
from tests.support.transactions import producer_of, wait_until_ended
from tests.support.waiting import wait_until
from tests.upgrade.content import IDEMPOTENT_BATCHES, READ, idempotent_batch
from tests.upgrade.observation import ISOLATIONS, Seen, observe, observe_coordinators, read
from tests.upgrade.packing import unpack

LATER_S = 60
"""From the end of the earlier brokers to the start of today's."""


def unpacked(fixture: Path, folder: Path) -> Seen:
    """Unpacks ``fixture``.tar.xz; returns its manifest."""
    unpack(fixture.with_suffix(".tar.xz"), folder)
    seen: Seen = json.loads(fixture.with_suffix(".json").read_text())
    return seen


def clock_of(seen: Seen, folder: Path) -> SteppedClock:
    clock = SteppedClock(folder, "brokers")
    clock.step(seen["at"] + LATER_S - time.time())
    return clock


def check_found(seen: Seen, bootstrap: str) -> None:
    """Everything of the manifest is there, and nothing else."""
    of_coordinators = {part: seen[part] for part in ("groups", "transactions")}
    wait_until(
        lambda: observe_coordinators(bootstrap) == of_coordinators,
        lambda: f"{observe_coordinators(bootstrap)}, not {of_coordinators}",
    )
    now = observe(bootstrap)
    assert now["topics"].keys() == seen["topics"].keys()
    for name, topic in seen["topics"].items():
        found = now["topics"][name]
        assert found["id"] == topic["id"]
        assert found["partitions"].keys() == topic["partitions"].keys()
        for number, partition in topic["partitions"].items():
            _check_partition(f"{name}-{number}", partition, found["partitions"][number])
    assert now["options"] == seen["options"]
    lag, was = lag_of(bootstrap, "readers"), seen["lag"]
    assert (lag["records"], lag["is_least"]) == (was["records"], was["is_least"])
    assert lag["ms"] >= was["ms"]


def _check_partition(place: str, seen: Seen, found: Seen) -> None:
    for part in ("replicas", "start", "end", "stable", "producers", "records", "committed"):
        assert found[part] == seen[part], (place, part)
    assert _with_records(found["epochs"]) == _with_records(seen["epochs"]), place


def _with_records(epochs: dict[str, int]) -> dict[str, int]:
    """Those in which something was written: a start may begin others, and empty ones leave no
    trace."""
    found, before = {}, 0
    for epoch, end in sorted(epochs.items(), key=lambda one: int(one[0])):
        if end > before:
            found[epoch] = end
        before = end
    return found


def go_on(seen: Seen, bootstrap: str) -> None:
    """Clients of then go on where they were: producers, transactions, groups."""
    _send_again(seen, bootstrap)
    _append_everywhere(bootstrap)
    _end_what_was_open(bootstrap)
    _read_on(bootstrap)


def _send_again(seen: Seen, bootstrap: str) -> None:
    """The last batch of an idempotent producer comes twice, the next one is new."""
    if "idempotent" not in seen["topics"]:
        return
    [producer] = seen["topics"]["idempotent"]["partitions"]["0"]["producers"]
    number, epoch, last, _ = (int(word) for word in producer.split())
    assert last == IDEMPOTENT_BATCHES - 1
    with wire.Connection(bootstrap) as connection:
        for sequence in (last, last + 1):
            batch = idempotent_batch(number, epoch, sequence)
            assert wire.produce(connection, "idempotent", batch) == wire.Produced(0, sequence)


def _append_everywhere(bootstrap: str) -> None:
    """A record for each partition, at its end."""
    ends = {
        (name, int(number)): partition["end"]
        for name, topic in observe(bootstrap)["topics"].items()
        for number, partition in topic["partitions"].items()
    }
    written: dict[tuple[str, int], int] = {}

    def note(error: Any, message: Any) -> None:
        assert error is None, error
        written[message.topic(), message.partition()] = message.offset()

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for name, number in ends:
        producer.produce(name, b"after", b"after", number, on_delivery=note)
    assert producer.flush(TIMEOUT_S) == 0
    assert written == ends


def _end_what_was_open(bootstrap: str) -> None:
    """A new producer with the id of an open transaction aborts it."""
    producer = producer_of(bootstrap, "left-open")
    producer.begin_transaction()
    producer.produce("opened", b"ended")
    producer.commit_transaction()
    wait_until_ended(bootstrap, "left-open")

    place = ("opened", 0)
    everything, committed = (read(bootstrap, [place], one)[place] for one in ISOLATIONS)
    assert committed.end == everything.end
    assert any("'ended'" in line for line in committed.records)
    assert not any("never" in line for line in committed.records)
    assert any("never" in line for line in everything.records)


def _read_on(bootstrap: str) -> None:
    """A member begins at what the group had committed."""
    settings = {"group.id": "readers", "enable.auto.commit": False, "auto.offset.reset": "error"}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.subscribe(["plain"])
    first: dict[int, int] = {}

    def has_all() -> bool:
        message = consumer.poll(0.1)
        if message is not None:
            assert message.error() is None, message.error()
            first.setdefault(message.partition(), message.offset())
        return len(first) == 3

    wait_until(has_all, lambda: f"read {first}")
    consumer.commit(asynchronous=False)
    consumer.close()
    assert first == dict.fromkeys(range(3), READ)


def check_kept(seen: Seen, bootstrap: str) -> None:
    """What was there at first is there still, in front of what came."""
    now = observe(bootstrap)
    for name, topic in seen["topics"].items():
        for number, partition in topic["partitions"].items():
            found = now["topics"][name]["partitions"][number]
            was = partition["records"]
            assert found["records"][: len(was)] == was, (name, number)
            assert len(found["records"]) > len(was), (name, number)
    assert now["options"] == seen["options"]
