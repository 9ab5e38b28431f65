"""Options of the command line that changes at run time hide."""

from __future__ import annotations

from pyrklog.base.logs import get_logger
from pyrklog.config.broker import BrokerConfig

log = get_logger("broker")


def tell_overruled(config: BrokerConfig, node_id: int) -> None:
    for name, level in sorted(config.overruled.items()):
        entity = str(node_id) if level == "broker" else level
        log.warning(
            "option_overruled",
            option=name,
            reason="a change at run time is stronger than --set",
            fix=f"pyrklog config alter broker {entity} --unset {name}",
        )
