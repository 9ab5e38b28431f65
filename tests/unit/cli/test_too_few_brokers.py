"""What is said where a cluster is too small for an internal topic."""

import pytest

from pyrklog.cli.config_cluster import Entry
from pyrklog.cli.too_few_brokers import note
from pyrklog.groups.partitioner import OFFSETS_TOPIC
from pyrklog.transactions.manager import TRANSACTION_TOPIC

OFFSETS = "offsets.topic.replication.factor"
TRANSACTIONS = "transaction.state.log.replication.factor"
OURS = {"pyrklog.data.dir": "/data"}
IN_CLUSTER = {**OURS, "zookeeper.connect": "zk:2181"}


def entries(options: dict[str, str | None], source: str = "default") -> list[Entry]:
    return [
        Entry(name, value, source, value, value, "string", False, True, None, ())
        for name, value in options.items()
    ]


@pytest.mark.parametrize(
    ("topic", "option", "what"),
    [(OFFSETS_TOPIC, OFFSETS, "groups"), (TRANSACTION_TOPIC, TRANSACTIONS, "transactions")],
)
def test_two_brokers_are_too_few_for_three_replicas(topic: str, option: str, what: str) -> None:
    told = note(topic, 2, entries({option: "3", **IN_CLUSTER}))
    assert told == (
        f"no {what} are possible: {topic} needs 3 brokers ({option}), and 2 brokers are alive; "
        "start more, or set it on each broker"
    )
    assert "1 broker is alive" in (note(topic, 1, entries({option: "3"})) or "")


@pytest.mark.parametrize(
    ("alive", "options", "source"),
    [
        (3, {OFFSETS: "3", **IN_CLUSTER}, "default"),
        (2, {OFFSETS: "1", **IN_CLUSTER}, "static-broker"),
        (1, {OFFSETS: "3", **OURS}, "default"),
        (1, {OFFSETS: "3", **OURS, "zookeeper.connect": ""}, "default"),
        (1, {OFFSETS: None}, "default"),
        (1, {}, "default"),
    ],
    ids=["enough", "lowered", "alone", "no store", "untold", "unknown"],
)
def test_nothing_is_said_where_the_topic_can_be_made(
    alive: int, options: dict[str, str | None], source: str
) -> None:
    assert note(OFFSETS_TOPIC, alive, entries(options, source)) is None


def test_a_lone_broker_that_was_told_to_have_three_replicas() -> None:
    assert note(OFFSETS_TOPIC, 1, entries({OFFSETS: "3", **OURS}, "static-broker")) is not None
