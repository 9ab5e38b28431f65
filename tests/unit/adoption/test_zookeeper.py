"""Kafka's ZooKeeper: a tree of nodes in, state out."""

from collections.abc import Collection, Mapping

import pytest
from kazoo.exceptions import NoAuthError

from pyrklog.adoption import zookeeper
from pyrklog.adoption.kraft import ALL_BROKERS
from pyrklog.adoption.zookeeper import read_tree
from pyrklog.errors import ConfigError, TemporaryError
from pyrklog.metastore import znodes
from pyrklog.testing.broker import free_port

TREE = {
    znodes.CLUSTER_ID: znodes.encode_cluster_id("c"),
    znodes.BROKER_TOPICS: b"",
    "/config/brokers/<default>": znodes.encode_config({"log.retention.ms": "-1"}),
    "/config/brokers/4": znodes.encode_config({"log.retention.bytes": "7"}),
    "/config/brokers/5": b"",
    "/config/clients/c1": znodes.encode_config({"producer_byte_rate": "1"}),
    "/config/users/u1": znodes.encode_config({"producer_byte_rate": "1"}),
    "/config/ips": b"",
    "/kafka-acl/Topic/t": b"{}",
    "/kafka-acl/Group/g": b"{}",
    "/kafka-acl/Group/h": b"{}",
}


class Tree:
    """The parts of kazoo's client that are used."""

    def __init__(self, nodes: Mapping[str, bytes], hidden: Collection[str] = ()) -> None:
        self._nodes = nodes
        self._hidden = hidden

    def exists(self, path: str) -> object | None:
        below = any(name.startswith(f"{path}/") for name in self._nodes)
        return self if below or path in self._nodes else None

    def get(self, path: str) -> tuple[bytes, None]:
        return self._nodes[path], None

    def get_children(self, path: str) -> list[str]:
        if path in self._hidden:
            raise NoAuthError
        below = (name for name in self._nodes if name.startswith(f"{path}/"))
        return list({name.removeprefix(f"{path}/").split("/")[0] for name in below})


def test_options_of_brokers_are_read_and_the_rest_is_counted() -> None:
    state = read_tree(Tree(TREE), "c")
    assert state.broker_options == {
        ALL_BROKERS: {"log.retention.ms": "-1"},
        "4": {"log.retention.bytes": "7"},
        "5": {},
    }
    assert state.knows_broker_options
    assert state.left_out == {
        "client quota": 1,
        "user's quota or credentials": 1,
        "access rule": 3,
    }


def test_a_new_cluster_has_none() -> None:
    state = read_tree(Tree({path: TREE[path] for path in (znodes.CLUSTER_ID, "/config/ips")}), "c")
    assert (state.broker_options, state.left_out, state.topics) == ({}, {}, {})


def test_options_that_only_brokers_may_read_are_known_to_be_unknown() -> None:
    """``zookeeper.set.acl`` of Kafka."""
    hidden = (znodes.CONFIG_BROKERS, "/config/users")
    state = read_tree(Tree(TREE, hidden), "c")
    assert not state.knows_broker_options
    assert state.broker_options == {}
    assert state.left_out["broker options that only Kafka's brokers may read"] == 1
    assert state.left_out["user's quota or credentials, of unknown number"] == 1


def test_another_cluster_is_refused() -> None:
    with pytest.raises(ConfigError, match="knows cluster c, but the log directory belongs to d"):
        read_tree(Tree(TREE), "d")


def test_a_dead_zookeeper_is_one_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without kazoo's own lines before it, which an unconfigured logging would print."""
    monkeypatch.setattr(zookeeper, "CONNECT_TIMEOUT_S", 0.5)
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(TemporaryError, match=f"No ZooKeeper answers at {address}"):
        zookeeper.read_zookeeper(address, "c")
    assert [record.getMessage() for record in caplog.records] == []
