"""Limits of connections, and other broker options that reach the plane at run time."""

import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from pyrklog.cluster import run_time_limits
from pyrklog.config.connection_quotas import ListenerQuota
from pyrklog.config.entry import Source, Synonym
from pyrklog.errors import ErrorCode
from pyrklog.handlers.service import (
    OP_DELETE,
    OP_SET,
    RESOURCE_BROKER,
    ConfigAlteration,
    ConfigResource,
)
from tests.unit.broker.harness import Running, running_broker

ALL_BROKERS = ConfigResource(RESOURCE_BROKER, "")
BROKER = ConfigResource(RESOURCE_BROKER, "1")
INT_MAX = 2**31 - 1
PER_IP, OVERRIDES = "max.connections.per.ip", "max.connections.per.ip.overrides"
ZERO = f"{PER_IP} can be set to zero only if {OVERRIDES} property is set."


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    async with running_broker(tmp_path) as broker:
        yield broker


async def alter(
    running: Running, resource: ConfigResource, *operations: tuple[int, str, str | None]
) -> str | None:
    """The message of the refusal, or None."""
    items = [ConfigAlteration(*operation) for operation in operations]
    (result,) = await running.service.incremental_alter_configs(
        [(resource, items)], validate_only=False
    )
    assert result.error is (ErrorCode.INVALID_REQUEST if result.message else ErrorCode.NONE)
    return result.message


async def test_limits_reach_the_plane_at_once(running: Running) -> None:
    first = running.plane.connection_quotas
    assert first is not None
    assert (first.max, first.max_per_host, first.max_per_second) == (INT_MAX, INT_MAX, INT_MAX)
    changes = {
        "max.connections": "77",
        PER_IP: "7",
        OVERRIDES: "127.0.0.9:3, ::1:4",
        "max.connection.creation.rate": "5",
        "producer.id.expiration.ms": "6000",
        "num.recovery.threads.per.data.dir": "9",
        "num.io.threads": "12",
        "transaction.partition.verification.enable": "false",
    }
    was_verifying = running.plane.verifies_transactions
    operations = [(OP_SET, name, value) for name, value in changes.items()]
    assert await alter(running, ALL_BROKERS, *operations) is None
    quotas = running.plane.connection_quotas
    assert quotas is not None
    assert (quotas.max, quotas.max_per_host, quotas.max_per_second) == (77, 7, 5)
    assert list(quotas.max_of_hosts) == [("127.0.0.9", 3), ("::1", 4)]
    assert running.plane.producer_id_expiration_ms == 6000
    assert running.plane.recovery_threads_per_dir == 9
    assert running.plane.io_threads == 12
    assert (was_verifying, running.plane.verifies_transactions) == (True, False)
    assert await alter(running, BROKER, (OP_SET, "max.connections", "78")) is None
    assert await alter(running, ALL_BROKERS, (OP_DELETE, PER_IP, None)) is None
    quotas = running.plane.connection_quotas
    assert quotas is not None
    assert (quotas.max, quotas.max_per_host) == (78, INT_MAX)


async def test_a_listeners_limits_reach_the_plane(running: Running) -> None:
    prefix = "listener.name.plaintext."
    most, rate = prefix + "max.connections", prefix + "max.connection.creation.rate"
    assert await alter(running, ALL_BROKERS, (OP_SET, most, "9")) is None
    quotas = running.plane.connection_quotas
    assert quotas is not None
    assert list(quotas.of_listeners) == [ListenerQuota("PLAINTEXT", 9, INT_MAX)]
    assert await alter(running, BROKER, (OP_SET, most, "8"), (OP_SET, rate, "2")) is None
    quotas = running.plane.connection_quotas
    assert quotas is not None
    assert list(quotas.of_listeners) == [ListenerQuota("PLAINTEXT", 8, 2)]
    # A listener that does not exist is kept, as by Kafka.
    other = "listener.name.other.max.connections"
    assert await alter(running, BROKER, (OP_SET, other, "1"), (OP_DELETE, most, None)) is None
    quotas = running.plane.connection_quotas
    assert quotas is not None
    assert list(quotas.of_listeners) == [ListenerQuota("PLAINTEXT", 9, 2)]


