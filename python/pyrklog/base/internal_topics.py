"""Topics that belong to brokers, or to pyrklog. The prefix ``__`` tells nothing: Debezium, Strimzi
and Cruise Control, for example, name topics of users so. Pure."""

from collections.abc import Mapping

OF_KAFKA: Mapping[str, str] = {
    "__consumer_offsets": "the committed offsets of all groups",
    "__transaction_state": "the state of all transactional ids",
    "__share_group_state": "how far all share groups have read",
}
"""What each holds. The partition for a name depends on their number of partitions."""
OF_PYRKLOG = frozenset({"__pyrklog_spark_sink"})
"""Decisions of the Spark sink. Clients of pyrklog's keep these topics in a cluster, whose brokers
take them for others. A scan's pattern does not match them; they can be named."""


def is_internal(name: str) -> bool:
    return name in OF_KAFKA or name in OF_PYRKLOG
