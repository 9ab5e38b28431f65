"""Faults that clients make, or suffer from."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tests.service import load
from tests.service.load import Reader, Repeated, Writer
from tests.service.watched import CACHE_BYTES, OTHER, Watched
from tests.support.transactions import producer_of
from tests.support.waiting import wait_until

USED = 0.87
"""Share of the descriptors in use: more than 80 %, less than 95 %."""
FLOOD = 60
ROOM = 4
HOSTILE = 40
WIDE_PARTITIONS = 2_000
"""Each has nine series at its leader, one of three: more than the 5,000 of an answer."""
WIDE_S = 120.0
HOT = "hot"
HOT_VALUE = bytes(100_000)
HOT_BYTES_MAX = 6 * CACHE_BYTES
CAUGHT_UP_S = 5
HANGING_MS = 300_000


# --- descriptors and connections -----------------------------------------------------------------


@contextmanager
def _descriptors_of(watched: Watched, share: float) -> Iterator[None]:
    """What a broker has is this share of what it may have."""
    pid = watched.cluster.brokers[OTHER].pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = len(os.listdir(f"/proc/{pid}/fd"))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (round(used / share), before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


@contextmanager
def _flood(watched: Watched, count: int) -> Iterator[None]:
    """Connections that say nothing."""
    with ExitStack() as opened:
        for _ in range(count):
            opened.enter_context(
                socket.create_connection(watched.cluster.brokers[OTHER].address, timeout=30)
            )
        yield


@contextmanager
def descriptors_scarce(watched: Watched) -> Iterator[None]:
    with _descriptors_of(watched, USED):
        yield


@contextmanager
def descriptors_gone(watched: Watched) -> Iterator[None]:
    with _descriptors_of(watched, 1.0), _flood(watched, FLOOD):
        yield


def _set_connections_max(admin: AdminClient, count: int | None) -> None:
    operation = AlterConfigOpType.SET if count is not None else AlterConfigOpType.DELETE
    entry = ConfigEntry("max.connections", str(count or ""), incremental_operation=operation)
    broker = ConfigResource(ResourceType.BROKER, str(OTHER), incremental_configs=[entry])
    admin.incremental_alter_configs([broker])[broker].result(30)


@contextmanager
def connections_at_limit(watched: Watched) -> Iterator[None]:
    """Of its admin client the broker has a connection before the limit is there."""
    admin = watched.admin
    own = f'max_over_time(pyrklog_connections{{instance="{watched.target(OTHER)}"}}[30s])'
    _set_connections_max(admin, round(watched.prometheus.number(own)) + ROOM)
    try:
        with _flood(watched, FLOOD):
            yield
    finally:
        _set_connections_max(admin, None)


@contextmanager
def not_kafka(watched: Watched) -> Iterator[None]:
    """A browser that comes again and again."""
    for _ in range(HOSTILE):
        address = watched.cluster.brokers[OTHER].address
        with socket.create_connection(address, timeout=30) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n")
            with suppress(ConnectionError):  # closed with the rest of it unread
                while connection.recv(4096):
                    pass
    yield


# --- memory --------------------------------------------------------------------------------------


@contextmanager
def cache_too_small(watched: Watched) -> Iterator[None]:
    """A topic is written as fast as its readers read what the cache has lost. The cure is a larger
    cache: the broker has one from then on."""
    victim = OTHER
    options = {"retention_bytes": str(HOT_BYTES_MAX), "segment_bytes": "16000000"}
    with watched.topic(HOT, [[victim]], **options), ExitStack() as clients:
        bootstrap = watched.cluster.bootstrap
        writer = Writer(bootstrap, HOT, value=HOT_VALUE, records=5)
        clients.enter_context(Repeated(writer.step, 0.1, writer.close))
        much = 2 * CACHE_BYTES // len(HOT_VALUE)
        wait_until(lambda: writer.acknowledged > much, "it is slow", 180)
        clients.enter_context(_from_the_beginning(bootstrap))
        yield
    watched.cluster.brokers[victim].options["pyrklog.cache.max.bytes"] = 4 * CACHE_BYTES
    watched.restart(victim)


def _from_the_beginning(bootstrap: str) -> Repeated:
    """Reads the older half again and again."""
    reader = Reader(bootstrap, "rereader", HOT, **{"enable.auto.commit": False})
    return Repeated(lambda: reader.read_again(CACHE_BYTES // len(HOT_VALUE)), 0.2, reader.close)


# --- groups --------------------------------------------------------------------------------------


def _wait_until_caught_up(watched: Watched, group: str) -> None:
    lag = f'max(pyrklog_group_lag_seconds{{consumergroup="{group}"}})'

    def is_near() -> bool:
        found = watched.prometheus.now(lag)
        return bool(found) and found[0][1] < CAUGHT_UP_S

    wait_until(is_near, f"{group} does not catch up", 120)


@contextmanager
def _deleted_at_last(watched: Watched, group: str) -> Iterator[None]:
    try:
        yield
    finally:
        watched.admin.delete_consumer_groups([group])[group].result(60)


@contextmanager
def consumers_stop(watched: Watched) -> Iterator[None]:
    """They come back, and catch up."""
    group = "late"

    def reading() -> Repeated:
        reader = Reader(watched.cluster.bootstrap, group, load.TOPIC)
        thread = Repeated(reader.step, close=reader.close)
        wait_until(lambda: reader.read > 0, "it reads nothing")
        return thread

    with _deleted_at_last(watched, group):
        reading().close()
        try:
            yield
        finally:
            with reading():
                _wait_until_caught_up(watched, group)


@contextmanager
def transaction_hangs(watched: Watched) -> Iterator[None]:
    """What comes behind an open transaction is not read by those that read committed records."""
    topic, group, bootstrap = "payments", "settlement", watched.cluster.bootstrap
    with (
        watched.topic(topic, [[1, 2, 3]]),
        _deleted_at_last(watched, group),
        ExitStack() as clients,
    ):
        writer = Writer(bootstrap, topic)
        clients.enter_context(Repeated(writer.step, 0.2, writer.close))
        reader = Reader(bootstrap, group, topic, **{"isolation.level": "read_committed"})
        clients.enter_context(Repeated(reader.step, close=reader.close))
        wait_until(lambda: reader.read > 0, "it reads nothing")
        hanging = producer_of(bootstrap, "hanging", **{"transaction.timeout.ms": HANGING_MS})
        hanging.begin_transaction()
        hanging.produce(topic, b"half of a payment")
        assert hanging.flush(30) == 0
        try:
            yield
        finally:
            hanging.abort_transaction(60)
            _wait_until_caught_up(watched, group)


# --- metrics -------------------------------------------------------------------------------------


@contextmanager
def topic_too_wide(watched: Watched) -> Iterator[None]:
    """For one answer of /metrics/detail."""
    wide = NewTopic("wide", WIDE_PARTITIONS, 1)
    watched.admin.create_topics([wide], request_timeout=WIDE_S)["wide"].result(WIDE_S)
    try:
        watched.scrape("wide", [watched.target(OTHER)])
        yield
    finally:
        watched.scrape("wide", [])
        watched.admin.delete_topics(["wide"], request_timeout=WIDE_S)["wide"].result(WIDE_S)
