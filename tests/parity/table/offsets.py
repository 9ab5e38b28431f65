"""OffsetCommit, OffsetFetch, OffsetDelete: who may, which partitions, broken requests."""

from typing import Any

from tests.parity.definitions import Counted, Raw
from tests.parity.prepare import committed, coordinator, member, topic
from tests.parity.rows import Row, Saved, Scenario, in_versions

TOPIC = "committed"
GHOST = "raw-00000000-aaaa-bbbb-cccc-000000000000"


def partition(index: int = 0, **changes: Any) -> dict[str, Any]:
    return {"partitionIndex": index, "committedOffset": 5, "committedMetadata": ""} | changes


def commit(
    name: str,
    group: Any,
    *partitions: dict[str, Any],
    version: int = 7,
    topic_name: Any = TOPIC,
    topics: Any = None,
    save: Any = None,
    **changes: Any,
) -> Row:
    found = [{"name": topic_name, "partitions": list(partitions or (partition(),))}]
    fields: dict[str, Any] = {"groupId": group, "topics": found if topics is None else topics}
    if version < 5:
        fields["retentionTimeMs"] = -1
    return Row(name, "OffsetCommit", version, fields | changes)


OF_MEMBER: dict[str, Any] = {
    "memberId": Saved("member"),
    "generationIdOrMemberEpoch": Saved("generation"),
}
COMMITS = Scenario(
    "commits",
    [
        topic(TOPIC, 2),
        coordinator("commits"),
        *in_versions(
            (2, 3, 4, 5, 6, 7, 8, 9), lambda v: commit("from outside", "commits", version=v)
        ),
        *in_versions(
            (2, 9),
            lambda v: commit("unknown topic", "commits", version=v, topic_name="commits-none"),
        ),
        *in_versions(
            (2, 9), lambda v: commit("unknown partition", "commits", partition(2), version=v)
        ),
        commit("negative partition", "commits", partition(-1)),
        commit("empty topic name", "commits", topic_name=""),
        commit("topic name with a slash", "commits", topic_name="a/b"),
        commit("a good and a bad partition", "commits", partition(), partition(8)),
        commit("a partition twice", "commits", partition(), partition()),
        commit("offset -1", "commits", partition(committedOffset=-1)),
        commit("offset -100", "commits", partition(committedOffset=-100)),
        commit("largest offset", "commits", partition(committedOffset=2**63 - 1)),
        commit("leader epoch 9", "commits", partition(committedLeaderEpoch=9)),
        commit("leader epoch -9", "commits", partition(committedLeaderEpoch=-9)),
        commit("null metadata", "commits", partition(committedMetadata=None)),
        commit("metadata of 4,096 characters", "commits", partition(committedMetadata="x" * 4_096)),
        commit("metadata of 4,097 characters", "commits", partition(committedMetadata="x" * 4_097)),
        commit(
            "metadata of 4,096 bytes, fewer characters",
            "commits",
            partition(committedMetadata="é" * 2_049),
        ),
        commit("metadata too long", "commits", partition(committedMetadata="x" * 5_000), version=9),
        commit("no topics", "commits", topics=[]),
        commit("no partitions", "commits", topics=[{"name": TOPIC, "partitions": []}]),
        *in_versions((2, 7, 9), lambda v: commit("empty group id", "", version=v)),
        commit("new group", "commits-new"),
        commit("member id in an empty group", "commits", memberId=GHOST),
        commit("generation in an empty group", "commits", generationIdOrMemberEpoch=3),
        commit(
            "member of an unknown group",
            "commits-none",
            memberId=GHOST,
            generationIdOrMemberEpoch=3,
        ),
        commit("generation -2", "commits", generationIdOrMemberEpoch=-2),
        commit("instance id from outside", "commits", groupInstanceId="i"),
        commit("retention", "commits", version=4, retentionTimeMs=1),
        commit("retention -5", "commits", version=2, retentionTimeMs=-5),
        commit("count -2", "commits", topics=Counted(-2)),
        commit("huge count", "commits", topics=Counted(2**31 - 2)),
        commit("huge count", "commits", version=9, topics=Counted(2**31 - 2)),
        commit(
            "huge count of partitions",
            "commits",
            topics=[{"name": TOPIC, "partitions": Counted(2**31 - 2)}],
        ),
        commit("null topic name", "commits", topic_name=None),
        commit("topic name not UTF-8", "commits", topic_name=Raw(b"\0\1\xff")),
        commit("null group id", None),
        commit("null member id", "commits", memberId=None),
        Row("a byte missing", "OffsetCommit", 7, {"groupId": "commits"}, cut=1),
        Row("a byte too many", "OffsetCommit", 7, {"groupId": "commits"}, tail=b"x"),
        Row("unknown tagged field", "OffsetCommit", 8, {"groupId": "commits"}, tags={9: b"x"}),
        Row("empty body", "OffsetCommit", 7, body=b""),
    ],
)
OF_MEMBERS = Scenario(
    "commits of members",
    [
        topic("member-commits"),
        member("member-commits"),
        *in_versions(
            (2, 5, 7, 9),
            lambda v: commit(
                "of the member",
                "member-commits",
                version=v,
                topic_name="member-commits",
                **OF_MEMBER,
            ),
        ),
        *in_versions(
            (2, 7, 9),
            lambda v: commit(
                "from outside", "member-commits", version=v, topic_name="member-commits"
            ),
        ),
        commit(
            "old generation",
            "member-commits",
            topic_name="member-commits",
            **OF_MEMBER | {"generationIdOrMemberEpoch": Saved("generation", -1)},
        ),
        commit(
            "next generation",
            "member-commits",
            topic_name="member-commits",
            **OF_MEMBER | {"generationIdOrMemberEpoch": Saved("generation", 1)},
        ),
        commit(
            "generation -1",
            "member-commits",
            topic_name="member-commits",
            **OF_MEMBER | {"generationIdOrMemberEpoch": -1},
        ),
        commit(
            "unknown member",
            "member-commits",
            topic_name="member-commits",
            **OF_MEMBER | {"memberId": GHOST},
        ),
        commit(
            "unknown member, unknown topic",
            "member-commits",
            topic_name="commits-none",
            **OF_MEMBER | {"memberId": GHOST},
        ),
        commit(
            "unknown instance",
            "member-commits",
            topic_name="member-commits",
            **OF_MEMBER,
            groupInstanceId="i",
        ),
        commit("unknown topic", "member-commits", topic_name="commits-none", **OF_MEMBER),
        commit(
            "metadata too long",
            "member-commits",
            partition(committedMetadata="x" * 5_000),
            topic_name="member-commits",
            **OF_MEMBER,
        ),
    ],
)


