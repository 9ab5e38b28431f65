"""Asks brokers by HTTP."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from pyrklog.testing import TestBroker

ANY_PORT = {"pyrklog.http.listener": "127.0.0.1:0"}
"""Options of a broker that serves it."""
Found = dict[tuple[str, ...], float]


def http_port(broker: TestBroker) -> int:
    """Of the last start."""
    # A copy: another thread appends to it meanwhile.
    lines = [line for line in list(broker.log) if '"event": "http_listening"' in line]
    return int(json.loads(lines[-1])["port"])


def ask(broker: TestBroker, path: str) -> tuple[int, str]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{http_port(broker)}{path}",
        headers={"accept": "application/openmetrics-text; version=1.0.0"},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def scrape(broker: TestBroker, path: str = "/metrics") -> Found:
    """Values by name and labels in the order of their names."""
    status, text = ask(broker, path)
    assert status == 200, text
    return {
        (one.name, *(value for _, value in sorted(one.labels.items()))): one.value
        for family in text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
        for one in family.samples
    }
