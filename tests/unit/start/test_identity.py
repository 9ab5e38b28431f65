"""Who a broker is, whatever of its files is new or old."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pyrklog.errors import ConfigError
from pyrklog.metastore import znodes
from pyrklog.metastore.embedded import EmbeddedSession, open_store
from pyrklog.start.identity import (
    DirectoryIdentity,
    choose_cluster_id,
    choose_node_id,
    create_paths,
    new_cluster_id,
    read_identities,
)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[EmbeddedSession]:
    opened = await open_store(tmp_path / "meta")
    session = opened.session()
    await create_paths(session, znodes.PERSISTENT_PATHS)
    yield session
    await opened.close()


def directory(name: str, node_id: int | None, cluster_id: str | None) -> DirectoryIdentity:
    return DirectoryIdentity(Path(name), node_id, cluster_id)


def test_meta_properties_of_both_versions(tmp_path: Path) -> None:
    texts = {
        "zk": "#comment\nversion=0\nbroker.id=3\ncluster.id=abc\n",
        "kraft": "version=1\nnode.id=4\ncluster.id=def\ndirectory.id=x\n",
        "odd": "version=0\nbroker.id=three\n",
    }
    for name, text in texts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "meta.properties").write_text(text)
    found = read_identities([tmp_path / name for name in (*texts, "none")])
    assert [(item.node_id, item.cluster_id) for item in found] == [
        (3, "abc"),
        (4, "def"),
        (None, None),
    ]


async def test_the_number_is_remembered(store: EmbeddedSession) -> None:
    assert await choose_node_id(-1, [directory("/a", 7, None)], store) == 7
    # Whatever the log directories say later, the metadata is broker 7's.
    assert await choose_node_id(-1, [directory("/a", 77, None)], store) == 7
    assert await choose_node_id(7, [], store) == 7
    with pytest.raises(ConfigError, match=r"belongs to broker 7, but broker\.id is 8"):
        await choose_node_id(8, [], store)


async def test_the_first_number(store: EmbeddedSession) -> None:
    two = [directory("/a", 1, None), directory("/b", 2, None)]
    with pytest.raises(ConfigError, match="different brokers"):
        await choose_node_id(-1, two, store)
    with pytest.raises(ConfigError, match="/b belongs to broker 2, but this is broker 1"):
        await choose_node_id(1, two, store)
    assert await choose_node_id(2, two[1:], store) == 2  # what was refused left nothing behind


async def test_the_default_number(store: EmbeddedSession) -> None:
    assert await choose_node_id(-1, [directory("/a", None, None)], store) == 1


async def test_the_clusters_id(store: EmbeddedSession) -> None:
    two = [directory("/a", 1, "x"), directory("/b", 1, "y")]
    with pytest.raises(ConfigError, match="different clusters"):
        await choose_cluster_id(store, two)
    assert await choose_cluster_id(store, two[:1]) == "x"
    assert await choose_cluster_id(store, two[1:]) == "x", "it stands in the store now"


def test_new_cluster_ids() -> None:
    made = {new_cluster_id() for _ in range(200)}
    assert len(made) == 200
    assert {len(item) for item in made} == {22}
    assert not any(item.startswith("-") for item in made)


async def test_paths_are_created_once(store: EmbeddedSession) -> None:
    await create_paths(store, ["/x/y/z", "/x/y", "/x/w"])
    await create_paths(store, ["/x/y/z", "/x/v"])
    assert await store.children("/x") == ["v", "w", "y"]
    assert await store.children("/config") == [
        "brokers",
        "changes",
        "clients",
        "ips",
        "topics",
        "users",
    ]
