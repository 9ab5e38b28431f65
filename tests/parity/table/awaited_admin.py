"""Client quotas."""

from typing import Any

from tests.parity.rows import Row, Scenario, in_versions


def entity(kind: Any = "client-id", name: Any = "someone") -> list[dict[str, Any]]:
    return [{"entityType": kind, "entityName": name}]


def quota(
    name: str, key: Any, value: float, whose: Any = None, version: int = 1, **more: Any
) -> Row:
    entry = {
        "entity": entity() if whose is None else whose,
        "ops": [{"key": key, "value": value, **more}],
    }
    return Row(name, "AlterClientQuotas", version, {"entries": [entry], "validateOnly": True})


QUOTAS = Scenario(
    "quotas",
    [
        *in_versions(
            (0, 1), lambda v: quota("checked only", "producer_byte_rate", 1000.0, version=v)
        ),
        quota("unknown key", "nonsense", 1.0),
        quota("negative rate", "producer_byte_rate", -1.0),
        quota("a fraction of a byte", "producer_byte_rate", 0.5),
        quota("unknown kind", "producer_byte_rate", 1.0, entity("planet")),
        quota("nobody", "producer_byte_rate", 1.0, []),
        quota("empty name", "producer_byte_rate", 1.0, entity(name="")),
        quota("address that is none", "connection_creation_rate", 1.0, entity("ip", "x y")),
        quota("removes what is not there", "producer_byte_rate", 0.0, remove=True),
        quota("a kind twice", "producer_byte_rate", 1.0, entity() + entity()),
        *[
            Row(name, "DescribeClientQuotas", 1, {"components": components, "strict": False})
            for name, components in [
                ("all", []),
                ("unknown kind", [{"entityType": "planet", "matchType": 0, "match": "x"}]),
                ("unknown match", [{"entityType": "user", "matchType": 9, "match": "x"}]),
                ("no name", [{"entityType": "user", "matchType": 0, "match": None}]),
                ("a kind twice", [{"entityType": "user", "matchType": 1, "match": None}] * 2),
                ("empty kind", [{"entityType": "", "matchType": 1, "match": None}]),
            ]
        ],
    ],
)
SCENARIOS = (QUOTAS,)
