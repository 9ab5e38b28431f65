"""Brokers in controlled shutdown, as the controller's broker knows them."""

from pathlib import Path

import trio
import trio.testing

from pyrklog.metastore import znodes
from pyrklog.metastore.embedded import open_store
from pyrklog.start.identity import create_paths
from tests.unit.controller.stage import Cluster


async def test_brokers_that_are_about_to_end_are_known(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    store = await open_store(tmp_path / "meta")
    await create_paths(store.session(), znodes.PERSISTENT_PATHS)
    cluster = Cluster(store, tmp_path)
    for broker in (1, 2):
        await cluster.register(broker)
    driver = cluster.driver(1)
    assert list(driver.leaving) == []
    await nursery.start(driver.run)
    assert await driver.perform(lambda machine: machine.controlled_shutdown.shut_down(2, []))
    assert list(driver.leaving) == [2]
    await cluster.sessions[2].close()
    with trio.fail_after(10):
        while driver.leaving:
            await trio.testing.wait_all_tasks_blocked(0.01)
    nursery.cancel_scope.cancel()
    cluster.state_log.close()
    await store.close()
