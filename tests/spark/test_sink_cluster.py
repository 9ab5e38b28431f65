"""The exactly-once sink on three brokers: leaders and coordinators die, drivers are replaced."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pyrklog.producing import ProducerSettings, Transactions
from pyrklog.spark.sink_slots import PREFIX
from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import create, produce
from tests.support.cluster_load import Writer
from tests.support.sinking import sink, values
from tests.support.spark import our_source
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.spark, pytest.mark.timeout(240)]

PARTITIONS = 3


class Copy:
    """A running query into another topic, which can be replaced by one with the same checkpoint."""

    def __init__(self, spark: Any, cluster: BrokerCluster, topic: str, folder: Path) -> None:
        self._spark, self._cluster, self._topic, self._folder = spark, cluster, topic, folder
        self.out = f"{topic}-out"
        self.query = self._start(400)

    def _start(self, most: int) -> Any:
        options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(most)}
        bootstrap = self._cluster.bootstrap
        rows = our_source(self._spark.readStream, bootstrap, self._topic, **options)
        return (
            sink(rows.select("value"), bootstrap, self.out, delivery="exactly_once")
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .trigger(processingTime="200 milliseconds")
            .start()
        )

    def replace(self, most: int = 400) -> None:
        """Stops the query, in the middle of whatever it does, and starts the next one."""
        self.query.stop()
        self.query = self._start(most)

    def go_on(self, batches: int = 3) -> None:
        first = -1 if self.query.lastProgress is None else self.query.lastProgress.batchId
        wait_until(lambda: self._last_batch() >= first + batches, "the query stands still")

    def _last_batch(self) -> int:
        self._raise_failure()
        progress = self.query.lastProgress
        return -1 if progress is None else int(progress.batchId)

    def _raise_failure(self) -> None:
        if not self.query.isActive:
            raise self.query.exception()


def test_brokers_die(spark: Any, cluster: BrokerCluster, topic: str, tmp_path: Path) -> None:
    """Each once, so each coordinator too; the driver is replaced in between."""
    options = {"min.insync.replicas": "2"}
    create(cluster, topic, PARTITIONS, 3, options=options)
    create(cluster, f"{topic}-out", PARTITIONS, 3, options=options)
    writer = Writer(cluster, topic, PARTITIONS)
    try:
        writer.go_on()
        copy = Copy(spark, cluster, topic, tmp_path)
        copy.go_on()
        for victim in list(cluster.brokers.values()):
            victim.kill()
            writer.go_on()
            copy.go_on()
            victim.start()
            writer.go_on()
            copy.replace()
    except BaseException:
        writer.abandon()
        raise
    writer.stop()
    produce(cluster, topic, PARTITIONS, [b"last"])
    written = values(cluster.bootstrap, topic)

    def copied() -> int:
        copy.go_on(0)
        return values(cluster.bootstrap, copy.out).total()

    def is_copied() -> bool:
        return copied() >= written.total()

    copy.replace(written.total())
    try:
        wait_until(is_copied, lambda: f"{copied()} of {written.total()} are copied", 90)
    finally:
        copy.query.stop()
    found = values(cluster.bootstrap, copy.out)
    assert found == written, (found - written, written - found)
    assert Counter(found.values()) == {1: len(found) - 1, PARTITIONS: 1}
    transactions = Transactions(ProducerSettings(cluster.bootstrap, []))
    assert transactions.open_with_prefix(PREFIX) == []
