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


def test_it_refuses_what_the_run_refuses(pair: Pair, topic: str) -> None:
    create_topic(pair.source, topic, 2)
    fill(pair.source, topic, 2, 5)
    words = ("--topics", topic, "--offsets", "keep")
    other = Pair(pair.source, pair.target, f"{topic}-other")
    itself = Pair(pair.target, pair.target, topic)
    there = topics(pair.target)
    for more in (("--dry-run",), ("--once",)):
        said = itself.run("run", *words, *more, code=2).stderr
        assert "--from and --to have the same cluster id" in said
        said = pair.run("run", "--topics", f"{topic}-x", "--once", *more, code=4).stderr
        assert f"no topic of east matches --topics '{topic}-x'" in said
    assert topics(pair.target) == there
    pair.run("run", *words, "--once")
    for more in (("--dry-run",), ("--once",)):
        said = pair.run("run", "--topics", topic, *more, code=1).stderr
        assert "begun with --offsets keep, not translate" in said
        said = other.run("run", *words, *more, code=1).stderr
        assert f"topic {topic} is copied to east.{topic} by another mirror" in said
        said = pair.run("run", *words, *more, "--again", topic, code=1).stderr
        assert f"of topic east.{topic} at west has records already" in said
        assert f"delete topic east.{topic} at the target; --again {topic} then copies" in said
    assert not {one for one in topics(pair.target) if f"{topic}-other" in one}
    # Nothing is forgotten by that.
    assert {one["result"] for one in pair.items("verify")} == {"same"}
    fill(pair.source, topic, 2, 3)
    assert "copied 6 records" in pair.once(*words)
    pair.run("run", "--dry-run", *words)


def test_nothing_matches(pair: Pair, topic: str) -> None:
    said = pair.run("run", "--dry-run", "--topics", f"{topic}-none").stdout
    assert said == "nothing would be copied: no topic matches\n"
