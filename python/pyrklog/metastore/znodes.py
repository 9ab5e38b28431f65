"""Kafka's znodes: paths and JSON content, as Apache Kafka 3.9 writes them in ZooKeeper mode.

The order of keys is free; names, types and versions are not, since Kafka's tools and brokers read
them. Topic ids are base64url without padding. Every ``decode_…`` raises :class:`ZnodeError`. Pure.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from pyrklog.metastore.znode_values import broker_ids_of, int32_of, port_of, text_of

BROKER_IDS = "/brokers/ids"
BROKER_TOPICS = "/brokers/topics"
BROKER_SEQUENCE = "/brokers/seqid"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
CONFIG_TOPICS = "/config/topics"
CONFIG_BROKERS = "/config/brokers"
CONFIG_CLIENT_METRICS = "/config/client-metrics"
"""Options of client metrics (KIP-714). Kafka has these without ZooKeeper only; the content is that
of other options' nodes."""
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = "/config/changes/config_change_"
LOG_DIR_EVENTS = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX = "/log_dir_event_notification/log_dir_event_"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
CLUSTER_ID = "/cluster/id"
FEATURE = "/feature"
DEFAULT_ENTITY = "<default>"

PERSISTENT_PATHS = (
    BROKER_IDS,
    BROKER_TOPICS,
    BROKER_SEQUENCE,
    DELETE_TOPICS,
    "/cluster",
    CONFIG_TOPICS,
    "/config/clients",
    "/config/users",
    CONFIG_BROKERS,
    "/config/ips",
    CONFIG_CHANGES,
    LOG_DIR_EVENTS,
    "/isr_change_notification",
    FEATURE,
)
"""The paths of every Kafka cluster from its first start."""
FIRST_CONTENT = {FEATURE: b'{"features":{},"version":2,"status":1}'}
"""Content at the first start: features are enabled, and there are none (KIP-584)."""

OWN_ROOT = "/pyrklog"
"""The root of nodes that Kafka does not have."""
ADOPTION = "/pyrklog/adoption"
"""What was adopted from another broker's directory, and when."""

LIVES = "/pyrklog/brokers"
UNCLEAN = "/pyrklog/unclean"
REFUSED = "/pyrklog/refused"
"""One ephemeral node for each broker that the controller refuses or does not answer."""
DEPOSED = "/pyrklog/deposed"
"""The last controller that was deposed before its session ended."""
ELIGIBLE = "/pyrklog/elr"
EXPANSION = "/pyrklog/expansion"
OWN_PATHS = (OWN_ROOT, LIVES, UNCLEAN, REFUSED, ELIGIBLE, EXPANSION, CONFIG_CLIENT_METRICS)
"""The paths that a cluster of ours has besides Kafka's."""

SENSITIVE_PATHS = ("/config/users", CONFIG_BROKERS, "/delegation_token/tokens")
"""Nodes below may hold secrets: with ACLs only brokers read them, as in Kafka."""
CONSUMERS = "/consumers"
"""Stays open: the old consumers write here themselves."""

RECOVERED = 0
RECOVERING = 1


class ZnodeError(Exception):
    """The node's content is not Kafka's; the message names the node."""


def broker_path(broker: int) -> str:
    return f"{BROKER_IDS}/{broker}"


def life_path(broker: int) -> str:
    """Set by each registration: its mzxid is the broker's last epoch."""
    return f"{LIVES}/{broker}"


def unclean_path(broker: int) -> str:
    """Exists until a broker that may lack acknowledged records has left the ISRs."""
    return f"{UNCLEAN}/{broker}"


def refused_path(observer: int) -> str:
    """Exists while the controller refuses or does not answer this broker."""
    return f"{REFUSED}/{observer}"


def eligible_topic_path(topic: str) -> str:
    return f"{ELIGIBLE}/{topic}"


def eligible_path(topic: str, partition: int) -> str:
    """A partition's eligible leader replicas (KIP-966); exists only while there are any."""
    return f"{ELIGIBLE}/{topic}/{partition}"


def expansion_topic_path(topic: str) -> str:
    return f"{EXPANSION}/{topic}"


def expansion_path(topic: str, partition: int) -> str:
    """A partition's partial replicas; exists only while there are any."""
    return f"{EXPANSION}/{topic}/{partition}"


