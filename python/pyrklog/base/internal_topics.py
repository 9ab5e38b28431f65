"""Topics that belong to brokers, or to pyrklog. The prefix ``__`` tells nothing: Debezium, Strimzi
and Cruise Control, for example, name topics of users so. Pure."""

OF_KAFKA = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""As ``Topic.INTERNAL_TOPICS`` of Kafka, and that of share groups (KIP-932)."""
OF_PYRKLOG = frozenset({"__pyrklog_spark_sink"})
"""Decisions of the Spark sink. Clients of pyrklog's keep these topics in a cluster, whose brokers
take them for others. A scan's pattern does not match them; they can be named."""


def is_internal(name: str) -> bool:
    return name in OF_KAFKA or name in OF_PYRKLOG
