"""The first start on Kafka's directory, and the next ones: what is entered, and what is kept."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from pyrklog.adoption.adopt import adopt
from pyrklog.adoption.batches import encode_values, read_values
from pyrklog.adoption.broker_options import UNEXPIRED, unexpired
from pyrklog.adoption.directory import METADATA_FOLDER, read_kraft
from pyrklog.adoption.export import ExportedTopic, encode_bootstrap, export_kraft
from pyrklog.adoption.kraft import ALL_BROKERS
from pyrklog.config.broker import BrokerConfig
from pyrklog.config.load import load_config
from pyrklog.metastore import znodes
from pyrklog.metastore.embedded import open_store
from pyrklog.metastore.interface import Metastore
from pyrklog.plane.seam import FoundPartition
from pyrklog.start.identity import create_paths
from tests.unit.broker.harness import running_broker

TOPICS = {
    "plain": {},
    "own": {"retention.ms": "7"},
    "compacted": {"cleanup.policy": "compact"},
}
PASSWORD = "listener.name.ssl.ssl.keystore.password"
KAFKAS = {
    ALL_BROKERS: {"log.retention.bytes": "12345", "log.segment.bytes": "54321"},
    "1": {"log.segment.bytes": "65432", PASSWORD: "secret"},
    "9": {"log.segment.bytes": "11111"},
}


def id_of(topic: str) -> bytes:
    return topic[:1].encode() * 16


def write_metadata(log_dir: Path, options: Mapping[str, Mapping[str, str]] = KAFKAS) -> None:
    """As a Kafka that ran on the directory."""
    topics = [ExportedTopic(name, id_of(name), {0: 0}, own) for name, own in TOPICS.items()]
    data = encode_bootstrap(1, topics, 0, lambda _topic, _index: b"d" * 16, 9, options)
    values = [value.data for value in read_values(data, 0, torn_end=False)]
    folder = log_dir / METADATA_FOLDER
    folder.mkdir(parents=True)
    (folder / f"{0:020}.log").write_bytes(encode_values(values, 0, 5))


def found(log_dir: Path) -> list[FoundPartition]:
    for name in TOPICS:
        (log_dir / f"{name}-0").mkdir(parents=True, exist_ok=True)
    return [FoundPartition(name, 0, id_of(name), str(log_dir)) for name in TOPICS]


def kafkas_file(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text("process.roles=broker,controller\n")
    return path


async def entered(store: Metastore, config: BrokerConfig, log_dir: Path) -> list[str]:
    """Adopts, and returns what does not expire."""
    await create_paths(store, (*znodes.PERSISTENT_PATHS, *znodes.OWN_PATHS))
    return [*await adopt(1, config, store, found(log_dir))]


async def options_at(store: Metastore, path: str) -> dict[str, str]:
    return znodes.decode_config(path, (await store.get(path)).data)


async def test_options_of_brokers_are_in_force_at_the_first_start(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    write_metadata(logs)
    async with running_broker(tmp_path, found=found(logs)) as running:
        topics = running.plane.topics
        assert {name: topic.log.retention_ms for name, topic in topics.items()} == {
            "plain": -1,
            "own": 7,
            "compacted": 604_800_000,
        }
        assert topics["compacted"].log.min_compaction_lag_ms > 10**12
        assert {topic.log.retention_bytes for topic in topics.values()} == {12345}
        assert {topic.log.segment_bytes for topic in topics.values()} == {65432}
        assert running.broker.config.integer("offsets.retention.minutes") == 2**31 - 1
    async with running_broker(
        tmp_path, "offsets.retention.minutes=5", found=found(logs)
    ) as running:
        assert running.plane.topics["plain"].log.retention_ms == -1
        assert running.broker.config.integer("offsets.retention.minutes") == 5
        assert running.broker.config.integer("transactional.id.expiration.ms") == 2**31 - 1


async def test_with_kafkas_file_its_defaults_hold(tmp_path: Path) -> None:
    write_metadata(tmp_path / "logs")
    config = load_config(file=kafkas_file(tmp_path), flags={"pyrklog.data.dir": str(tmp_path)})
    opened = await open_store(tmp_path / "meta")
    store = opened.session()
    assert await entered(store, config, tmp_path / "logs") == []
    assert await options_at(store, znodes.topic_config_path("plain")) == {}
    assert await options_at(store, znodes.topic_config_path("compacted")) == TOPICS["compacted"]
    all_of_them = await options_at(store, znodes.broker_config_path(znodes.DEFAULT_ENTITY))
    assert all_of_them == KAFKAS[ALL_BROKERS]
    own = await options_at(store, znodes.broker_config_path("1"))
    assert own == {"log.segment.bytes": "65432"}
    await store.close()
    await opened.close()


async def test_an_interrupted_adoption_goes_on(tmp_path: Path) -> None:
    write_metadata(tmp_path / "logs")
    config = load_config(flags={"pyrklog.data.dir": str(tmp_path)})
    opened = await open_store(tmp_path / "meta")
    store = opened.session()
    await create_paths(store, znodes.PERSISTENT_PATHS)
    path = znodes.broker_config_path("1")
    await store.create(path, znodes.encode_config({"log.segment.bytes": "65432"}))
    assert await entered(store, config, tmp_path / "logs") == [*UNEXPIRED]
    assert await options_at(store, path) == {"log.segment.bytes": "65432"}
    everyones = await options_at(store, znodes.broker_config_path(znodes.DEFAULT_ENTITY))
    assert everyones == KAFKAS[ALL_BROKERS]
    await store.close()
    await opened.close()


def test_offsets_expire_as_soon_as_somebody_says_when(tmp_path: Path) -> None:
    names = [*UNEXPIRED, "an.option.of.later"]
    kept = unexpired(load_config(), names)
    assert kept.integer("offsets.retention.minutes") == 2**31 - 1
    config = load_config(overrides=["offsets.retention.minutes=3"])
    assert unexpired(config, names).integer("offsets.retention.minutes") == 3
    with_file = load_config(file=kafkas_file(tmp_path))
    assert unexpired(with_file, names).integer("offsets.retention.minutes") == 10080
    assert unexpired(config, []) is config


async def test_kafka_gets_its_options_back(tmp_path: Path) -> None:
    """Also the password, which pyrklog does not keep; ``pyrklog.*`` stays here."""
    logs = tmp_path / "logs"
    write_metadata(logs)
    (logs / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    async with running_broker(tmp_path, found=found(logs)):
        pass
    config = load_config(flags={"pyrklog.data.dir": str(tmp_path)})
    # It runs a loop of its own.
    import trio

    await trio.to_thread.run_sync(export_kraft, config)
    state = read_kraft([logs])
    assert state is not None
    assert state.is_own_export
    assert state.broker_options == {name: KAFKAS[name] for name in (ALL_BROKERS, "1")}
    assert state.options["plain"] == {"retention.ms": "-1"}


@pytest.mark.parametrize("text", [b"{}", b"[", b'{"topics": {}}'])
async def test_a_record_that_cannot_be_read_is_refused(tmp_path: Path, text: bytes) -> None:
    from pyrklog.errors import StartError

    opened = await open_store(tmp_path / "meta")
    store = opened.session()
    await create_paths(store, (*znodes.PERSISTENT_PATHS, *znodes.OWN_PATHS))
    await store.create(znodes.ADOPTION, text)
    config = load_config(flags={"pyrklog.data.dir": str(tmp_path)})
    with pytest.raises(StartError, match="no adoption"):
        await adopt(1, config, store, found(tmp_path / "logs"))
    await store.close()
    await opened.close()