def topic_path(topic: str) -> str:
    return f"{BROKER_TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    return f"{BROKER_TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    return f"{BROKER_TOPICS}/{topic}/partitions/{partition}"


def state_path(topic: str, partition: int) -> str:
    """Leader, epochs and in-sync replicas of a partition."""
    return f"{BROKER_TOPICS}/{topic}/partitions/{partition}/state"


def topic_config_path(topic: str) -> str:
    return f"{CONFIG_TOPICS}/{topic}"


def broker_config_path(broker: str) -> str:
    """Options of a broker (its id), or of all (:data:`DEFAULT_ENTITY`)."""
    return f"{CONFIG_BROKERS}/{broker}"


def client_metrics_path(name: str) -> str:
    """Options of a subscription of client metrics, whose name may have any characters."""
    # A node may not be called ".".
    node = quote(name, safe="").replace(".", "%2E")
    return f"{CONFIG_CLIENT_METRICS}/{node}"


def client_metrics_name(node: str) -> str:
    """The subscription of a node, or of the last part of its path."""
    return unquote(node)


def delete_topic_path(topic: str) -> str:
    return f"{DELETE_TOPICS}/{topic}"


class BrokerRegistration(NamedTuple):
    """/brokers/ids/N, version 5; an endpoint is (listener name, host, port)."""

    endpoints: Sequence[tuple[str, str, int]]
    protocols: Mapping[str, str]
    rack: str | None
    timestamp_ms: int


class Deposed(NamedTuple):
    """/pyrklog/deposed, version 1; its mtime is ZooKeeper's time."""

    broker: int
    broker_epoch: int
    """Of the registration of that term."""
    by: int
    """The broker that took over."""
    unproven: int
    """How many controllers in a row, including this one, still lived when the next was deposed."""


class TopicAssignment(NamedTuple):
    """/brokers/topics/T, version 3; ``replicas[p]`` has the preferred leader first."""

    topic_id: bytes
    replicas: Mapping[int, tuple[int, ...]]
    adding: Mapping[int, tuple[int, ...]]
    removing: Mapping[int, tuple[int, ...]]


class Leadership(NamedTuple):
    """…/partitions/P/state, version 1; and /pyrklog/elr/T/P."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    recovery_state: int = RECOVERED
    eligible: tuple[int, ...] = ()
    """Replicas outside the ISR that may lead as if in it (KIP-966). In a node of their own: a Kafka
    controller that rewrites ``state`` would drop another key.
    """
    unclean: tuple[int, ...] = ()
    """Members that started without all their records while nobody led. In the same node."""

    @property
    def members(self) -> tuple[int, ...]:
        """Replicas that had everything under the last leader: in sync or eligible."""
        return self.isr + self.eligible


class ProducerIdBlock(NamedTuple):
    """/latest_producer_id_block, version 1: ids ``first`` to ``last`` went to ``broker``."""

    broker: int
    first: int
    last: int


def encode_id(topic_id: bytes) -> str:
    """16 bytes as base64url without padding."""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def decode_id(text: str) -> bytes:
    """Raises ``ValueError``."""
    raw = base64.urlsafe_b64decode(text + "==")
    if len(raw) != 16:
        raise ValueError(f"{text!r} is no 16-byte id")
    return raw


def _dump(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


def _load(path: str, data: bytes) -> dict[str, Any]:
    try:
        content = json.loads(data.decode())
    except (ValueError, RecursionError):
        raise ZnodeError(f"{path} holds no JSON") from None
    if not isinstance(content, dict):
        raise ZnodeError(f"{path} holds no JSON object")
    return content


@contextmanager
def _content(path: str, data: bytes, wrong: str) -> Iterator[dict[str, Any]]:
    """Raises :class:`ZnodeError` for missing or wrong values; ``wrong`` follows the path."""
    content = _load(path, data)
    try:
        yield content
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ZnodeError(f"{path} {wrong}: {error!r}") from None


def encode_broker(registration: BrokerRegistration) -> bytes:
    """/brokers/ids/N. ``host`` and ``port`` repeat the plaintext endpoint."""
    plain = [
        item
        for item in registration.endpoints
        if registration.protocols.get(item[0]) == "PLAINTEXT"
    ]
    content: dict[str, Any] = {
        "features": {},
        "listener_security_protocol_map": {
            name: registration.protocols[name] for name, _, _ in registration.endpoints
        },
        "endpoints": [f"{n}://{_bracket(h)}:{p}" for n, h, p in registration.endpoints],
        "jmx_port": -1,
        "port": plain[0][2] if plain else -1,
        "host": plain[0][1] if plain else None,
        "version": 5,
        "timestamp": str(registration.timestamp_ms),
    }
    if registration.rack is not None:
        content["rack"] = registration.rack
    return _dump(content)


def decode_broker(path: str, data: bytes) -> BrokerRegistration:
    with _content(path, data, "is no broker registration") as content:
        endpoints = []
        for text in content["endpoints"]:
            name, _, address = text.partition("://")
            host, _, port = address.rpartition(":")
            # Brokers and clients must get text and a port.
            endpoints.append((text_of(name), text_of(host.strip("[]")), port_of(port)))
        protocols = content.get("listener_security_protocol_map") or {}
        rack = content.get("rack")
        return BrokerRegistration(
            endpoints,
            {name: protocols.get(name, name) for name, _, _ in endpoints},
            None if rack is None else text_of(rack),
            int(content.get("timestamp", 0)),
        )


def _bracket(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def encode_topic(assignment: TopicAssignment) -> bytes:
    return _dump(
        {
            "removing_replicas": _partition_map(assignment.removing),
            "partitions": _partition_map(assignment.replicas),
            "topic_id": encode_id(assignment.topic_id),
            "adding_replicas": _partition_map(assignment.adding),
            "version": 3,
        }
    )


def _partition_map(replicas: Mapping[int, Sequence[int]]) -> dict[str, list[int]]:
    return {str(partition): list(brokers) for partition, brokers in sorted(replicas.items())}


def decode_topic(path: str, data: bytes) -> TopicAssignment:
    """A topic before version 3 gets an id of zeros."""
    with _content(path, data, "is no topic") as content:
        topic_id = decode_id(content["topic_id"]) if "topic_id" in content else bytes(16)
        topic = TopicAssignment(
            topic_id,
            _brokers_by_partition(content["partitions"]),
            _brokers_by_partition(content.get("adding_replicas") or {}),
            _brokers_by_partition(content.get("removing_replicas") or {}),
        )
        # A senseless assignment would bring down one controller after another.
        for partition, brokers in topic.replicas.items():
            if set(brokers) <= set(topic.removing.get(partition, ())):
                raise ValueError(f"nobody is to have partition {partition}")
        return topic


def _brokers_by_partition(content: Mapping[str, Sequence[int]]) -> dict[int, tuple[int, ...]]:
    found = {int32_of(partition): broker_ids_of(brokers) for partition, brokers in content.items()}
    if any(partition < 0 for partition in found):
        raise ValueError(f"{min(found)} is no partition")
    return found


def encode_state(state: Leadership) -> bytes:
    """…/state; has the recovery state only while recovering."""
    # Faster than JSON: a new topic may have ten thousand of these.
    isr = ",".join(map(str, state.isr))
    recovery = ',"leader_recovery_state":1' if state.recovery_state == RECOVERING else ""
    return (
        f'{{"controller_epoch":{state.controller_epoch},"leader":{state.leader},"version":1,'
        f'"leader_epoch":{state.leader_epoch},"isr":[{isr}]{recovery}}}'
    ).encode()


def decode_state(path: str, data: bytes) -> Leadership:
    with _content(path, data, "is no partition state") as content:
        return Leadership(
            int32_of(content["leader"]),
            int32_of(content["leader_epoch"]),
            broker_ids_of(content["isr"]),
            int32_of(content["controller_epoch"]),
            _recovery_state(content.get("leader_recovery_state", RECOVERED)),
        )


def _recovery_state(found: Any) -> int:
    if found not in (RECOVERED, RECOVERING):
        raise ValueError(f"{found!r} is no recovery state")
    return int(found)


class EligibleReplicas(NamedTuple):
    """/pyrklog/elr/T/P, version 1; belongs to the state with version ``partition_epoch``."""

    eligible: tuple[int, ...]
    unclean: tuple[int, ...]
    partition_epoch: int


def encode_eligible(leadership: Leadership, partition_epoch: int) -> bytes:
    content: dict[str, Any] = {"version": 1, "partition_epoch": partition_epoch}
    content["eligible"] = list(leadership.eligible)
    if leadership.unclean:
        content["unclean"] = list(leadership.unclean)
    return _dump(content)


def decode_eligible(path: str, data: bytes) -> EligibleReplicas:
    with _content(path, data, "has no eligible replicas") as content:
        return EligibleReplicas(
            broker_ids_of(content["eligible"]),
            broker_ids_of(content.get("unclean", [])),
            int(content["partition_epoch"]),
        )


class PartialReplicas(NamedTuple):
    """/pyrklog/expansion/T/P, version 1: added replicas that lack older records."""

    topic_id: bytes
    """The next topic of the name has another one."""
    replicas: tuple[int, ...]


def knows_partial(life: bytes) -> bool:
    """Whether a broker knows partial replicas, by the content of /pyrklog/brokers/N."""
    try:
        content = json.loads(life)
    except (ValueError, RecursionError):
        return False
    return isinstance(content, dict) and content.get("partial_replicas") == 1


def encode_partial(partial: PartialReplicas) -> bytes:
    topic_id = encode_id(partial.topic_id)
    return _dump({"version": 1, "topic_id": topic_id, "replicas": list(partial.replicas)})


def decode_partial(path: str, data: bytes) -> PartialReplicas:
    with _content(path, data, "has no partial replicas") as content:
        return PartialReplicas(decode_id(content["topic_id"]), broker_ids_of(content["replicas"]))


def encode_reassignments(wanted: Mapping[tuple[str, int], Sequence[int]]) -> bytes:
    """/admin/reassign_partitions: (topic, partition) -> replicas."""
    partitions = [
        {"topic": topic, "partition": partition, "replicas": list(replicas)}
        for (topic, partition), replicas in wanted.items()
    ]
    return _dump({"version": 1, "partitions": partitions})


def decode_reassignments(data: bytes) -> dict[tuple[str, int], tuple[int, ...]]:
    """The last entry of a partition counts."""
    with _content(REASSIGN_PARTITIONS, data, "asks for nothing") as content:
        return {
            (str(item["topic"]), int(item["partition"])): tuple(map(int, item["replicas"]))
            for item in content["partitions"]
        }


def decode_preferred_election(data: bytes) -> list[tuple[str, int]]:
    with _content(PREFERRED_ELECTION, data, "names no partitions") as content:
        return [(str(item["topic"]), int(item["partition"])) for item in content["partitions"]]


def encode_controller(broker: int, timestamp_ms: int) -> bytes:
    return _dump(
        {
            "version": 2,
            "brokerid": broker,
            "timestamp": str(timestamp_ms),
            "kraftControllerEpoch": -1,
        }
    )


def decode_controller(data: bytes) -> int:
    """The controller's broker id."""
    with _content(CONTROLLER, data, "names no broker") as content:
        return int32_of(content["brokerid"])


def decode_controller_epoch(data: bytes) -> int:
    try:
        return int32_of(data)
    except ValueError:
        raise ZnodeError(f"{CONTROLLER_EPOCH} holds no epoch") from None


class Refused(NamedTuple):
    """/pyrklog/refused/N."""

    controller_czxid: int
    """The controller's term, as the czxid of its /controller."""
    is_silent: bool
    """It accepts connections but does not answer."""


def encode_refused(refused: Refused) -> bytes:
    content: dict[str, object] = {"version": 1, "controller_czxid": refused.controller_czxid}
    if refused.is_silent:
        content["silent"] = True
    return _dump(content)


def decode_refused(path: str, data: bytes) -> Refused:
    content = _load(path, data)
    czxid = content.get("controller_czxid")
    if not isinstance(czxid, int):
        raise ZnodeError(f"{path} names no controller")
    return Refused(czxid, content.get("silent") is True)


def encode_deposed(deposed: Deposed) -> bytes:
    return _dump({"version": 1, **deposed._asdict()})


def decode_deposed(data: bytes) -> Deposed:
    with _content(DEPOSED, data, "names no controller") as content:
        deposed = Deposed(*(int(content[field]) for field in Deposed._fields))
    if deposed.unproven < 1:
        raise ZnodeError(f"{DEPOSED} counts {deposed.unproven} deposals")
    return deposed


def encode_config(options: Mapping[str, str]) -> bytes:
    return _dump({"version": 1, "config": dict(options)})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """An empty node has no options."""
    if not data:
        return {}
    content = _load(path, data)
    options = content.get("config", {})
    if not isinstance(options, dict) or not all(isinstance(v, str) for v in options.values()):
        raise ZnodeError(f"{path} is no configuration")
    return options


def encode_config_change(entity_path: str) -> bytes:
    """/config/changes/config_change_N: "topics/T", "brokers/N", "client-metrics/S"."""
    return _dump({"version": 2, "entity_path": entity_path})


def decode_config_change(path: str, data: bytes) -> str:
    """Returns the changed entity's path."""
    entity = _load(path, data).get("entity_path")
    if not isinstance(entity, str):
        raise ZnodeError(f"{path} is no notification")
    return entity


def encode_log_dir_event(broker: int) -> bytes:
    """/log_dir_event_notification/log_dir_event_N: a directory of the broker failed."""
    return _dump({"version": 1, "broker": broker, "event": 1})


def decode_log_dir_event(path: str, data: bytes) -> int:
    """Returns the broker."""
    broker = _load(path, data).get("broker")
    if not isinstance(broker, int):
        raise ZnodeError(f"{path} is no notification")
    return broker


def encode_producer_ids(block: ProducerIdBlock) -> bytes:
    """The numbers are strings in the node."""
    numbers = {"block_start": str(block.first), "block_end": str(block.last)}
    return _dump({"version": 1, "broker": block.broker, **numbers})


def decode_producer_ids(data: bytes) -> ProducerIdBlock:
    with _content(PRODUCER_ID_BLOCK, data, "is no block") as content:
        first, last = int(content["block_start"]), int(content["block_end"])
        return ProducerIdBlock(int(content["broker"]), first, last)


def encode_cluster_id(cluster_id: str) -> bytes:
    """The version is a string in the node."""
    return _dump({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    cluster_id = _load(CLUSTER_ID, data).get("id")
    if not isinstance(cluster_id, str):
        raise ZnodeError(f"{CLUSTER_ID} holds no id")
    return cluster_id
