"""Every option: Kafka's name, type, default, bounds, documentation; and where values come from."""

from pyrklog.config.broker import BrokerConfig
from pyrklog.config.load import load_config
from pyrklog.config.option import InvalidValueError

__all__ = ["BrokerConfig", "InvalidValueError", "load_config"]
