"""The embedded store's own promises: the state after a restart, and errors for bad files."""

import errno
import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from pyrklog.errors import ConfigError, StartError, TemporaryError
from pyrklog.metastore.database import Database, DiskFullError
from pyrklog.metastore.embedded import EmbeddedStore, open_store
from pyrklog.metastore.interface import Create, Set, StoreFailedError


async def test_persistent_nodes_survive_and_ephemeral_ones_do_not(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    session = store.session()
    await session.create("/a", b"kept")
    await session.set("/a", b"changed")
    await session.create("/a/e", b"gone", ephemeral=True)
    await session.create("/a/s_", b"kept", sequence=True)
    before = await session.get("/a")
    await store.close()

    store = await open_store(tmp_path)
    session = store.session()
    assert await session.get("/a") == before
    # The ephemeral node took number 0, which was released only in memory.
    assert await session.children("/a") == ["s_0000000001"]
    assert await session.create("/a/s_", sequence=True) == "/a/s_0000000002"
    await session.create("/later")
    later = await session.exists("/later")
    assert later is not None
    assert later.czxid > before.stat.mzxid
    await store.close()


async def test_a_process_that_dies_loses_nothing_acknowledged(
    tmp_path: Path, store: EmbeddedStore
) -> None:
    """A copy of the open files is what kill -9 leaves."""
    session = store.session()
    for number in range(50):
        await session.create(f"/n{number}", str(number).encode())
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in (tmp_path / "meta").iterdir():
        if file.name != "lock":
            (copy / file.name).write_bytes(file.read_bytes())
    reopened = await open_store(copy)
    found = reopened.session()
    assert len(await found.children("/")) == 50
    assert (await found.get("/n49")).data == b"49"
    await reopened.close()


async def test_zxids_never_repeat_though_only_ephemerals_were_made(tmp_path: Path) -> None:
    zxids, sessions = set(), set()
    for _ in range(3):
        store = await open_store(tmp_path)
        session = store.session()
        await session.create("/e", ephemeral=True)
        stat = await session.exists("/e")
        assert stat is not None
        zxids.add(stat.czxid)
        sessions.add(session.session_id)
        await store.close()
    assert (len(zxids), len(sessions)) == (3, 3)


async def test_second_broker_learns_which_process_holds_the_directory(store: EmbeddedStore) -> None:
    # fcntl locks belong to a process, so the second holder must be another process.
    program = (
        "import sys, pathlib\n"
        "from pyrklog.metastore.database import Database\n"
        "try: Database(pathlib.Path(sys.argv[1]))\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    directory = store._database._directory
    done = await trio.run_process(
        [sys.executable, "-c", program, str(directory)],
        capture_stdout=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout.decode().startswith(TemporaryError.__name__)
    assert f"pid {os.getpid()}" in done.stdout.decode()


def _database_file(directory: Path) -> Path:
    return directory / "store.db"


async def _filled(directory: Path) -> None:
    store = await open_store(directory)
    await store.session().create("/topic", b'{"version":3}')
    await store.close()


async def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    await _filled(tmp_path)
    connection = sqlite3.connect(_database_file(tmp_path))
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(ConfigError, match="newer pyrklog"):
        await open_store(tmp_path)


async def test_a_foreign_database_is_refused_untouched(tmp_path: Path) -> None:
    connection = sqlite3.connect(_database_file(tmp_path))
    connection.execute("CREATE TABLE theirs (x)")
    connection.commit()
    connection.close()
    before = _database_file(tmp_path).read_bytes()
    with pytest.raises(ConfigError, match="another program"):
        await open_store(tmp_path)
    assert _database_file(tmp_path).read_bytes() == before


async def test_file_other_than_a_database_is_refused(tmp_path: Path) -> None:
    _database_file(tmp_path).write_bytes(b"not sqlite at all" * 100)
    with pytest.raises(StartError, match="cannot be read") as refused:
        await open_store(tmp_path)
    assert refused.value.exit_code == 74


async def test_a_flipped_bit_is_found(tmp_path: Path) -> None:
    await _filled(tmp_path)
    raw = _database_file(tmp_path).read_bytes()
    assert raw.count(b'{"version":3}') == 1
    _database_file(tmp_path).write_bytes(raw.replace(b'{"version":3}', b'{"version":2}'))
    with pytest.raises(StartError, match="checksum of /topic"):
        await open_store(tmp_path)


async def test_a_lost_parent_is_found(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    session = store.session()
    await session.create("/a")
    await session.create("/a/b")
    await store.close()
    connection = sqlite3.connect(_database_file(tmp_path))
    connection.execute("DELETE FROM node WHERE path = '/a'")
    connection.commit()
    connection.close()
    with pytest.raises(StartError, match="/a is missing"):
        await open_store(tmp_path)


async def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="Cannot create the metadata directory"):
        await open_store(tmp_path / "file" / "meta")


async def test_a_lock_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    with pytest.raises(StartError, match=r"Cannot open .*lock: Is a directory") as caught:
        await open_store(tmp_path)
    assert caught.value.fix is not None


@pytest.fixture
def foreign() -> Iterator[Path]:
    """A folder open to all users; a test may drop root."""
    folder = Path(tempfile.mkdtemp(prefix="pyrklog-test-"))
    folder.chmod(0o777)
    before = os.geteuid()
    yield folder
    os.seteuid(before)
    shutil.rmtree(folder)


@pytest.mark.parametrize("mode", [0o000, 0o400])
async def test_a_store_of_another_user_is_not_called_damaged(foreign: Path, mode: int) -> None:
    await _filled(foreign)
    (foreign / "lock").chmod(0o666)
    _database_file(foreign).chmod(mode)
    if os.geteuid() == 0:
        _database_file(foreign).chmod(0o600 if mode == 0 else 0o644)
        os.seteuid(65534)
    with pytest.raises(ConfigError, match=r"Cannot open .*store\.db: Permission denied") as caught:
        await open_store(foreign)
    assert caught.value.exit_code == 78
    assert caught.value.fix is not None
    assert "make it writable for this user" in caught.value.fix


async def test_a_disk_that_is_full_at_the_first_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_arguments: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StartError, match=r"No space is left for the metadata store") as caught:
        await open_store(tmp_path)
    assert caught.value.exit_code == 74
    assert str(_database_file(tmp_path)) in caught.value.what
    monkeypatch.undo()
    await _filled(tmp_path)  # the failed one holds no lock


async def test_a_full_disk_refuses_and_goes_on(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = store.session()
    await session.create("/a")

    def full(_self: Database, _changes: object) -> None:
        raise DiskFullError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(Database, "commit", full)
        with pytest.raises(StoreFailedError, match="no space left"):
            await session.create("/b")
    assert await session.exists("/b") is None
    await session.create("/b")


async def test_a_failed_write_poisons_until_restart(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = store.session()

    def failing(_self: Database, _changes: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patched:
        patched.setattr(Database, "commit", failing)
        with pytest.raises(StoreFailedError, match="disk I/O error"):
            await session.create("/b")
    with pytest.raises(StoreFailedError, match="needs a restart"):
        await session.create("/c")
    assert await session.children("/") == []


async def test_transactions_that_wait_together_share_a_commit(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = 0
    commit = Database.commit

    def counted(self: Database, changes: object) -> None:
        nonlocal commits
        commits += 1
        commit(self, changes)  # type: ignore[arg-type]

    monkeypatch.setattr(Database, "commit", counted)

    async def write(number: int) -> None:
        await store.session().create(f"/n{number}")

    async with trio.open_nursery() as nursery:
        for number in range(100):
            nursery.start_soon(write, number)
    assert commits <= 3
    assert len(await store.session().children("/")) == 100


async def test_a_cancelled_write_is_all_or_nothing(store: EmbeddedStore) -> None:
    session = store.session()
    with trio.CancelScope() as scope:
        scope.cancel()
        await session.multi([Create("/a"), Create("/b"), Set("/a", b"1")])
    assert await session.children("/") in ([], ["a", "b"])
    await session.create("/c")
    assert await session.children("/") in (["c"], ["a", "b", "c"])
