"""What ``pyrklog cluster brokers`` lists."""

from typing import Any

from pyrklog.cli.asking import BrokerConnection
from pyrklog.cli.connection import Connection
from pyrklog.cli.output import Column, Listing
from pyrklog.protocol.log_dirs import DESCRIBE_LOG_DIRS, DescribeLogDirsRequest

COLUMNS = (
    Column("broker", "BROKER", right=True),
    Column("address", "ADDRESS"),
    Column("rack", "RACK"),
    Column("controller", "CONTROLLER"),
    Column("leaders", "LEADERS", right=True),
    Column("replicas", "REPLICAS", right=True),
    Column("in_sync", "IN SYNC", right=True, wide=True),
    Column("log_bytes", "BYTES", right=True),
    Column("log_dirs", "LOG DIRS", right=True, wide=True),
)
_VERSION = 1
"""Of DescribeLogDirs: served by Kafka 2.0 to 4.x, and by us."""


def list_brokers(connection: Connection) -> Listing:
    """One item for each broker that is alive."""
    metadata = connection.metadata()
    racks = _racks(connection)
    partitions = [one for topic in metadata.topics.values() for one in topic.partitions.values()]
    items: list[dict[str, Any]] = []
    for number, broker in sorted(metadata.brokers.items()):
        sizes = _log_dir_bytes(connection, (broker.host, broker.port))
        items.append(
            {
                "broker": number,
                "address": f"{broker.host}:{broker.port}",
                "rack": racks.get(number),
                "controller": number == metadata.controller_id,
                "leaders": sum(one.leader == number for one in partitions),
                "replicas": sum(number in one.replicas for one in partitions),
                "in_sync": sum(number in one.isrs for one in partitions),
                "log_bytes": None if sizes is None else sum(sizes),
                "log_dirs": None if sizes is None else len(sizes),
            }
        )
    return Listing("pyrklog.brokers/1", COLUMNS, items, metadata.cluster_id)


def _racks(connection: Connection) -> dict[int, str]:
    found = connection.admin_result(
        connection.admin.describe_cluster, "cannot describe the cluster"
    )
    return {node.id: node.rack for node in found.nodes if node.rack}


def _log_dir_bytes(connection: Connection, address: tuple[str, int]) -> list[int] | None:
    """Bytes of each log directory that works; None where the broker cannot be asked.

    confluent-kafka has no call for it, and this one knows no encryption or authentication.
    """
    properties = connection.settings.properties
    if properties.get("security.protocol", "plaintext").lower() != "plaintext":
        return None
    try:
        with BrokerConnection(address, connection.settings.timeout_s) as broker:
            found = broker.ask(DESCRIBE_LOG_DIRS, _VERSION, DescribeLogDirsRequest())
    except OSError:
        return None
    # A broker that does not let us ask answers without directories.
    if not found.results:
        return None
    return [
        sum(one.partition_size for topic in place.topics for one in topic.partitions)
        for place in found.results
        if place.error_code == 0
    ]
