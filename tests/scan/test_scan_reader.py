"""The readers of the benchmark's scan case."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from benches.scan_reader import READERS, event
from tests.support.clients import Confluent, Record
from tests.support.groups import create_topic

COUNT = 500


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_counts_what_it_read(bootstrap: str, topic: str, reader: str) -> None:
    create_topic(bootstrap, topic, 2)
    for partition in range(2):
        records = [Record(None, event(number)) for number in range(COUNT)]
        Confluent().produce(bootstrap, topic, records, partition=partition)
    command = [sys.executable, "-m", "benches.scan_reader", reader, bootstrap, topic, "0.1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    figures = json.loads(done.stdout)
    assert figures["rows"] > 0
    assert figures["rows"] % (2 * COUNT) == 0
    assert figures["seconds"] >= 0.1
    assert figures["cpu_s"] > 0
    assert figures["most_bytes"] > 1_000_000
