"""Directories that must not be used as configured."""

import sqlite3
from pathlib import Path

import pytest

from pyrklog.config.broker import BrokerConfig
from pyrklog.config.load import load_config
from pyrklog.errors import ConfigError
from pyrklog.metastore import znodes
from pyrklog.metastore.database import APPLICATION_ID


def logs(path: Path, cluster_id: str = "c") -> Path:
    path.mkdir(parents=True)
    (path / "meta.properties").write_text(f"version=0\nbroker.id=1\ncluster.id={cluster_id}\n")
    return path


def store(path: Path, cluster_id: str | None = "c") -> Path:
    """A metadata store; None leaves its cluster id out."""
    path.mkdir(parents=True)
    file = sqlite3.connect(path / "store.db")
    file.execute("CREATE TABLE node (path TEXT PRIMARY KEY, data BLOB)")
    file.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    if cluster_id is not None:
        data = znodes.encode_cluster_id(cluster_id)
        file.execute("INSERT INTO node VALUES (?, ?)", (znodes.CLUSTER_ID, data))
    file.commit()
    file.close()
    return path


def load(data: Path, *overrides: str) -> BrokerConfig:
    return load_config(flags={"pyrklog.data.dir": str(data)}, overrides=overrides)


@pytest.mark.parametrize("tells", ["c", None])
@pytest.mark.parametrize("name", ["logs", "other"])
def test_log_directory_of_a_data_directory_is_refused_as_data_directory(
    tmp_path: Path, name: str, tells: str | None
) -> None:
    store(tmp_path / "meta", tells)
    log_dir = logs(tmp_path / name)
    with pytest.raises(ConfigError, match="is a log directory of the data directory") as refused:
        load(log_dir)
    assert refused.value.exit_code == 78
    assert refused.value.fix is not None
    assert f"start with --data {tmp_path}," in refused.value.fix
    with pytest.raises(ConfigError, match="is a log directory of the data directory"):
        load_config(overrides=[f"log.dirs={log_dir}"])
    assert load(tmp_path).log_dirs == [tmp_path / "logs"]


def test_second_metadata_store_is_refused_with_a_hint(tmp_path: Path) -> None:
    store(tmp_path / "meta")
    second = store(tmp_path / "logs-meta")
    log_dir = logs(tmp_path / "logs")
    with pytest.raises(ConfigError, match=f"second metadata store at {second}, and each"):
        load(log_dir)
    assert load(tmp_path).meta_dir == tmp_path / "meta"
    assert load(log_dir, f"pyrklog.meta.dir={second}").meta_dir == second


def test_log_directories_find_the_store_beside_them(tmp_path: Path) -> None:
    log_dir = logs(tmp_path / "u1")
    beside = store(tmp_path / "u1-meta")
    assert load(log_dir).meta_dir == beside
    with pytest.raises(ConfigError, match=f"whose metadata is in {beside}") as refused:
        load(tmp_path / "new", f"log.dirs={log_dir}")
    assert refused.value.fix is not None
    assert f"pyrklog.meta.dir={beside}" in refused.value.fix


def test_stores_of_brokers_side_by_side_are_accepted(tmp_path: Path) -> None:
    store(tmp_path / "meta", "another")
    log_dir = logs(tmp_path / "kafka")
    assert load(log_dir).meta_dir == tmp_path / "kafka-meta"
    store(tmp_path / "kafka-meta")
    assert load(log_dir).meta_dir == tmp_path / "kafka-meta"


def test_older_store_is_used_when_the_other_names_no_log_directory(tmp_path: Path) -> None:
    store(tmp_path / "meta", None)
    log_dir = logs(tmp_path / "kafka")
    store(tmp_path / "kafka-meta")
    assert load(log_dir).meta_dir == tmp_path / "kafka-meta"


def test_a_broker_of_a_cluster_has_its_metadata_elsewhere(tmp_path: Path) -> None:
    store(tmp_path / "meta")
    log_dir = logs(tmp_path / "logs")
    assert load(log_dir, "zookeeper.connect=z:2181").log_dirs == [log_dir]


def file_with(tmp_path: Path, log_dir: Path) -> Path:
    file = tmp_path / "server.properties"
    file.write_text(f"broker.id=1\nlog.dirs={log_dir}\n")
    return file


