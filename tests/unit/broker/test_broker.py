"""The composition: a broker starts, serves, survives and stops."""

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from pyrklog.admin import topics
from pyrklog.broker import Broker
from pyrklog.config.load import load_config
from pyrklog.errors import ConfigError, ErrorCode, TemporaryError
from pyrklog.handlers.service import PartitionsSpec, TopicRef, TopicResult, TopicSpec
from pyrklog.membership import member
from pyrklog.membership.current_store import CurrentStore
from pyrklog.metastore import znodes
from pyrklog.metastore.embedded import open_store
from pyrklog.metastore.interface import SessionExpiredError
from pyrklog.plane.seam import DirectoryPast, FoundPartition, PlaneSettings
from pyrklog.testing.fake_plane import FakePlane, FakeRequest
from tests.unit.broker.harness import running_broker


async def stored(directory: Path, path: str) -> dict[str, object]:
    store = await open_store(directory / "meta")
    node = await store.session().get(path)
    await store.close()
    content: dict[str, object] = json.loads(node.data)
    return content


async def test_a_first_start_and_an_orderly_end(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        plane = running.plane
        assert plane.ports == {"PLAINTEXT": 40000}
        (seen,) = plane.deltas[-1].brokers
        assert seen.endpoints == [("PLAINTEXT", "127.0.0.1", 40000)]
        assert plane.deltas[-1].controller_id == seen.id == 1
        described = running.service.describe_cluster("PLAINTEXT")
        assert (described.controller_id, len(described.cluster_id)) == (1, 22)
        assert [(b.host, b.port) for b in described.brokers] == [("127.0.0.1", 40000)]
        assert running.service.describe_cluster("OTHER").brokers == []
    assert running.exit_code == 0
    assert plane.is_shut_down
    assert (await stored(tmp_path, znodes.CLUSTER_ID))["id"] == described.cluster_id


async def test_a_listener_that_is_not_advertised_is_bound_and_not_registered(
    tmp_path: Path,
) -> None:
    async with running_broker(
        tmp_path,
        "listeners=HIDDEN://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "listener.security.protocol.map=HIDDEN:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "advertised.listeners=PLAINTEXT://shown:0",
    ) as running:
        assert running.plane.ports == {"HIDDEN": 40000, "PLAINTEXT": 40001}
        (seen,) = running.plane.deltas[-1].brokers
        assert seen.endpoints == [("PLAINTEXT", "shown", 40001)]
        described = running.service.describe_cluster("HIDDEN")
        assert (described.controller_id, described.brokers) == (1, [])


async def test_without_the_store_no_controller_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``cluster health`` sees from this that ZooKeeper is away; metadata names the last
    controller."""
    async with running_broker(tmp_path) as running:
        monkeypatch.setattr(CurrentStore, "is_reachable", False)
        assert running.service.describe_cluster("PLAINTEXT").controller_id == -1
        assert running.plane.deltas[-1].controller_id == 1
        monkeypatch.undo()
        assert running.service.describe_cluster("PLAINTEXT").controller_id == 1


async def test_topics_and_options_survive_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        created = await running.created("kept", 3, retention_ms="77")
        cluster_id = running.service.describe_cluster("PLAINTEXT").cluster_id
    async with running_broker(tmp_path) as running:
        assert running.service.describe_cluster("PLAINTEXT").cluster_id == cluster_id
        topic = running.plane.topics["kept"]
        assert (topic.id, len(topic.partitions)) == (created.topic_id, 3)
        assert topic.log.retention_ms == 77
        with trio.fail_after(10):
            await running.plane.wait_until(lambda: len(running.plane.led) == 3)
        # The leader lives on: its epoch stays and is not written again.
        assert {spec.leader_epoch for spec in running.plane.led.values()} == {0}
        assert not any(spec.is_new for spec in running.plane.led.values())


async def test_clients_can_connect_only_when_the_image_is_whole(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        await running.created("t", 2)

    class WatchfulPlane(FakePlane):
        def listen(self, listener: str, host: str, port: int, *, for_brokers: bool = False) -> int:
            assert "t" in self.topics
            return super().listen(listener, host, port, for_brokers=for_brokers)

    config = load_config(
        flags={"pyrklog.data.dir": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:19999"}
    )
    broker = Broker(config, WatchfulPlane)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.run)
        with trio.fail_after(30):
            await broker.ready.wait()
        broker.stop()


async def test_a_taken_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def make_plane(settings: PlaneSettings) -> FakePlane:
        plane = FakePlane(settings)
        plane.ports_taken.add(19999)
        return plane

    config = load_config(
        flags={"pyrklog.data.dir": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:19999"}
    )
    told: list[str] = []
    note = lambda event, **_fields: told.append(event)  # noqa: E731
    monkeypatch.setattr(member, "log", SimpleNamespace(info=note, warning=note))
    with pytest.RaisesGroup(pytest.RaisesExc(TemporaryError, match="19999"), allow_unwrapped=True):
        await Broker(config, make_plane).run()
    assert told == []  # it was not registered
    # The failed start does not block the next one.
    async with running_broker(tmp_path):
        pass


async def test_numbers_come_from_the_log_directory(tmp_path: Path) -> None:
    """The metadata was lost, or the directory was another broker's: the broker keeps
    its identity."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "meta.properties").write_text(
        "#Thu Jan 01\nversion=0\nbroker.id=7\ncluster.id=oldClusterOldClusterOl\n"
    )
    async with running_broker(tmp_path) as running:
        settings = running.plane.settings
        assert settings is not None
        assert (settings.node_id, settings.cluster_id) == (7, "oldClusterOldClusterOl")