def fetch(name: str, group: Any, topics: Any, version: int = 5, **more: Any) -> Row:
    return Row(name, "OffsetFetch", version, {"groupId": group, "topics": topics, **more})


def fetch_of(name: str, *groups: Any, version: int = 8, **more: Any) -> Row:
    """Of several groups."""
    return Row(name, "OffsetFetch", version, {"groups": list(groups), **more})


def asked(*partitions: int, name: Any = "fetched") -> list[dict[str, Any]]:
    return [{"name": name, "partitionIndexes": list(partitions)}]


FETCHES = Scenario(
    "fetches of offsets",
    [
        topic("fetched", 2),
        committed("fetches", "fetched", 6),
        *in_versions(
            (1, 2, 3, 4, 5, 6, 7), lambda v: fetch("a committed partition", "fetches", asked(0), v)
        ),
        *in_versions((1, 2, 5, 7), lambda v: fetch("a partition without", "fetches", asked(1), v)),
        *in_versions(
            (1, 2, 5, 7),
            lambda v: fetch("unknown topic", "fetches", asked(0, name="fetched-none"), v),
        ),
        *in_versions((1, 2, 7), lambda v: fetch("unknown group", "fetches-none", asked(0), v)),
        *in_versions((1, 2, 5, 7), lambda v: fetch("empty group id", "", asked(0), v)),
        *in_versions((2, 5, 7), lambda v: fetch("everything", "fetches", None, v)),
        *in_versions(
            (2, 7), lambda v: fetch("everything of an unknown group", "fetches-none", None, v)
        ),
        fetch("unknown partition", "fetches", asked(7)),
        fetch("negative partition", "fetches", asked(-7)),
        fetch("no topics", "fetches", []),
        fetch("no partitions", "fetches", asked()),
        fetch("a partition twice", "fetches", asked(0, 0)),
        fetch("requires stable offsets", "fetches", asked(0), 7, requireStable=True),
        *in_versions(
            (8, 9),
            lambda v: fetch_of(
                "a committed partition", {"groupId": "fetches", "topics": asked(0)}, version=v
            ),
        ),
        *in_versions(
            (8, 9),
            lambda v: fetch_of("everything", {"groupId": "fetches", "topics": None}, version=v),
        ),
        fetch_of(
            "two groups",
            {"groupId": "fetches", "topics": asked(0)},
            {"groupId": "fetches-none", "topics": asked(1)},
        ),
        fetch_of(
            "a group twice",
            {"groupId": "fetches", "topics": asked(0)},
            {"groupId": "fetches", "topics": asked(0)},
        ),
        fetch_of("empty group id", {"groupId": "", "topics": asked(0)}),
        fetch_of("no groups"),
        fetch_of(
            "unknown member",
            {"groupId": "fetches", "topics": asked(0), "memberId": GHOST, "memberEpoch": 3},
            version=9,
        ),
        fetch_of(
            "member epoch without member",
            {"groupId": "fetches", "topics": asked(0), "memberId": None, "memberEpoch": 3},
            version=9,
        ),
        fetch_of(
            "unknown member of an unknown group",
            {"groupId": "fetches-none", "topics": asked(0), "memberId": GHOST, "memberEpoch": 3},
            version=9,
        ),
        fetch("null topics", "fetches", None, 1),
        fetch("huge count", "fetches", Counted(2**31 - 2)),
        fetch("huge count", "fetches", Counted(2**31 - 2), 7),
        fetch(
            "count of partitions too high",
            "fetches",
            [{"name": "fetched", "partitionIndexes": Counted(3, [1])}],
        ),
        fetch("null group id", None, []),
        fetch("null topic name", "fetches", asked(0, name=None)),
        Row("huge count of groups", "OffsetFetch", 8, {"groups": Counted(2**31 - 2)}),
        Row("null groups", "OffsetFetch", 8, {"groups": None}),
        Row("a byte missing", "OffsetFetch", 5, {"groupId": "fetches", "topics": []}, cut=1),
        Row("a byte too many", "OffsetFetch", 5, {"groupId": "fetches", "topics": []}, tail=b"x"),
        Row("unknown tagged field", "OffsetFetch", 8, {"groups": []}, tags={9: b"x"}),
    ],
)


