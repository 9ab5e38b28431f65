"""Reading, processing and writing exactly once, while brokers and clients are killed.

Clients of librdkafka and of Java, whose transactions have version 1 or 2, copy a topic in
transactions. ``tests.checker.transactions`` checks the history. ``EXACTLY_ONCE_ROUNDS`` sets the
number of faults, ``EXACTLY_ONCE_SEED`` chooses them.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.checker import history as histories
from tests.checker.analysis import summary
from tests.checker.copying import OPTIONS, CopyLoad
from tests.checker.transactions import check_copying
from tests.support.cluster import BrokerCluster

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(60 * 60)]

ROUNDS = int(os.environ.get("EXACTLY_ONCE_ROUNDS", "20"))
SEED = int(os.environ.get("EXACTLY_ONCE_SEED", "0")) or random.randrange(2**32)


def test_records_are_copied_exactly_once(
    new_cluster: Callable[..., BrokerCluster], topic: str, tmp_path: Path
) -> None:
    print(f"EXACTLY_ONCE_SEED={SEED}")
    cluster = new_cluster(**OPTIONS).start()
    load = CopyLoad(cluster, topic, SEED)
    kept = tmp_path / "history.jsonl"
    try:
        with load:
            for _ in range(ROUNDS):
                load.disturb()
            evidence, of_input = load.finish()
    finally:
        histories.write(kept, load.history.in_order())
    print(load.summary(evidence))
    anomalies = [*of_input, *check_copying(evidence)]
    if anomalies:
        pytest.fail(f"{SEED=}, {kept}\n{summary(anomalies)}", pytrace=False)
    # Readers that took aborted records for committed ones would be found.
    careless = check_copying(replace(evidence, committed=evidence.raw))
    assert {"aborted_read", "duplicate"} <= {anomaly.kind for anomaly in careless}
