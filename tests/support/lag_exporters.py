"""Other programs that tell the lag of consumer groups: Burrow, kafka_exporter, Apache Kafka's
``kafka-consumer-groups``. ``make test-lag`` gets them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from prometheus_client.parser import text_string_to_metric_families

from pyrklog.testing.ports import free_port
from tests.support import kafka_tools
from tests.support.waiting import wait_until_serves

ROOT = Path(__file__).parents[2]
CHOSEN = os.environ.get("LAG_TOOLS", "burrow").split()
_PLACES = {
    "burrow": ROOT / ".cache" / "burrow" / "usr" / "bin" / "Burrow",
    "kafka_exporter": ROOT / ".cache" / "go-tools" / "kafka_exporter",
}
_START_S = 60
_PROTOCOL = "2.0.0"
"""Both programs are told a version of Kafka that they all know."""

Lags = dict[int, int]
"""Records by partition."""


class Exporter(Protocol):
    name: str
    stale_s: float
    """How old an answer may be."""

    def lags(self, group: str, topic: str) -> Lags: ...

    def total(self, group: str, topic: str) -> int:
        """The sum that it tells itself."""

    def close(self) -> None: ...


def program(name: str) -> Path:
    """AssertionError with a sentence if it is not there."""
    place = _PLACES[name]
    found = place if place.exists() else shutil.which(place.name)
    assert found is not None, f"{name} is not there: `make test-lag LAG_TOOLS={name}` gets it"
    return Path(found)


def start(name: str, folder: Path, bootstrap: str, zookeeper: str) -> Exporter:
    if name == "burrow":
        return Burrow(folder, bootstrap, zookeeper)
    return KafkaExporter(folder, bootstrap)


class _Server:
    """A program with an HTTP port."""

    ready: str

    def __init__(self, command: Sequence[str], port: int, output: Path) -> None:
        self._base = f"http://127.0.0.1:{port}"
        with output.open("wb") as target:
            self._process = subprocess.Popen(
                list(command), stdin=subprocess.DEVNULL, stdout=target, stderr=subprocess.STDOUT
            )
        wait_until_serves(self._process, output, self._serves, _START_S)

    def _serves(self) -> bool:
        try:
            self._get(self.ready)
        except OSError:
            return False
        return True

    def _get(self, path: str) -> str:
        with urllib.request.urlopen(self._base + path, timeout=30) as answer:
            text: str = answer.read().decode()
        return text

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


class Burrow(_Server):
    """It reads the commits themselves, from ``__consumer_offsets``, and asks for the log ends each
    second. Old versions start only with a ZooKeeper."""

    name = "burrow"
    ready = "/burrow/admin"
    stale_s = 1.0

    def __init__(self, folder: Path, bootstrap: str, zookeeper: str) -> None:
        port = free_port()
        (folder / "burrow.toml").write_text(_burrow(folder, port, bootstrap, zookeeper))
        command = [str(program(self.name)), "--config-dir", str(folder)]
        super().__init__(command, port, folder / "burrow.log")

    def _ask(self, path: str) -> Mapping[str, Any]:
        """Nothing while it does not know the group."""
        try:
            answer: Mapping[str, Any] = json.loads(self._get(f"/v3/kafka/local/consumer/{path}"))
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return {}
        return answer

    def lags(self, group: str, topic: str) -> Lags:
        found = self._ask(group).get("topics", {}).get(topic, [])
        return {
            partition: one["current-lag"]
            for partition, one in enumerate(found)
            if one and any(one["offsets"])
        }

    def total(self, group: str, topic: str) -> int:
        """Of all topics, as it was a second ago."""
        total: int = self._ask(f"{group}/lag").get("status", {}).get("totallag", -1)
        return total


def _burrow(folder: Path, port: int, bootstrap: str, zookeeper: str) -> str:
    servers = json.dumps(bootstrap.split(","))
    return f"""
[general]
pidfile="{folder}/burrow.pid"
[zookeeper]
servers=["{zookeeper}"]
root-path="/burrow-{port}"
[client-profile.plain]
client-id="burrow"
kafka-version="{_PROTOCOL}"
[cluster.local]
class-name="kafka"
servers={servers}
client-profile="plain"
topic-refresh=5
offset-refresh=1
[consumer.local]
class-name="kafka"
cluster="local"
servers={servers}
client-profile="plain"
[httpserver.default]
address="127.0.0.1:{port}"
[storage.default]
class-name="inmemory"
intervals=10
[evaluator.default]
class-name="caching"
expire-cache=1
"""


class KafkaExporter(_Server):
    """It asks for offsets and log ends at each scrape."""

    name = "kafka_exporter"
    ready = "/metrics"
    stale_s = 0.0

    def __init__(self, folder: Path, bootstrap: str) -> None:
        port = free_port()
        command = [
            str(program(self.name)),
            f"--web.listen-address=127.0.0.1:{port}",
            f"--kafka.version={_PROTOCOL}",
            "--refresh.metadata=1s",
            *(f"--kafka.server={server}" for server in bootstrap.split(",")),
        ]
        super().__init__(command, port, folder / "kafka_exporter.log")

    def lags(self, group: str, topic: str) -> Lags:
        """Versions from 1.7 on tell -1 for a partition without a committed offset."""
        text = self._get("/metrics")
        committed = {
            int(labels["partition"])
            for labels, value in samples(text, "kafka_consumergroup_current_offset", group, topic)
            if value >= 0
        }
        found = exported_lags(text, group, topic)
        return {partition: lag for partition, lag in found.items() if partition in committed}

    def total(self, group: str, topic: str) -> int:
        return exported_total(self._get("/metrics"), group, topic)


def exported_lags(text: str, group: str, topic: str) -> Lags:
    """``kafka_consumergroup_lag`` of an exposition, ours or kafka_exporter's."""
    found = samples(text, "kafka_consumergroup_lag", group, topic)
    return {int(labels["partition"]): round(value) for labels, value in found}


def exported_total(text: str, group: str, topic: str) -> int:
    """kafka_exporter's ``kafka_consumergroup_lag_sum``; -1 without one."""
    found = samples(text, "kafka_consumergroup_lag_sum", group, topic)
    return round(found[0][1]) if found else -1


def samples(text: str, name: str, group: str, topic: str) -> list[tuple[Mapping[str, str], float]]:
    """Labels and value of each sample of this name, group and topic."""
    return [
        (one.labels, one.value)
        for family in text_string_to_metric_families(text)
        for one in family.samples
        if one.name == name and (one.labels["consumergroup"], one.labels["topic"]) == (group, topic)
    ]


def by_apache(bootstrap: str, topic: str) -> dict[str, Lags]:
    """The lag of all groups by ``kafka-consumer-groups --describe``."""
    [output] = kafka_tools.run(bootstrap, ["consumer-groups --describe --all-groups"])
    assert output.status == 0, output.text
    return described(output.lines, topic)


def described(lines: Sequence[str], topic: str) -> dict[str, Lags]:
    """Rows begin with group, topic, partition, committed offset, log end, lag."""
    found: dict[str, Lags] = {}
    for words in (line.split() for line in lines):
        if len(words) >= 6 and words[1] == topic and words[5].isdecimal():
            found.setdefault(words[0], {})[int(words[2])] = int(words[5])
    return found
