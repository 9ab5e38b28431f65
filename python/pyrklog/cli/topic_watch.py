"""Whether topics that are being read were deleted, or created anew.

librdkafka keeps trying with a topic that is gone, without a word, and calls the offsets of the old
one out of range in the new one. A topic's id tells them apart; a Kafka from before 2.8 has none.
"""

import time
from collections.abc import Callable, Mapping, Sequence

from pyrklog.base.problems import Problem
from pyrklog.cli.connection import Connection
from pyrklog.cli.failures import CliError

LOOK_INTERVAL_S = 2.0
LOOK_TIMEOUT_S = 3.0
MISSING_LOOKS = 2
"""So often in a row an idle reader misses a topic: a broker that has just started may know none."""

Look = Callable[[], Mapping[str, str | None]]
"""The id of each topic, None for a missing one; without those that no broker tells of."""


class TopicWatch:
    """Compares topics with what they were when it was made."""

    def __init__(self, look: Look, *, follows: bool) -> None:
        """``follows``: reading goes on in a topic that was created anew."""
        self._look = look
        self._follows = follows
        self._ids = {name: id_ for name, id_ in look().items() if id_ is not None}
        self._missing = dict.fromkeys(self._ids, 0)
        self._looked_at = time.monotonic()

    def check_now_and_then(self) -> None:
        """As :meth:`check`, at most every :data:`LOOK_INTERVAL_S` seconds."""
        if time.monotonic() - self._looked_at >= LOOK_INTERVAL_S:
            self.check(MISSING_LOOKS)
            self._looked_at = time.monotonic()

    def check(self, missing_looks: int = 1) -> None:
        """Raises :class:`CliError` for a topic that was missing in so many looks in a row, or that
        is another one."""
        for name, now in self._look().items():
            if name not in self._ids:
                continue
            if now is None:
                self._missing[name] += 1
                if self._missing[name] >= missing_looks:
                    raise CliError(
                        Problem.TOPIC_NOT_FOUND,
                        f"topic {name} was deleted while it was read",
                        "see `pyrklog topic list`",
                    )
                continue
            self._missing[name] = 0
            if now != self._ids[name] and not self._follows:
                raise CliError(
                    Problem.TOPIC_REPLACED,
                    f"topic {name} was deleted and created anew while it was read",
                    "start again to read the new topic",
                    why="its offsets begin anew, too",
                )
            self._ids[name] = now


def topic_ids(connection: Connection, names: Sequence[str]) -> dict[str, str | None]:
    """As :data:`Look`."""
    from confluent_kafka import KafkaError, KafkaException, TopicCollection

    timeout_s = min(LOOK_TIMEOUT_S, connection.settings.timeout_s)
    try:
        futures = connection.admin.describe_topics(
            TopicCollection(list(names)), request_timeout=timeout_s
        )
    except (CliError, KafkaException):
        return {}  # the reader itself tells of brokers that cannot be reached
    found: dict[str, str | None] = {}
    for name, future in futures.items():
        try:
            found[name] = str(future.result().topic_id)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                found[name] = None
    return found
