import pytest

from pyrklog.adoption.broker_options import known_defaults, run_time_options
from pyrklog.adoption.kraft import KraftMetadata, KraftPartition, KraftTopic
from pyrklog.adoption.plan import KEEP_EVERYTHING, is_current, make_plan
from pyrklog.config.load import load_config
from pyrklog.plane.seam import FoundPartition

A, B = b"a" * 16, b"b" * 16


def folder(topic: str, index: int, topic_id: bytes | None = A) -> FoundPartition:
    return FoundPartition(topic, index, topic_id, "/logs")


def known(name: str = "t", *replicas: tuple[int, ...], isr: int = 1) -> KraftMetadata:
    partitions = {i: KraftPartition(r, (isr,), 7) for i, r in enumerate(replicas)}
    return KraftMetadata({A: KraftTopic(name, A, partitions)}, {name: {"retention.ms": "5"}}, 0)


def test_topics_are_planned_from_folders_alone() -> None:
    found = [folder("t", 1), folder("t", 0, None), folder("__cluster_metadata", 0, None)]
    plan = make_plan(1, found, {("t", 1): 4}, None, 99)
    assert plan.topics == [("t", A, [-1, 4], KEEP_EVERYTHING, False)]
    assert plan.refused == {}


def test_internal_topics_have_known_options() -> None:
    found = [folder("__consumer_offsets", 0), folder("__transaction_state", 0)]
    plan = make_plan(1, found, {}, None, 99)
    [offsets, transactions] = plan.topics
    assert offsets.options == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "99",
    }
    assert transactions.options == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
    }
    assert plan.refused == {}


def test_metadata_gives_options_and_epochs() -> None:
    kraft = known("t", (1,), (1,))
    kraft.options["t"]["confluent.only"] = "1"
    plan = make_plan(1, [folder("t", 0), folder("t", 1)], {("t", 1): 9}, kraft, 99)
    assert plan.topics == [("t", A, [7, 9], {"retention.ms": "5"}, True)]
    assert plan.options_left_out == {"t": ["confluent.only"]}


@pytest.mark.parametrize(
    ("found", "kraft", "why"),
    [
        ([folder("t", 0), folder("t", 3)], None, "no folder for partitions 1, 2"),
        ([folder("t", 0), folder("t", 1, B)], None, "2 different topic ids"),
        ([folder("u", 0)], known("t", (1,)), "metadata does not know the topic"),
        ([folder("t", 0, B)], known("t", (1,)), "another topic id"),
        ([folder("t", 0)], known("t", (1,), (2,)), "partition 1 on other brokers only"),
        ([folder("t", 0)], known("t", (1, 2), isr=2), "partition 0 not in sync here"),
        ([folder("t", 0)], known("t", (1,), (1,)), "no folder for partition 1"),
        ([folder("t", 0), folder("t", 1)], known("t", (1,)), "does not know partition 1"),
    ],
)
def test_incomplete_topics_are_not_adopted(
    found: list[FoundPartition], kraft: KraftMetadata | None, why: str
) -> None:
    plan = make_plan(1, found, {}, kraft, 99)
    assert plan.topics == []
    [reason] = plan.refused.values()
    assert why in reason


@pytest.mark.parametrize(
    ("found", "epoch", "current"),
    [
        ([folder("t", 0), folder("__cluster_metadata", 0, None)], 7, True),
        ([folder("t", 0)], 8, False),
        ([folder("t", 0), folder("new", 0)], 7, False),
        ([folder("t", 1)], 7, False),
    ],
)
def test_whether_the_metadata_is_as_new_as_the_folders(
    found: list[FoundPartition], epoch: int, current: bool
) -> None:
    epochs = {("t", 0): epoch}
    assert is_current(found, epochs, known("t", (1,))) is current
    assert not is_current(found, epochs, None)


def test_topics_keep_what_the_defaults_do_not_tell() -> None:
    kraft = known("t", (1,))
    kraft.options["t"] = {"cleanup.policy": "compact", "segment.ms": "never"}
    config = load_config()
    defaults = known_defaults(config, kraft, run_time_options(1, kraft), ())
    plan = make_plan(1, [folder("t", 0)], {}, kraft, 99, defaults)
    [topic] = plan.topics
    assert topic.options_known
    assert topic.options.keys() == {
        "cleanup.policy",
        "delete.retention.ms",
        "min.compaction.lag.ms",
        "pyrklog.adopted.unconfirmed",
    }
    assert (plan.kept, plan.options_left_out) == (["t"], {"t": ["segment.ms"]})
