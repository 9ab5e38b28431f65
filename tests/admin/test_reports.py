"""Reports of a real broker: log, CSV files and StatsD, without HTTP."""

import csv
import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from pyrklog.testing import BrokerExited, TestBroker
from tests.support.waiting import wait_until

PRODUCED = "kafka_server_brokertopicmetrics_bytesin_total"
BYTES = 100_000


def produce(broker: TestBroker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("reported", b"x" * BYTES)
    assert producer.flush(60) == 0


def lines(broker: TestBroker) -> list[dict[str, Any]]:
    return [json.loads(line) for line in broker.log if '"event": "metrics"' in line]


def produced_in(directory: Path) -> float:
    """Of all ``broker-ID/METRIC.csv``, the last value."""
    for path in directory.glob(f"broker-*/{PRODUCED}.csv"):
        # The last line may be half written.
        whole, _, _ = path.read_text().rpartition("\n")
        rows = list(csv.DictReader(whole.splitlines()))
        return float(rows[-1]["value"]) if rows else 0
    return 0


class Statsd:
    """Adds up what it gets for the produced bytes."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.produced = 0.0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while packet := self.socket.recv(65536):
            for line in packet.decode().split("\n"):
                name, _, rest = line.partition(":")
                if name == PRODUCED:
                    self.produced += float(rest.partition("|")[0])

    def close(self) -> None:
        self.socket.sendto(b"", ("127.0.0.1", self.port))
        self._thread.join()
        self.socket.close()


def test_all_places_are_told_of_what_was_produced(tmp_path: Path) -> None:
    statsd = Statsd()
    options: dict[str, str | int | bool] = {
        "pyrklog.metrics.interval.seconds": 1,
        "pyrklog.metrics.log": True,
        "pyrklog.metrics.csv.dir": str(tmp_path / "csv"),
        "pyrklog.metrics.statsd": f"127.0.0.1:{statsd.port}",
        "pyrklog.metrics.statsd.tags": True,
    }
    try:
        with TestBroker(options=options) as broker:
            produce(broker)
            wait_until(lambda: produced_in(tmp_path / "csv") >= BYTES, "no file tells it")
            wait_until(lambda: statsd.produced >= BYTES, "StatsD was not told")
            wait_until(
                lambda: any(one["produced_bytes_per_second"] > 0 for one in lines(broker)),
                "no line tells it",
            )
            assert lines(broker)[-1]["ready"] == 1
            assert not any('"event": "http_listening"' in line for line in broker.log)
            assert broker.stop() == 0
    finally:
        statsd.close()


def test_a_place_that_cannot_be_written_is_told_once_and_harms_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    options: dict[str, str | int | bool] = {
        "pyrklog.metrics.interval.seconds": 1,
        "pyrklog.metrics.log": True,
        "pyrklog.metrics.csv.dir": str(tmp_path / "file"),
    }
    with TestBroker(options=options) as broker:
        produce(broker)
        wait_until(lambda: len(lines(broker)) > 3, "the log is not told")
        failures = [line for line in broker.log if '"event": "metrics_unreported"' in line]
        assert len(failures) == 1
        assert json.loads(failures[0])["to"] == "csv"
        assert broker.stop() == 0


def test_files_of_metrics_in_a_log_directory_end_the_start(tmp_path: Path) -> None:
    options = {"pyrklog.metrics.csv.dir": str(tmp_path / "logs" / "csv")}
    broker = TestBroker(tmp_path, options=options)
    with pytest.raises(BrokerExited, match=r"lies\s+in\s+the\s+log\s+directory"):
        broker.start()
    broker.close()
