"""Kafka's znodes: we read what Kafka writes, and the reverse."""

import json

import pytest

from pyrklog.metastore import znodes
from pyrklog.metastore.znodes import (
    RECOVERING,
    BrokerRegistration,
    Leadership,
    ProducerIdBlock,
    TopicAssignment,
    ZnodeError,
)

TOPIC_ID = bytes(range(16))


def test_znode_paths_are_kafkas() -> None:
    assert znodes.state_path("t", 3) == "/brokers/topics/t/partitions/3/state"
    assert znodes.topic_config_path("t") == "/config/topics/t"
    assert znodes.broker_config_path(znodes.DEFAULT_ENTITY) == "/config/brokers/<default>"
    assert znodes.delete_topic_path("t") == "/admin/delete_topics/t"


def test_a_broker_as_kafka_registers_it() -> None:
    registration = BrokerRegistration(
        [("INSIDE", "10.0.0.1", 9092), ("OUTSIDE", "::1", 9093)],
        {"INSIDE": "PLAINTEXT", "OUTSIDE": "SSL"},
        "r1",
        1700000000000,
    )
    data = znodes.encode_broker(registration)
    assert json.loads(data) == {
        "version": 5,
        "host": "10.0.0.1",
        "port": 9092,
        "jmx_port": -1,
        "timestamp": "1700000000000",
        "endpoints": ["INSIDE://10.0.0.1:9092", "OUTSIDE://[::1]:9093"],
        "listener_security_protocol_map": {"INSIDE": "PLAINTEXT", "OUTSIDE": "SSL"},
        "features": {},
        "rack": "r1",
    }
    assert znodes.decode_broker("/brokers/ids/1", data) == registration
    assert "rack" not in json.loads(znodes.encode_broker(registration._replace(rack=None)))


def test_a_topic_as_kafka_writes_it() -> None:
    topic = TopicAssignment(TOPIC_ID, {0: (1, 2), 10: (2, 1), 9: (1, 2)}, {9: (2,)}, {})
    data = znodes.encode_topic(topic)
    assert json.loads(data) == {
        "version": 3,
        "topic_id": "AAECAwQFBgcICQoLDA0ODw",
        "partitions": {"0": [1, 2], "9": [1, 2], "10": [2, 1]},
        "adding_replicas": {"9": [2]},
        "removing_replicas": {},
    }
    assert znodes.decode_topic("/brokers/topics/t", data) == topic


def test_topic_znode_without_topic_id_is_read() -> None:
    old = b'{"version":1,"partitions":{"0":[1]}}'
    assert znodes.decode_topic("/t", old) == TopicAssignment(bytes(16), {0: (1,)}, {}, {})


def test_a_partition_state_as_kafka_writes_it() -> None:
    state = Leadership(2, 48, (2, 1), 29)
    data = znodes.encode_state(state)
    assert data == (b'{"controller_epoch":29,"leader":2,"version":1,"leader_epoch":48,"isr":[2,1]}')
    assert znodes.decode_state("/s", data) == state
    recovering = state._replace(recovery_state=RECOVERING)
    assert json.loads(znodes.encode_state(recovering))["leader_recovery_state"] == 1
    assert znodes.decode_state("/s", znodes.encode_state(recovering)) == recovering


def test_controller_znode_has_kafkas_content() -> None:
    data = znodes.encode_controller(3, 17)
    assert json.loads(data) == {
        "version": 2,
        "brokerid": 3,
        "timestamp": "17",
        "kraftControllerEpoch": -1,
    }
    assert znodes.decode_controller(data) == 3
    assert znodes.decode_controller(b'{"version":1,"brokerid":8,"timestamp":"0"}') == 8


def test_options_and_their_announcements() -> None:
    data = znodes.encode_config({"retention.ms": "1"})
    assert json.loads(data) == {"version": 1, "config": {"retention.ms": "1"}}
    assert znodes.decode_config("/c", data) == {"retention.ms": "1"}
    assert znodes.decode_config("/c", b"") == {}
    change = znodes.encode_config_change("topics/t")
    assert json.loads(change) == {"version": 2, "entity_path": "topics/t"}
    assert znodes.decode_config_change("/c", change) == "topics/t"


def test_producer_id_block_znode_has_kafkas_content() -> None:
    block = ProducerIdBlock(1, 1000, 1999)
    data = znodes.encode_producer_ids(block)
    assert json.loads(data) == {
        "version": 1,
        "broker": 1,
        "block_start": "1000",
        "block_end": "1999",
    }
    assert znodes.decode_producer_ids(data) == block
    assert json.loads(znodes.encode_cluster_id("abc")) == {"version": "1", "id": "abc"}
    assert znodes.decode_cluster_id(znodes.encode_cluster_id("abc")) == "abc"
    event = znodes.encode_log_dir_event(4)
    assert json.loads(event) == {"version": 1, "broker": 4, "event": 1}
    assert znodes.decode_log_dir_event("/e", event) == 4


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b'{"brokerid":"x"}', b"\xff"])
def test_malformed_znode_error_names_the_znode(data: bytes) -> None:
    for decode in (
        lambda: znodes.decode_broker("/x", data),
        lambda: znodes.decode_topic("/x", data),
        lambda: znodes.decode_state("/x", data),
        lambda: znodes.decode_config_change("/x", data),
        lambda: znodes.decode_log_dir_event("/x", data),
        lambda: znodes.decode_controller(data),
        lambda: znodes.decode_refused("/x", data),
        lambda: znodes.decode_deposed(data),
        lambda: znodes.decode_producer_ids(data),
        lambda: znodes.decode_cluster_id(data),
    ):
        with pytest.raises(ZnodeError, match=r"^/"):
            decode()


