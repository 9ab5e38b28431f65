"""``pyrklog mirror run --dry-run``."""

from confluent_kafka.admin import AdminClient

from tests.support.groups import create_topic, fill
from tests.support.mirroring import Pair
from tests.support.waiting import PATIENCE_S


def topics(bootstrap: str) -> set[str]:
    return set(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=PATIENCE_S).topics)


def test_it_says_what_would_be_copied_and_changes_nothing(pair: Pair, topic: str) -> None:
    there, smaller = f"{topic}-there", f"{topic}-smaller"
    for name in (topic, there, smaller):
        create_topic(pair.source, name, 3)
    fill(pair.source, topic, 3, 2)
    create_topic(pair.target, f"east.{there}", 3)
    create_topic(pair.target, f"east.{smaller}", 1)
    before = topics(pair.target)
    said = pair.run("run", "--dry-run", "--topics", f"{topic}.*", "--groups", ".*").stdout
    assert said.splitlines() == [
        f"{topic}: 3 partitions would be copied to east.{topic}, which would be created",
        f"{smaller}: 3 partitions would be copied to east.{smaller}, which has 1 partition and "
        "would get 2 more",
        f"{there}: 3 partitions would be copied to east.{there}, which has 3 partitions",
    ]
    assert topics(pair.target) == before
    assert "copied 6 records" in pair.once("--topics", topic)


def test_nothing_matches(pair: Pair, topic: str) -> None:
    said = pair.run("run", "--dry-run", "--topics", f"{topic}-none").stdout
    assert said == "nothing would be copied: no topic matches\n"
