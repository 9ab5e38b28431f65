"""A whole broker in this process; only the plane is fake."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from pyrklog.broker import Broker
from pyrklog.config.load import load_config
from pyrklog.errors import ErrorCode
from pyrklog.handlers.service import ClusterService, TopicResult, TopicSpec
from pyrklog.plane.seam import FoundPartition, PlaneSettings
from pyrklog.testing.fake_plane import FakePlane


class Running:
    def __init__(self, broker: Broker, plane: FakePlane, service: ClusterService) -> None:
        self.broker = broker
        self.plane = plane
        self.service = service
        self.exit_code: int | None = None
        self.crashes = False
        """A test sets it to end the broker without a shutdown."""

    async def create(self, *specs: TopicSpec, timeout_ms: int = 10_000) -> list[TopicResult]:
        return await self.service.create_topics(
            list(specs), validate_only=False, timeout_ms=timeout_ms
        )

    async def created(self, name: str, partitions: int = 1, **configs: str) -> TopicResult:
        """Creates a topic; option names have underscores for dots."""
        options: dict[str, str | None] = {k.replace("_", "."): v for k, v in configs.items()}
        (result,) = await self.create(TopicSpec(name, partitions, configs=options))
        assert result.error is ErrorCode.NONE, result.message
        return result


@asynccontextmanager
async def running_broker(
    directory: Path, *overrides: str, found: Sequence[FoundPartition] = ()
) -> AsyncIterator[Running]:
    """Starts a broker over ``directory``; shuts it down at the end."""
    config = load_config(
        flags={
            "pyrklog.data.dir": str(directory),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "pyrklog.http.listener": "none",
        },
        overrides=overrides,
    )
    planes: list[FakePlane] = []

    def make_plane(settings: PlaneSettings) -> FakePlane:
        planes.append(FakePlane(settings, found))
        return planes[-1]

    broker = Broker(config, make_plane)
    async with trio.open_nursery() as nursery:
        codes: list[int] = []

        async def run() -> None:
            codes.append(await broker.run())

        nursery.start_soon(run)
        with trio.fail_after(30):
            await broker.ready.wait()
        assert broker.service is not None
        running = Running(broker, planes[0], broker.service)
        yield running
        if running.crashes:
            nursery.cancel_scope.cancel()
        else:
            broker.stop()
            planes[0].release_tickets()
    running.exit_code = codes[0] if codes else None
