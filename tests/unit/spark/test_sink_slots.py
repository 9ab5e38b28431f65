"""Transactional ids of a process."""

from __future__ import annotations

import os

from pyrklog.spark.sink_slots import Slots, decision_id, ids_prefix, process_slots


def test_attempts_at_the_same_time_have_ids_of_their_own() -> None:
    slots = Slots("p")
    taken = [slots.take("sink", 5, 4) for _ in range(3)]
    assert [slot.transactional_id for slot in taken] == [
        f"pyrklog-spark/sink/p/{number}" for number in range(3)
    ]


def test_a_slot_is_free_when_its_number_is_over() -> None:
    slots = Slots("p")
    first = slots.take("sink", 5, 4)
    slots.give_back(first, is_open=True)
    again = slots.take("sink", 5, 4)
    assert again is not first, "another run of the same number"
    slots.give_back(again, is_open=False)
    assert slots.take("sink", 5, 4) is again, "it was aborted"
    assert slots.take("sink", 6, 5) is first
    assert slots.take("sink", 7, 6) not in (first, again), "both are busy"


def test_sinks_share_no_ids() -> None:
    slots = Slots("p")
    slots.give_back(slots.take("a", 1, 0), is_open=True)
    assert slots.take("b", 2, 1).transactional_id.startswith(ids_prefix("b"))
    assert not ids_prefix("a-b").startswith(ids_prefix("a"))
    assert not decision_id("a").startswith(ids_prefix("a"))


def test_a_forked_process_has_ids_of_its_own() -> None:
    parent = process_slots()
    assert process_slots() is parent
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, process_slots().process.encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 100).decode() != parent.process
    os.close(read)
    os.close(write)
