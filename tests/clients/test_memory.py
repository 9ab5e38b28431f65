"""What a broker takes that has little to do."""

from collections.abc import Callable

from benches.process import usage
from pyrklog.testing import TestBroker
from tests.support import wire

IDLE_MAX_BYTES = 60_000_000


def test_an_idle_broker_is_small(new_broker: Callable[..., TestBroker], topic: str) -> None:
    """Also once it has served its first client and has a cache, which is not counted."""
    broker = new_broker(options={"pyrklog.cache.dir": "/dev/shm"}).start()
    assert usage(broker.pid).own_rss_bytes < IDLE_MAX_BYTES
    with wire.Connection(broker.bootstrap) as connection:
        assert wire.create_topic(connection, topic) == 0
        batch = wire.record_batch([b"first"])
        assert wire.produce(connection, topic, batch).error == 0
        found = usage(broker.pid)
    assert found.shared_bytes > 0
    assert found.own_rss_bytes < IDLE_MAX_BYTES