def delete(
    name: str, group: Any, *partitions: int, topic_name: Any = "deleted", topics: Any = None
) -> Row:
    found = [{"name": topic_name, "partitions": [{"partitionIndex": one} for one in partitions]}]
    return Row(
        name, "OffsetDelete", 0, {"groupId": group, "topics": found if topics is None else topics}
    )


DELETES = Scenario(
    "deletes of offsets",
    [
        topic("deleted", 2),
        topic("deleted-subscribed"),
        committed("deletes", "deleted"),
        member("deletes-live", topics=("deleted-subscribed",)),
        delete("unknown group", "deletes-none", 0),
        delete("empty group id", "", 0),
        delete("unknown topic", "deletes", 0, topic_name="deleted-none"),
        delete("unknown partition", "deletes", 9),
        delete("negative partition", "deletes", -9),
        delete("no topics", "deletes", topics=[]),
        delete("no partitions", "deletes"),
        delete("a partition without an offset", "deletes", 1),
        delete("a partition twice", "deletes", 0, 0),
        delete("the same again", "deletes", 0),
        delete("subscribed topic", "deletes-live", 0, topic_name="deleted-subscribed"),
        delete("other topic of a live group", "deletes-live", 0),
        delete("huge count", "deletes", topics=Counted(2**31 - 2)),
        delete("null topics", "deletes", topics=Counted(-1)),
        delete("null topic name", "deletes", 0, topic_name=None),
        delete("null group id", None),
        Row("a byte missing", "OffsetDelete", 0, {"groupId": "deletes"}, cut=1),
        Row("a byte too many", "OffsetDelete", 0, {"groupId": "deletes"}, tail=b"x"),
    ],
)
SCENARIOS = (COMMITS, OF_MEMBERS, FETCHES, DELETES)