@pytest.mark.parametrize("own", ["logs", "."])
def test_a_used_data_directory_beside_other_log_directories_is_refused(
    tmp_path: Path, own: str
) -> None:
    """The broker would serve its metadata, with empty partitions made anew elsewhere."""
    data, other = tmp_path / "x", tmp_path / "other"
    used = logs(data / own)
    flags = {"pyrklog.data.dir": str(data)}
    file = file_with(tmp_path, other)
    with pytest.raises(ConfigError) as refused:
        load_config(file=file, flags=flags)
    assert refused.value.exit_code == 78
    assert f"--data is {data}, whose records are in {used}, but" in refused.value.what
    assert f"log.dirs (server.properties line 2) names {other}:" in refused.value.what
    assert refused.value.fix == (
        f"to serve {data} add --set log.dirs={used}; to serve {other} leave --data out"
    )
    chosen = load_config(file=file, flags=flags, overrides=[f"log.dirs={used}"])
    assert chosen.log_dirs == [used]
    assert load_config(file=file).log_dirs == [other]
    if own == "logs":  # else the metadata would lie in a log directory, which is refused too
        both = load_config(file=file, flags=flags, overrides=[f"log.dirs={other},{used}"])
        assert both.log_dirs == [other, used]


def test_a_new_data_directory_may_have_log_directories_elsewhere(tmp_path: Path) -> None:
    other = tmp_path / "other"
    config = load_config(
        file=file_with(tmp_path, other), flags={"pyrklog.data.dir": str(tmp_path / "new")}
    )
    assert (config.log_dirs, config.meta_dir) == ([other], tmp_path / "new" / "meta")


def partition(path: Path) -> None:
    path.mkdir(parents=True)
    (path / "00000000000000000000.log").touch()


