"""From peers' sweeps: members that join and leave at the same time got UNKNOWN_MEMBER_ID."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.acceptance.sites import Site
from tests.support.groups import ConfluentMember, Crew, fill

PARTITIONS = 12
MEMBERS = 6
ROUNDS = 4
DISOWNED = ("Unknown member", "UNKNOWN_MEMBER_ID", "unknown member")


class Told(logging.Handler):
    """What librdkafka says of its groups."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def told() -> Told:
    return Told()


def test_members_of_concurrent_rebalances_are_known(site: Site, topic: str, told: Told) -> None:
    site.create(topic, PARTITIONS)
    logger = logging.Logger(topic, logging.DEBUG)
    logger.addHandler(told)

    def join() -> ConfluentMember:
        options: dict[str, Any] = {"debug": "cgrp", "logger": logger, "heartbeat_interval_ms": 100}
        return ConfluentMember(site.bootstrap, topic, topic, **options)

    with Crew(*(join() for _ in range(MEMBERS))) as crew:
        for _ in range(ROUNDS):
            crew.poll_until(lambda: crew.owns_all(PARTITIONS), "all share")
            for member in crew.members[:2]:
                crew.members.remove(member)
                member.close()
            crew.members += [join(), join()]
        fill(site.bootstrap, topic, PARTITIONS, 10)
        crew.poll_until(lambda: len(set(crew.seen)) == 10 * PARTITIONS, "everything read")
    assert any("JoinGroup response" in line for line in told.lines)
    assert [line for line in told.lines if any(word in line for word in DISOWNED)] == []
