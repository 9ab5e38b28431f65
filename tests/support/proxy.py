from dataclasses import dataclass

from tests.support.watching_proxy import Passing, WatchingProxy


@dataclass(frozen=True)
class Frame:
    """One request without its 4-byte length; ``label`` is the proxy's at that time."""

    label: str
    api_key: int
    version: int
    payload: bytes


class CapturingProxy(WatchingProxy):
    def __init__(self, target: str, port: int) -> None:
        super().__init__(target, port, self._keep, early=True)
        self.frames: list[Frame] = []
        self.label = ""

    def _keep(self, passing: Passing) -> None:
        if passing.is_request:
            frame = Frame(self.label, passing.api_key, passing.version, passing.payload)
            self.frames.append(frame)
