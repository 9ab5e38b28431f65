"""The clients that brokers have met, and which of them are old or misbehave.

Only our brokers tell (BrokerHealth). A client is known by its id and its address.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pyrklog.cli.output import Listing, columns
from pyrklog.protocol.health import BrokerHealthResponse, HealthClient

COLUMNS = columns(
    "client_id CLIENT, software, address, brokers, oldest OLDEST VERSIONS, why, seen_at* LAST SEEN"
)
KAFKA_4_FROM: Mapping[str, int] = {
    "Produce": 3,
    "Fetch": 4,
    "ListOffsets": 1,
    "OffsetCommit": 2,
    "OffsetFetch": 1,
    "CreateTopics": 2,
    "DeleteTopics": 1,
    "OffsetForLeaderEpoch": 2,
    "DescribeAcls": 1,
    "CreateAcls": 1,
    "DeleteAcls": 1,
    "DescribeConfigs": 1,
    "AlterReplicaLogDirs": 1,
    "DescribeLogDirs": 1,
}
"""The first version that Kafka 4 still serves, of the APIs of which it has dropped some
(KIP-896)."""
SHOWN_APIS_MAX = 3
_NOT_SERVED = re.compile(r"(\w+) version (-?\d+) is not served, only (\d+) to (\d+)")


@dataclass
class Client:
    """``refused``: sentences, and how often each."""

    client_id: str
    address: str
    software_name: str = ""
    software_version: str = ""
    brokers: list[int] = field(default_factory=list)
    oldest: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    last_seen_ms: int = 0

    @property
    def software(self) -> str | None:
        """``librdkafka 2.5.0``; None where the client has not said."""
        return f"{self.software_name} {self.software_version}".strip() or None

    @property
    def name(self) -> str:
        """For a sentence."""
        called = self.client_id or self.software or "a client without a name"
        return f"{called} at {self.address}"

    @property
    def why(self) -> list[str]:
        """What is old or wrong about it; empty: nothing."""
        old = [
            f"asked {api} v{version}, Kafka 4 serves it from v{KAFKA_4_FROM[api]} on"
            for api, version in sorted(self.oldest.items())
            if version < KAFKA_4_FROM.get(api, 0)
        ]
        return [*(_refusal(what, count) for what, count in self.refused.items()), *old]

    def item(self) -> dict[str, Any]:
        seen = datetime.fromtimestamp(self.last_seen_ms / 1000, UTC)
        return {
            "client_id": self.client_id or None,
            "software": self.software,
            "software_name": self.software_name or None,
            "software_version": self.software_version or None,
            "address": self.address,
            "brokers": self.brokers,
            "oldest": dict(sorted(self.oldest.items())),
            "outdated": bool(self.why),
            "why": self.why,
            "seen_at": seen.isoformat(timespec="seconds").replace("+00:00", "Z"),
        }


def merged(told: Mapping[int, BrokerHealthResponse]) -> list[Client]:
    """Each client once, with all brokers that have met it; those with something wrong first."""
    found: dict[tuple[str, ...], Client] = {}
    for broker, answer in sorted(told.items()):
        for one in answer.clients or ():
            key = (one.client_id, one.host, one.software_name, one.software_version)
            client = found.setdefault(
                key, Client(one.client_id, one.host, one.software_name, one.software_version)
            )
            _add(client, broker, one)
    return sorted(found.values(), key=lambda one: (not one.why, one.client_id, one.address))


def _add(client: Client, broker: int, told: HealthClient) -> None:
    client.brokers.append(broker)
    client.last_seen_ms = max(client.last_seen_ms, told.last_seen_ms)
    for one in told.oldest:
        client.oldest[one.api] = min(one.version, client.oldest.get(one.api, one.version))
    for refusal in told.refused:
        client.refused[refusal.what] = client.refused.get(refusal.what, 0) + refusal.count


def listing(clients: Iterable[Client], cluster_id: str | None) -> Listing:
    return Listing("pyrklog.clients/1", COLUMNS, [one.item() for one in clients], cluster_id)


def for_people(found: Listing) -> Listing:
    """With the oldest versions as ``Fetch v1``, those that Kafka 4 dropped first."""
    items = [
        {**one, "oldest": _shown(one["oldest"]), "why": "; ".join(one["why"]) or None}
        for one in found.items
    ]
    return Listing(found.schema, found.columns, items, found.cluster_id)


def _shown(oldest: Mapping[str, int]) -> str:
    order = sorted(oldest, key=lambda api: (oldest[api] >= KAFKA_4_FROM.get(api, 0), api))
    shown = ", ".join(f"{api} v{oldest[api]}" for api in order[:SHOWN_APIS_MAX])
    return f"{shown}, ..." if len(order) > SHOWN_APIS_MAX else shown or "-"


def _refusal(what: str, count: int) -> str:
    found = _NOT_SERVED.fullmatch(what)
    if found is not None:
        api, asked, first, last = found.groups()
        what = f"asked {api} v{asked}, we serve {first}-{last}"
    return what if count == 1 else f"{what} ({count} times)"
