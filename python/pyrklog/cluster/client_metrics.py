"""Options of client metrics (KIP-714) as the metadata store has them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from pyrklog.base.logs import get_logger
from pyrklog.metastore import znodes
from pyrklog.metastore.interface import Metastore, Node, NoNodeError
from pyrklog.plane.core_plane import Plane

Read = Callable[[Sequence[str]], Awaitable[list[Node | None]]]

log = get_logger("metadata")


class ClientMetricsOptions:
    """Options of each CLIENT_METRICS resource, by its name."""

    def __init__(self, store: Metastore, read: Read, plane: Plane) -> None:
        self.options: dict[str, Mapping[str, str]] = {}
        self.version = 0
        """Grows with each change."""
        self._store = store
        self._read = read
        self._plane = plane

    async def load_all(self) -> None:
        try:
            nodes = await self._store.children(znodes.CONFIG_CLIENT_METRICS)
        except NoNodeError:
            nodes = []  # the store of an earlier version
        named = {znodes.client_metrics_name(node) for node in nodes}
        gone = [name for name in self.options if name not in named]
        await self.load([*named, *gone])

    async def load(self, names: Sequence[str]) -> None:
        """Reads these anew; those without a node are forgotten."""
        paths = [znodes.client_metrics_path(name) for name in names]
        for name, path, node in zip(names, paths, await self._read(paths), strict=True):
            options: Mapping[str, str] = {}
            if node is not None:
                try:
                    options = znodes.decode_config(path, node.data)
                except znodes.ZnodeError as error:
                    log.error("bad_znode", reason=str(error))
            if options != self.options.get(name, {}):
                self.version += 1
            if options:
                self.options[name] = options
            else:
                self.options.pop(name, None)
        self._plane.offer_client_metrics(is_on=bool(self.options))