async def test_a_listeners_static_limits_hold_and_are_shown(tmp_path: Path) -> None:
    name = "listener.name.plaintext.max.connections"
    async with running_broker(tmp_path, f"{name}=6", "max.connections=60") as running:
        quotas = running.plane.connection_quotas
        assert quotas is not None
        assert quotas.max == 60
        assert list(quotas.of_listeners) == [ListenerQuota("PLAINTEXT", 6, INT_MAX)]
        (found,) = await running.service.describe_configs([(BROKER, {name})])
        (entry,) = found.entries
        assert (entry.value, entry.source, entry.sensitive) == ("6", Source.STATIC_BROKER, False)
        assert list(entry.synonyms) == [
            Synonym(name, "6", Source.STATIC_BROKER),
            Synonym("max.connections", "60", Source.STATIC_BROKER),
            Synonym("max.connections", str(INT_MAX), Source.DEFAULT),
        ]


PREFIX = "listener.name.plaintext."


@pytest.mark.parametrize("resource", [BROKER, ALL_BROKERS])
@pytest.mark.parametrize("name", ["max.connections", "max.connection.creation.rate"])
async def test_no_run_time_change_lets_nobody_in(
    running: Running, resource: ConfigResource, name: str
) -> None:
    for prefix in ("", PREFIX):
        assert await alter(running, resource, (OP_SET, prefix + name, "0")) == f"Invalid {name} 0"
        assert await alter(running, resource, (OP_SET, prefix + name, "1")) is None
    # The limit of the only listener counts, not the one that it hides.
    assert await alter(running, resource, (OP_SET, name, "0")) is None
    gone = (OP_DELETE, PREFIX + name, None)
    assert await alter(running, resource, gone) == f"Invalid {name} 0"
    assert await alter(running, resource, (OP_SET, f"listener.name.other.{name}", "0")) is None


async def test_a_limit_of_zero_from_the_start_may_stay(tmp_path: Path) -> None:
    async with running_broker(tmp_path, "max.connections=0") as running:
        assert await alter(running, BROKER, (OP_SET, "log.retention.ms", "5")) is None
        rate = (OP_SET, "max.connection.creation.rate", "5")
        assert await alter(running, BROKER, rate) == "Invalid max.connections 0"


async def test_nobody_from_anywhere_needs_exceptions(running: Running) -> None:
    assert await alter(running, BROKER, (OP_SET, PER_IP, "0")) == ZERO
    assert await alter(running, ALL_BROKERS, (OP_SET, OVERRIDES, "127.0.0.1:5")) is None
    assert await alter(running, BROKER, (OP_SET, PER_IP, "0")) is None
    quotas = running.plane.connection_quotas
    assert quotas is not None
    assert (quotas.max_per_host, list(quotas.max_of_hosts)) == (0, [("127.0.0.1", 5)])
    assert await alter(running, ALL_BROKERS, (OP_DELETE, OVERRIDES, None)) == ZERO


@pytest.mark.parametrize("text", ["127.0.0.1", "127.0.0.1:", ":5", "a b:5", "a:-1", "a:2147483648"])
async def test_wrong_overrides(running: Running, text: str) -> None:
    message = await alter(running, BROKER, (OP_SET, OVERRIDES, text))
    assert message is not None
    assert "HOST:NUMBER" in message
    quotas = running.plane.connection_quotas
    assert quotas is not None
    assert list(quotas.max_of_hosts) == []


async def test_names_are_resolved_and_unknown_ones_left_out(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {"twice.test": ["10.0.0.1", "10.0.0.2", "10.0.0.1"]}

    async def resolve(host: str, _port: None, **_terms: object) -> list[object]:
        if host == "slow.test":
            await trio.sleep_forever()
        if host not in known:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return [(2, 1, 6, "", (address, 0)) for address in known[host]]

    monkeypatch.setattr(trio.socket, "getaddrinfo", resolve)
    monkeypatch.setattr(run_time_limits, "RESOLVING_SECONDS", 0.01)
    text = "gone.test:1,slow.test:2,twice.test:3,10.0.0.3:4"
    assert await alter(running, BROKER, (OP_SET, OVERRIDES, text)) is None
    quotas = running.plane.connection_quotas
    assert quotas is not None
    assert list(quotas.max_of_hosts) == [("10.0.0.1", 3), ("10.0.0.2", 3), ("10.0.0.3", 4)]