@pytest.mark.parametrize("has_properties", [True, False])
def test_the_parent_of_a_log_directory_is_refused(tmp_path: Path, has_properties: bool) -> None:
    place = tmp_path / "kafka"
    partition(place / "data" / "my-topic-0")
    (tmp_path / "kafka" / "config").mkdir()
    if has_properties:
        (place / "data" / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    with pytest.raises(ConfigError) as refused:
        load(place)
    assert refused.value.exit_code == 78
    assert f"{place} is no log directory, but holds {place}/data; a new" in str(refused.value)
    assert refused.value.fix is not None
    assert f"give --data {place}/data; for a new broker" in refused.value.fix
    with pytest.raises(ConfigError, match=f"{place} is no log directory") as named:
        load_config(overrides=[f"log.dirs={place}"])
    assert named.value.fix is not None
    assert f"give --set log.dirs={place}/data;" in named.value.fix
    named_itself = load_config(overrides=[f"log.dirs={place}/data"])
    assert named_itself.log_dirs == [place / "data"]
    assert load(place / "data", "log.dirs=" + str(place / "data")).log_dirs == [place / "data"]


def test_several_log_directories_below_are_named(tmp_path: Path) -> None:
    both = [logs(tmp_path / name) for name in ("d1", "d2")]
    with pytest.raises(ConfigError) as refused:
        load(tmp_path)
    assert refused.value.fix is not None
    assert f"--set log.dirs={both[0]},{both[1]};" in refused.value.fix


def test_partitions_without_properties_are_no_data_directory(tmp_path: Path) -> None:
    partition(tmp_path / "t-0")
    with pytest.raises(ConfigError, match=f"{tmp_path} holds partitions; a new") as refused:
        load(tmp_path)
    assert refused.value.fix is not None
    assert f"--set log.dirs={tmp_path};" in refused.value.fix
    assert load_config(overrides=[f"log.dirs={tmp_path}"]).log_dirs == [tmp_path]


def test_a_used_data_directory_may_hold_others(tmp_path: Path) -> None:
    store(tmp_path / "meta")
    logs(tmp_path / "kafka", "another")
    assert load(tmp_path).log_dirs == [tmp_path / "logs"]


def test_folders_that_look_like_partitions_are_no_partitions(tmp_path: Path) -> None:
    (tmp_path / "release-3").mkdir()
    (tmp_path / "x" / "release-4").mkdir(parents=True)
    assert load(tmp_path).log_dirs == [tmp_path / "logs"]


def test_nothing_is_adopted_from_an_empty_directory(tmp_path: Path) -> None:
    adopt = "pyrklog.adopt.zookeeper=z:2181"
    with pytest.raises(ConfigError, match=f"nothing to adopt: {tmp_path}/logs has no meta") as no:
        load(tmp_path, adopt)
    assert no.value.exit_code == 78
    assert no.value.fix is not None
    kafka = logs(tmp_path / "kafka")
    assert load(kafka, adopt).log_dirs == [kafka]
    store(tmp_path / "new" / "meta")  # later starts adopt nothing
    assert load(tmp_path / "new", adopt).log_dirs == [tmp_path / "new" / "logs"]


def test_nested_log_directories_are_refused(tmp_path: Path) -> None:
    outer, inner = tmp_path / "g1", tmp_path / "g1" / "in"
    for both in (f"{outer},{inner}", f"{inner},{outer}"):
        with pytest.raises(ConfigError, match=f"{inner} lies in the log directory {outer}") as no:
            load_config(overrides=[f"log.dirs={both}"])
        assert no.value.exit_code == 78
        assert no.value.fix is not None
    outer.mkdir()
    (tmp_path / "link").symlink_to(outer)
    with pytest.raises(ConfigError, match="lies in the log directory"):
        load_config(overrides=[f"log.dirs={outer},{tmp_path / 'link' / 'in'}"])
    with pytest.raises(ConfigError, match="are the same directory"):
        load_config(overrides=[f"log.dirs={outer},{tmp_path / 'link'}"])
    beside = f"log.dirs={outer},{tmp_path / 'g11'}"
    assert load_config(overrides=[beside]).log_dirs == [outer, tmp_path / "g11"]


def test_places_within_those_of_another_broker_are_refused(tmp_path: Path) -> None:
    used = logs(tmp_path / "other" / "logs")
    kept = store(tmp_path / "other" / "meta")
    partition(used / "t-0")
    (tmp_path / "link").symlink_to(kept)
    within = {used / "t-0": "log directory", kept: "metadata directory", tmp_path / "link": "meta"}
    for data, kind in within.items():
        with pytest.raises(ConfigError, match=f"lies in the {kind}") as refused:
            load(data / "new")
        assert refused.value.fix == "choose a directory outside of it"
    with pytest.raises(ConfigError, match=f"{kept}/logs lies in the metadata directory {kept}"):
        load(kept)
    beside = tmp_path / "other" / "beside"
    assert load(beside).log_dirs == [beside / "logs"]


def test_log_directories_within_the_own_metadata_directory_are_served(tmp_path: Path) -> None:
    store(tmp_path / "all")
    chosen = ("pyrklog.meta.dir", str(tmp_path / "all"))
    for log_dir in (tmp_path / "all" / "new", logs(tmp_path / "all" / "used")):
        overrides = [f"log.dirs={log_dir}", "=".join(chosen)]
        assert load_config(overrides=overrides).log_dirs == [log_dir]


def test_another_programs_store_is_none(tmp_path: Path) -> None:
    (tmp_path / "store.db").write_bytes(b"something")
    assert load(tmp_path / "data").log_dirs == [tmp_path / "data" / "logs"]


def test_a_used_directory_within_another_one_is_served(tmp_path: Path) -> None:
    logs(tmp_path / "logs")
    inner = logs(tmp_path / "logs" / "inner" / "logs")
    store(tmp_path / "logs" / "inner" / "meta")
    assert load(tmp_path / "logs" / "inner").log_dirs == [inner]


@pytest.mark.parametrize("option", ["pyrklog.data.dir", "log.dirs"])
def test_a_place_that_cannot_be_entered_is_refused(tmp_path: Path, option: str) -> None:
    """A name that is too long for the system stands for a directory without permission, which root
    can enter."""
    long = tmp_path / ("x" * 300)
    flags = {"pyrklog.data.dir": str(tmp_path / "data"), option: str(long / "y")}
    with pytest.raises(ConfigError, match=rf"cannot enter {long}.*: File name too long") as caught:
        load_config(flags=flags)
    assert caught.value.fix is not None
    assert "choose another place with --data" in caught.value.fix
