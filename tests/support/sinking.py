"""Helpers of the tests of the Spark sink."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyrklog
from tests.support.waiting import wait_until


def sink(frame: Any, bootstrap: str, topic: str | None, **options: str) -> Any:
    """A writer of our sink, of a batch or of a stream, not started."""
    settings = {"kafka.bootstrap.servers": bootstrap} | options
    if topic is not None:
        settings["topic"] = topic
    writer = frame.writeStream if frame.isStreaming else frame.write.mode("append")
    return writer.format("pyrklog").options(**settings)


def visible(
    bootstrap: str, topic: str, columns: list[str], isolation: str = "read_committed"
) -> list[dict[str, Any]]:
    """The records of a topic, by partition and offset."""
    wanted = list(dict.fromkeys([*columns, "partition", "offset"]))
    reading = pyrklog.scan(topic, columns=wanted, bootstrap_servers=bootstrap, isolation=isolation)
    rows: list[dict[str, Any]] = reading.reader().read_all().to_pylist()
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def values(bootstrap: str, topic: str, isolation: str = "read_committed") -> Counter[bytes]:
    """How often each value is there."""
    return Counter(row["value"] for row in visible(bootstrap, topic, ["value"], isolation))


def wait_for_values(bootstrap: str, topic: str, wanted: Counter[bytes]) -> None:
    """Until committed records have just these values: markers follow the answers of EndTxn."""
    found: Counter[bytes] = Counter()

    def are_there() -> bool:
        nonlocal found
        found = values(bootstrap, topic)
        return found == wanted

    wait_until(are_there, lambda: f"missing {wanted - found}, too many {found - wanted}")
