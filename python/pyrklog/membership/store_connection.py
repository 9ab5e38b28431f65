"""Connects to the broker's metadata store: embedded, or ZooKeeper."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from pyrklog.base.problems import Problem
from pyrklog.config.broker import BrokerConfig
from pyrklog.errors import StartError, TemporaryError
from pyrklog.membership.member import Connect
from pyrklog.metastore.interface import Metastore
from pyrklog.start.standing import check_standing, is_member

if TYPE_CHECKING:
    from pyrklog.metastore.zookeeper import ZooKeeperAddress


@asynccontextmanager
async def store_connection(config: BrokerConfig) -> AsyncIterator[Connect]:
    """Yields what begins sessions with the broker's metadata store.

    Raises :class:`StartError` where it cannot be opened, and :class:`~pyrklog.errors.ConfigError`
    where the directory belongs to a broker of the other kind.
    """
    check_standing(config.log_dirs, config.meta_dir, config.zookeeper)
    if config.zookeeper is not None:
        async with _zookeeper(config, config.zookeeper) as connect:
            yield connect
        return
    from pyrklog.metastore.embedded import open_store

    opened = await open_store(config.meta_dir)

    async def begin() -> Metastore:
        return opened.session()

    try:
        yield begin
    finally:
        await opened.close()


@asynccontextmanager
async def _zookeeper(config: BrokerConfig, connect: str) -> AsyncIterator[Connect]:
    from pyrklog.metastore import zookeeper

    try:
        # The state-change log also lies here in a cluster.
        config.meta_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StartError(
            Problem.DISK_FAILED, f"{config.meta_dir} cannot be made: {error.strerror}."
        ) from None
    address = _address(config, connect)
    if not config.boolean("pyrklog.failover.watchdog"):

        async def begin() -> Metastore:
            with _advice_for_one_alone(config):
                return await zookeeper.connect(address)

        yield begin
        return
    from pyrklog.membership.guard import SessionGuard

    guard = SessionGuard(address)

    async def begin_guarded() -> Metastore:
        with _advice_for_one_alone(config):
            session = await zookeeper.connect(address)
        await guard.watch(session.credentials)
        return session

    async with trio.open_nursery() as nursery:
        nursery.start_soon(guard.run)
        try:
            yield begin_guarded
        finally:
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await guard.dismiss()


@contextmanager
def _advice_for_one_alone(config: BrokerConfig) -> Iterator[None]:
    """Adds advice: Kafka's ``server.properties`` names a ZooKeeper that a single broker does not
    need.

    Only advice: a broker that is alone by mistake would take records that no other broker has.
    """
    try:
        yield
    except TemporaryError as error:
        fix = error.fix or ""
        if fix.endswith("zookeeper.connect") and not is_member(config.log_dirs):
            error.fix = f"{fix}; a broker that is to be alone starts with --set zookeeper.connect="
        raise


def _address(config: BrokerConfig, connect: str) -> ZooKeeperAddress:
    from pyrklog.metastore.zookeeper import ZooKeeperAddress
    from pyrklog.metastore.zookeeper_tls import TlsFiles

    tls = None
    if config.boolean("zookeeper.ssl.client.enable"):
        keystore = _file(config, "zookeeper.ssl.keystore.location")
        tls = TlsFiles(
            ca=_file(config, "zookeeper.ssl.truststore.location"),
            certificate=keystore,
            key=keystore,
            key_password=config.string("zookeeper.ssl.keystore.password"),
            verifies_host=config.string("zookeeper.ssl.endpoint.identification.algorithm")
            is not None,
        )
    return ZooKeeperAddress(
        connect,
        config.integer("zookeeper.session.timeout.ms"),
        config.integer("zookeeper.connection.timeout.ms"),
        config.string("pyrklog.zookeeper.digest"),
        tls,
        config.boolean("zookeeper.set.acl"),
    )


def _file(config: BrokerConfig, option: str) -> str | None:
    """Absolute, since the watchdog has another working directory."""
    given = config.string(option)
    return None if given is None else str(Path(given).expanduser().absolute())
