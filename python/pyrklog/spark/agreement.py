"""What each broker by itself says of topics, asked before a stream believes that they are gone.

librdkafka asks the broker that it takes for the controller, again and again. That one may have just
started, or be cut off.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from pyrklog.scanning import Scan, ScanError, UnknownTopicError, scan
from pyrklog.spark.connection import Connection
from pyrklog.spark.view import TopicView, lacks

THREADS_MAX = 16
# Of one broker, for its connection and for each answer.
_ANSWER_S = 5.0

logger = logging.getLogger("pyrklog.spark")


def confirmed(
    names: Collection[str],
    expected: Mapping[str, TopicView],
    brokers: Sequence[str],
    connection: Connection,
    open_scan: Callable[..., Scan] = scan,
) -> set[str]:
    """Those of the names whose topic no broker has as expected. None if there is no broker, or one
    does not answer: it may know them."""
    if not brokers:
        return set()

    def ask(broker: str) -> Mapping[str, TopicView] | None:
        return _known_by(broker, names, connection, open_scan)

    with ThreadPoolExecutor(min(len(brokers), THREADS_MAX)) as threads:
        answers = list(threads.map(ask, brokers))
    gone = set(names)
    for known in answers:
        if known is None:
            return set()
        gone -= {name for name, found in known.items() if not lacks(found, expected[name])}
    return gone


def _known_by(
    broker: str, names: Collection[str], connection: Connection, open_scan: Callable[..., Scan]
) -> dict[str, TopicView] | None:
    """Its topics of these names; None if it does not answer. A client asks the broker alone that it
    has connected to, and this scan needs nothing but metadata."""
    pattern = re.compile("|".join(re.escape(name) for name in sorted(names)))
    arguments = connection.scan_arguments()
    arguments["bootstrap_servers"] = broker
    arguments["timeout_s"] = min(_ANSWER_S, connection.timeout_s)
    arguments["request_timeout_s"] = min(_ANSWER_S, connection.request_timeout_s)
    arguments["connect_timeout_s"] = min(_ANSWER_S, connection.connect_timeout_s)
    found: dict[str, list[int]] = {}
    try:
        with open_scan(pattern, 0, 0, ["offset"], threads=1, **arguments) as planned:
            ids = planned.topic_ids
            for one in planned.progress():
                found.setdefault(one.topic, []).append(one.partition)
    except UnknownTopicError:
        return {}
    except ScanError as error:
        logger.info("broker %s does not say what topics it knows: %s", broker, error)
        return None
    return {
        name: TopicView(ids.get(name, ""), tuple(sorted(numbers)))
        for name, numbers in found.items()
    }
