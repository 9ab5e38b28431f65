from __future__ import annotations

from pyrklog.cli.cluster_views import (
    Matters,
    is_plain,
    min_insync,
    read_plain_state,
    topics_of,
    with_limits,
)
from pyrklog.cli.connection import Connection
from pyrklog.cli.topic_details import describe_configs
from pyrklog.observability.health_rules import BrokerState, ClusterState, PartitionState


def read_state(
    connection: Connection, matters: Matters = lambda _: False, *, log_dirs: bool = False
) -> ClusterState:
    """See :func:`.read_plain_state`. With encryption or authentication librdkafka chooses the
    broker, and log directories and reassignments stay unknown."""
    if is_plain(connection.settings):
        return read_plain_state(connection.settings, matters, log_dirs=log_dirs)
    return _by_librdkafka(connection, matters)


def _by_librdkafka(connection: Connection, matters: Matters) -> ClusterState:
    metadata = connection.metadata()
    about = "cannot describe the cluster"
    described = connection.admin_result(connection.admin.describe_cluster, about)
    racks = {node.id: node.rack or None for node in described.nodes}
    brokers = [
        BrokerState(number, one.host, one.port, racks.get(number))
        for number, one in sorted(metadata.brokers.items())
    ]
    partitions = [
        PartitionState(name, one.id, one.leader, list(one.replicas), list(one.isrs))
        for name, topic in sorted(metadata.topics.items())
        for one in sorted(topic.partitions.values(), key=lambda one: one.id)
    ]
    state = ClusterState(
        metadata.cluster_id, brokers, metadata.controller_id, partitions, knows_moves=False
    )
    asked = topics_of(state, matters)
    # A topic may go between the two requests.
    options = describe_configs(connection, asked, skips_missing=True) if asked else {}
    return with_limits(state, {name: min_insync(found) for name, found in options.items()})
