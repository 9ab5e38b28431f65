from enum import StrEnum

ALL_BROKERS = "default"
"""Name of the options that hold for all brokers."""


class Kind(StrEnum):
    """What has options."""

    TOPIC = "topic"
    BROKER = "broker"
    CLIENT_METRICS = "client-metrics"
