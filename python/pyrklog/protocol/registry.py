"""The APIs that Python serves, and their codecs, imported at first use."""

from importlib import import_module
from typing import Any

from pyrklog.protocol.api import Api

ROWS: dict[int, tuple[str, str]] = {
    4: ("inter_broker", "LEADER_AND_ISR"),
    5: ("inter_broker", "STOP_REPLICA"),
    6: ("inter_broker", "UPDATE_METADATA"),
    7: ("to_controller", "CONTROLLED_SHUTDOWN"),
    8: ("offsets", "OFFSET_COMMIT"),
    9: ("offsets", "OFFSET_FETCH"),
    10: ("coordinators", "FIND_COORDINATOR"),
    11: ("groups", "JOIN_GROUP"),
    12: ("groups", "HEARTBEAT"),
    13: ("groups", "LEAVE_GROUP"),
    14: ("groups", "SYNC_GROUP"),
    15: ("group_admin", "DESCRIBE_GROUPS"),
    16: ("group_admin", "LIST_GROUPS"),
    17: ("sasl", "SASL_HANDSHAKE"),
    19: ("topics", "CREATE_TOPICS"),
    20: ("topics", "DELETE_TOPICS"),
    21: ("records", "DELETE_RECORDS"),
    22: ("producer_ids", "INIT_PRODUCER_ID"),
    24: ("transactions", "ADD_PARTITIONS_TO_TXN"),
    25: ("transactions", "ADD_OFFSETS_TO_TXN"),
    26: ("transactions", "END_TXN"),
    27: ("transactions", "WRITE_TXN_MARKERS"),
    28: ("transaction_offsets", "TXN_OFFSET_COMMIT"),
    29: ("acls", "DESCRIBE_ACLS"),
    30: ("acls", "CREATE_ACLS"),
    31: ("acls", "DELETE_ACLS"),
    32: ("configs", "DESCRIBE_CONFIGS"),
    33: ("configs", "ALTER_CONFIGS"),
    34: ("log_dirs", "ALTER_REPLICA_LOG_DIRS"),
    35: ("log_dirs", "DESCRIBE_LOG_DIRS"),
    36: ("sasl", "SASL_AUTHENTICATE"),
    37: ("topics", "CREATE_PARTITIONS"),
    42: ("group_admin", "DELETE_GROUPS"),
    43: ("elections", "ELECT_LEADERS"),
    44: ("configs", "INCREMENTAL_ALTER_CONFIGS"),
    45: ("reassignments", "ALTER_PARTITION_REASSIGNMENTS"),
    46: ("reassignments", "LIST_PARTITION_REASSIGNMENTS"),
    47: ("offsets", "OFFSET_DELETE"),
    56: ("to_controller", "ALTER_PARTITION"),
    60: ("cluster", "DESCRIBE_CLUSTER"),
    61: ("transaction_admin", "DESCRIBE_PRODUCERS"),
    65: ("transaction_admin", "DESCRIBE_TRANSACTIONS"),
    66: ("transaction_admin", "LIST_TRANSACTIONS"),
    67: ("to_controller", "ALLOCATE_PRODUCER_IDS"),
    71: ("telemetry", "GET_TELEMETRY_SUBSCRIPTIONS"),
    72: ("telemetry", "PUSH_TELEMETRY"),
    74: ("telemetry", "LIST_CLIENT_METRICS_RESOURCES"),
    75: ("topic_partitions", "DESCRIBE_TOPIC_PARTITIONS"),
    20_001: ("verification", "REPLICA_DIGEST"),
    20_002: ("verification", "STATE_CHANGES"),
    20_003: ("observation", "OBSERVE_BROKER"),
    20_004: ("health", "BROKER_HEALTH"),
    20_005: ("lag", "GROUP_LAG"),
    20_006: ("lag", "PARTITION_OFFSETS"),
}
"""API key -> (module, name) of its :class:`Api`. The handler is in the module of the same name in
``pyrklog.handlers``; its name is the lower-case name."""

API_KEYS = tuple(sorted(ROWS))


def find_api(key: int) -> Api[Any, Any]:
    """Raises ``KeyError`` where Python has no codec."""
    module, name = ROWS[key]
    api: Api[Any, Any] = getattr(import_module(f"pyrklog.protocol.{module}"), name)
    return api
