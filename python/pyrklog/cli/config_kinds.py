from enum import StrEnum

ALL_BROKERS = "default"
"""Name of the options that hold for all brokers."""


class Kind(StrEnum):
    """What has options, as ``kafka-configs.sh --entity-type`` has it in the plural."""

    TOPIC = "topic"
    BROKER = "broker"
    BROKER_LOGGERS = "broker-loggers"
    CLIENT_METRICS = "client-metrics"


OF_ONE_BROKER = frozenset((Kind.BROKER, Kind.BROKER_LOGGERS))
"""Named by a broker's number; only that broker tells and changes them."""