def test_deposal_znodes_round_trip() -> None:
    assert znodes.refused_path(3) == "/pyrklog/refused/3"
    for refused in (znodes.Refused(77, False), znodes.Refused(77, True)):
        assert znodes.decode_refused("/r", znodes.encode_refused(refused)) == refused
    with pytest.raises(ZnodeError, match="/r names no controller"):
        znodes.decode_refused("/r", b'{"version":1}')
    deposed = znodes.Deposed(1, 99, 2, 3)
    data = znodes.encode_deposed(deposed)
    assert json.loads(data) == {
        "version": 1,
        "broker": 1,
        "broker_epoch": 99,
        "by": 2,
        "unproven": 3,
    }
    assert znodes.decode_deposed(data) == deposed
    with pytest.raises(ZnodeError, match="counts 0 deposals"):
        znodes.decode_deposed(znodes.encode_deposed(deposed._replace(unproven=0)))


@pytest.mark.parametrize("data", [b'{"config":[]}', b'{"config":{"a":1}}'])
def test_options_other_than_strings_are_refused(data: bytes) -> None:
    with pytest.raises(ZnodeError, match="no configuration"):
        znodes.decode_config("/c", data)


@pytest.mark.parametrize(
    "rest",
    [
        '"partitions":{"0":[]}',
        '"partitions":{"0":["1"]}',
        '"partitions":{"0":"12"}',
        '"partitions":{"0":[1.5]}',
        '"partitions":{"0":[true]}',
        '"partitions":{"0":[-1]}',
        '"partitions":{"0":[1,1]}',
        '"partitions":{"0":[1,2]},"adding_replicas":{"0":["2"]}',
        '"partitions":{"0":[1,2]},"removing_replicas":{"0":[2,1]}',
    ],
)
def test_topic_znode_with_contradictions_is_refused(rest: str) -> None:
    with pytest.raises(ZnodeError, match=r"^/t is no topic"):
        znodes.decode_topic("/t", f'{{"version":3,{rest}}}'.encode())


@pytest.mark.parametrize("isr", ['"12"', '["1"]', "[1,1]", "[-1]"])
def test_state_znode_with_an_impossible_isr_is_refused(isr: str) -> None:
    data = f'{{"leader":1,"leader_epoch":0,"controller_epoch":1,"isr":{isr}}}'
    with pytest.raises(ZnodeError, match=r"^/s is no partition state"):
        znodes.decode_state("/s", data.encode())


@pytest.mark.parametrize(
    "changed",
    [
        {"leader": 2**31},
        {"leader_epoch": 2**31},
        {"controller_epoch": -(2**31) - 1},
        {"isr": [2**31]},
        {"leader_recovery_state": 7},
    ],
)
def test_state_znode_beyond_message_bounds_is_refused(changed: dict[str, object]) -> None:
    state = {"leader": 1, "leader_epoch": 0, "controller_epoch": 1, "isr": [1], "version": 1}
    with pytest.raises(ZnodeError, match=r"^/s is no partition state"):
        znodes.decode_state("/s", json.dumps(state | changed).encode())


@pytest.mark.parametrize(
    "changed",
    [
        {"endpoints": ["PLAINTEXT://here:70000"]},
        {"endpoints": ["PLAINTEXT://here:-1"]},
        {"endpoints": ["PLAINTEXT://he\ud800re:9092"]},
        {"endpoints": [7]},
        {"rack": 7},
        {"rack": "\ud800"},
    ],
)
def test_registration_znode_beyond_message_bounds_is_refused(changed: dict[str, object]) -> None:
    broker = {"endpoints": ["PLAINTEXT://here:9092"], "rack": None, "timestamp": "1"}
    with pytest.raises(ZnodeError, match=r"^/b is no broker registration"):
        znodes.decode_broker("/b", json.dumps(broker | changed).encode())


@pytest.mark.parametrize("partition", ["-1", str(2**31), "9" * 5000])
def test_partition_number_beyond_message_bounds_is_refused(partition: str) -> None:
    with pytest.raises(ZnodeError, match=r"^/t is no topic"):
        znodes.decode_topic("/t", f'{{"version":3,"partitions":{{"{partition}":[1]}}}}'.encode())


def test_endlessly_nested_json_is_refused() -> None:
    with pytest.raises(ZnodeError, match="/t holds no JSON"):
        znodes.decode_topic("/t", b'{"partitions":' + b"[" * 500_000)


def test_the_controllers_epoch() -> None:
    assert znodes.decode_controller_epoch(b"17") == 17
    for data in (b"", b"x", b"4294967296", b"9" * 5000):
        with pytest.raises(ZnodeError, match="/controller_epoch holds no epoch"):
            znodes.decode_controller_epoch(data)