async def test_log_directories_of_different_brokers(tmp_path: Path) -> None:
    for name, number in (("a", 1), ("b", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "meta.properties").write_text(f"version=0\nbroker.id={number}\n")
    dirs = f"log.dirs={tmp_path / 'a'},{tmp_path / 'b'}"
    config = load_config(flags={"pyrklog.data.dir": str(tmp_path)}, overrides=[dirs])
    with pytest.raises(ConfigError, match="different brokers"):
        await Broker(config, FakePlane).run()


async def test_unknown_folders_are_left_alone(tmp_path: Path) -> None:
    """They appeared after the first start, which would have adopted them."""
    stranger = FoundPartition("old", 0, b"o" * 16, str(tmp_path / "logs"))
    async with running_broker(tmp_path):
        pass
    async with running_broker(tmp_path, found=[stranger]) as running:
        assert running.plane.topics == {}
        assert running.plane.stopped == []
        (refused,) = await running.create(TopicSpec("old"))
        assert refused.error is ErrorCode.INVALID_TOPIC_EXCEPTION
        assert "older topic 'old'" in (refused.message or "")
        await running.created("fresh")


async def test_a_deletion_that_a_crash_interrupted_goes_on(tmp_path: Path) -> None:
    """The topic's remaining folders go, and its name is free again."""
    async with running_broker(tmp_path) as running:
        created = await running.created("t", 2)
        running.plane.hold_tickets()
        (gone,) = await running.service.delete_topics([TopicRef("t")], timeout_ms=20)
        assert gone.error is ErrorCode.NONE
        running.crashes = True
    left = FoundPartition("t", 1, created.topic_id, str(tmp_path / "logs"))
    async with running_broker(tmp_path, found=[left]) as running:
        with trio.fail_after(10):
            await running.plane.wait_until(lambda: len(running.plane.stopped) == 2)
        assert running.plane.stopped == [("t", 0, True), ("t", 1, True)]
        error = ErrorCode.TOPIC_ALREADY_EXISTS  # until its znodes are gone as well
        with trio.fail_after(10):
            while error is ErrorCode.TOPIC_ALREADY_EXISTS:
                ((_, error, *_),) = await running.create(TopicSpec("t"))
        assert error is ErrorCode.NONE


async def test_a_missing_topic_is_created_for_a_metadata_request(tmp_path: Path) -> None:
    async with running_broker(tmp_path, "num.partitions=3") as running:
        plane = running.plane
        plane.topics_missing(1, ["new", "bad name", "__consumer_offsets"])
        with trio.fail_after(10):
            await plane.wait_until(lambda: 1 in plane.resumed)
        assert plane.resumed[1] == {
            "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
            "__consumer_offsets": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        # Led before the answer: the client's first produce finds a leader.
        assert {key for key in plane.led if key[0] == "new"} == {("new", p) for p in range(3)}


async def test_many_clients_miss_the_same_topic(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        plane = running.plane
        for number in range(20):
            plane.topics_missing(number, ["new"])
        with trio.fail_after(10):
            await plane.wait_until(lambda: len(plane.resumed) == 20)
        assert set(map(tuple, plane.resumed.values())) == {()}
        assert len(plane.topics["new"].partitions) == 1


async def test_auto_creation_with_too_few_brokers(tmp_path: Path) -> None:
    async with running_broker(tmp_path, "default.replication.factor=3") as running:
        running.plane.topics_missing(1, ["new"])
        with trio.fail_after(10):
            await running.plane.wait_until(lambda: 1 in running.plane.resumed)
        assert running.plane.resumed[1] == {"new": ErrorCode.INVALID_REPLICATION_FACTOR}


@pytest.mark.parametrize("store", ["session-ends", "silent", "unreachable"])
async def test_metadata_for_a_missing_topic_does_not_wait_for_an_absent_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    async with running_broker(tmp_path) as running:

        async def away(_self: object, _specs: object, **_options: object) -> None:
            if store == "session-ends":
                raise SessionExpiredError("/")
            await trio.sleep_forever()

        with monkeypatch.context() as patched:
            patched.setattr(topics, "AUTO_CREATE_LIMIT_SECONDS", 0.1 if store == "silent" else 60)
            patched.setattr(CurrentStore, "is_reachable", store != "unreachable")
            patched.setattr(topics.TopicAdmin, "create", away)
            running.plane.topics_missing(1, ["new", "__consumer_offsets"])
            with trio.fail_after(10):
                await running.plane.wait_until(lambda: 1 in running.plane.resumed)
        assert running.plane.resumed[1] == {
            "new": ErrorCode.LEADER_NOT_AVAILABLE,
            "__consumer_offsets": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        running.plane.topics_missing(2, ["new"])
        with trio.fail_after(10):
            await running.plane.wait_until(lambda: 2 in running.plane.resumed)
        assert running.plane.resumed[2] == {}


async def test_metadata_does_not_wait_for_the_store_once_the_topic_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(tmp_path) as running:
        create = topics.TopicAdmin.create

        async def away_for_others(
            admin: topics.TopicAdmin, specs: Sequence[TopicSpec], **options: Any
        ) -> list[TopicResult]:
            if not options.get("as_controller", True):
                await trio.sleep_forever()
            return await create(admin, specs, **options)

        monkeypatch.setattr(topics, "AUTO_CREATE_LIMIT_SECONDS", 60.0)
        monkeypatch.setattr(topics.TopicAdmin, "create", away_for_others)
        running.plane.topics_missing(1, ["new"])
        await running.created("new")
        with trio.fail_after(10):
            await running.plane.wait_until(lambda: 1 in running.plane.resumed)
        assert running.plane.resumed[1] == {}


async def test_requests_are_answered_by_the_handlers(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        plane = running.plane
        # DescribeCluster v0: include_cluster_authorized_operations, tagged fields.
        plane.request(FakeRequest(1, 60, 0, b"\x00\x00"))  # type: ignore[arg-type]
        plane.request(FakeRequest(2, 60, 0, b""))  # type: ignore[arg-type]
        plane.request(FakeRequest(3, 999, 0, b""))  # type: ignore[arg-type]
        with trio.fail_after(10):
            await plane.wait_until(lambda: 1 in plane.replies and len(plane.closed) == 2)
        assert b"127.0.0.1" in plane.replies[1]
        assert sorted(plane.closed) == [2, 3], "a body that lies, an API nobody serves"


async def test_a_handler_that_fails_answers_an_error_and_harms_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(tmp_path) as running:
        plane = running.plane

        def broken(_listener: str) -> object:
            raise RuntimeError("a bug")

        monkeypatch.setattr(running.service, "describe_cluster", broken)
        plane.request(FakeRequest(1, 60, 0, b"\x00\x00"))  # type: ignore[arg-type]
        with trio.fail_after(10):
            await plane.wait_until(lambda: 1 in plane.replies)
        code = int.from_bytes(plane.replies[1][4:6], "big", signed=True)
        assert code == ErrorCode.UNKNOWN_SERVER_ERROR
        await running.created("still-alive")


async def test_a_log_directory_fails_and_others_serve_on(tmp_path: Path) -> None:
    dirs = f"log.dirs={tmp_path / 'a'},{tmp_path / 'b'}"
    async with running_broker(tmp_path, dirs) as running:
        plane = running.plane
        await running.created("t", 2)
        plane.fail_log_dir(str(tmp_path / "a"), [("t", 0)])
        with trio.fail_after(10):
            await plane.wait_until(lambda: plane.partition("t", 0).leader == -1)
        assert plane.partition("t", 0).offline == (1,)
        assert plane.partition("t", 1).leader == 1
        await running.created("after")
    assert running.exit_code == 0


async def test_a_partition_fails_and_the_others_of_its_directory_serve_on(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        plane = running.plane
        await running.created("t", 2)
        plane.fail_partition("t", 0, "its leader epoch fell")
        with trio.fail_after(10):
            await plane.wait_until(lambda: plane.partition("t", 0).leader == -1)
        assert plane.partition("t", 0).offline == (1,)
        assert plane.partition("t", 1).leader == 1
        await running.created("after")
    assert running.exit_code == 0


async def test_the_last_log_directory_fails(tmp_path: Path) -> None:
    """The broker exits with the code for disks."""
    async with running_broker(tmp_path) as running:
        await running.created("t")
        running.plane.fail_log_dir(str(tmp_path / "logs"), [("t", 0)])
        with trio.fail_after(10):
            await running.plane.wait_until(lambda: running.plane.is_shut_down)
    assert running.exit_code == 74


@pytest.mark.parametrize("is_added", [True, False])
async def test_added_log_directory_makes_no_start_unclean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_added: bool
) -> None:
    """Like a directory whose last life crashed, it has no mark of a clean shutdown."""
    both = f"log.dirs={tmp_path / 'a'},{tmp_path / 'b'}"
    async with running_broker(tmp_path, f"log.dirs={tmp_path / 'a'}" if is_added else both):
        pass

    def pasts(plane: FakePlane) -> list[DirectoryPast]:
        assert plane.settings is not None
        return [DirectoryPast(None, path.endswith("a")) for path in plane.settings.log_dirs]

    monkeypatch.setattr(FakePlane, "pasts", pasts)
    told: list[str] = []

    class Log:
        def info(self, event: str, **_fields: object) -> None:
            told.append(event)

        warning = info

    monkeypatch.setattr(member, "log", Log())
    async with running_broker(tmp_path, both):
        pass
    assert ("unclean_start" in told) is not is_added
    assert "registered" in told


async def test_a_plane_that_hangs_does_not_hold_up_the_end(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    mock_clock.rate = 20
    async with running_broker(tmp_path) as running:
        running.plane.hold_tickets()
        running.broker.stop()
        with trio.fail_after(200):
            await running.plane.wait_until(lambda: running.plane.is_shut_down)
    assert running.exit_code == 1


async def test_waiting_topic_creation_ends_when_the_topic_is_deleted(tmp_path: Path) -> None:
    """Neither its creator nor its enlarger waits for the timeout."""
    async with running_broker(tmp_path) as running:
        await running.created("enlarged")
        running.plane.hold_tickets()
        errors: dict[str, ErrorCode] = {}

        async def create() -> None:
            (result,) = await running.create(TopicSpec("made"), timeout_ms=60_000)
            errors["made"] = result.error

        async def enlarge() -> None:
            specs = [PartitionsSpec("enlarged", 3)]
            (result,) = await running.service.create_partitions(
                specs, validate_only=False, timeout_ms=60_000
            )
            errors["enlarged"] = result.error

        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(create)
                nursery.start_soon(enlarge)
                topics = running.plane.topics
                await running.plane.wait_until(
                    lambda: "made" in topics and len(topics["enlarged"].partitions) == 3
                )
                refs = [TopicRef("made"), TopicRef("enlarged")]
                await running.service.delete_topics(refs, timeout_ms=0)
        assert set(errors.values()) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_deleting_right_after_creating_many_times(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        seen = set()
        for _ in range(10):
            result = await running.created("again", 2)
            seen.add(result.topic_id)
            (deleted,) = await running.service.delete_topics([TopicRef("again")], timeout_ms=9000)
            assert deleted.error is ErrorCode.NONE
            assert "again" not in running.plane.topics
        assert len(seen) == 10
        assert running.plane.stopped.count(("again", 0, True)) == 10
