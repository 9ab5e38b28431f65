from typing import Any

from pyrklog.cli.broker_connection import BrokerConnection
from pyrklog.cli.cluster_reading import read_state
from pyrklog.cli.cluster_views import ASK_TIMEOUT_S, is_plain
from pyrklog.cli.connection import Connection
from pyrklog.cli.options import Settings
from pyrklog.cli.output import Listing, columns
from pyrklog.observability.health_rules import BrokerState
from pyrklog.protocol.log_dirs import DESCRIBE_LOG_DIRS, DescribeLogDirsRequest

COLUMNS = columns(
    "broker>, address, rack, controller, leaders>, replicas>, in_sync>* IN SYNC, log_bytes> BYTES, "
    "log_dirs>* LOG DIRS"
)
_VERSION = 1
"""Served by Kafka 2.0 to 4.x and pyrklog."""


def list_brokers(connection: Connection) -> Listing:
    state = read_state(connection)
    items: list[dict[str, Any]] = []
    for broker in state.brokers:
        number = broker.number
        sizes = _log_dir_bytes(connection.settings, broker) if broker.answers else None
        items.append(
            {
                "broker": number,
                "address": f"{broker.host}:{broker.port}",
                "rack": broker.rack,
                "controller": number == state.controller,
                "leaders": sum(one.leader == number for one in state.partitions),
                "replicas": sum(number in one.replicas for one in state.partitions),
                "in_sync": sum(number in one.isr for one in state.partitions),
                "log_bytes": None if sizes is None else sum(sizes),
                "log_dirs": None if sizes is None else len(sizes),
            }
        )
    return Listing("pyrklog.brokers/1", COLUMNS, items, state.cluster_id)


def _log_dir_bytes(settings: Settings, broker: BrokerState) -> list[int] | None:
    """Bytes of each working log directory; None if unknown.

    confluent-kafka has no such call; this connection has no encryption or authentication.
    """
    if not is_plain(settings):
        return None
    timeout_s = max(ASK_TIMEOUT_S, settings.timeout_s)  # the broker may have many files
    try:
        with BrokerConnection((broker.host, broker.port), timeout_s) as asked:
            found = asked.ask(DESCRIBE_LOG_DIRS, _VERSION, DescribeLogDirsRequest())
    except OSError:
        return None
    # A broker that refuses the request answers without directories.
    if not found.results:
        return None
    return [
        sum(
            one.partition_size
            for topic in place.topics
            for one in topic.partitions
            if not one.is_future_key
        )
        for place in found.results
        if place.error_code == 0
    ]
