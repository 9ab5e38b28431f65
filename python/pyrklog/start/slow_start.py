"""Shows the log of a slow start: lines are otherwise held back until the broker is ready."""

from __future__ import annotations

from collections.abc import Callable

import trio

from pyrklog.base import logs
from pyrklog.cluster.metadata import Metadata

PATIENCE_SECONDS = 5.0

log = logs.get_logger("broker")


async def tell_slow_start(
    ready: trio.Event,
    registered: trio.Event,
    metadata: Metadata,
    controller_id: Callable[[], int],
) -> None:
    """Starts to write log lines when the broker is not ready in time.

    Also warns where the controller has told this broker nothing since it was registered: most
    often without the listener between brokers. Before that the number may be another's.
    """
    with trio.move_on_after(PATIENCE_SECONDS):
        await ready.wait()
        return
    await trio.to_thread.run_sync(logs.load)
    logs.ensure_configured()
    if not registered.is_set():
        await registered.wait()
        with trio.move_on_after(PATIENCE_SECONDS):
            await ready.wait()
            return
    if not metadata.image.brokers:
        log.warning(
            "waiting_for_controller",
            controller=controller_id(),
            listener=metadata.config.listeners.inter_broker,
            fix="look at the controller's log; if it says that this broker's address is not known, "
            "give this broker the listener that the others have in inter.broker.listener.name, or "
            "another chroot if it is to be a cluster of its own",
        )
