"""The Java client: one virtual machine that does what Python says (``Rows.java``)."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.support import jvm
from tests.support.waiting import PATIENCE_S, wait_until

_PROGRAM = Path(__file__).parents[1] / "acceptance" / "Rows.java"
_POLL_MS = 100
_names = itertools.count()


class JavaThrew(Exception):
    """An exception of the Java client; ``kind`` is its class without the package."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


class JavaRecord(NamedTuple):
    offset: int
    timestamp_ms: int
    leader_epoch: int | None
    key: str | None
    value: str | None


class JavaMachine:
    def __init__(self, folder: Path) -> None:
        """``folder`` gets the machine's log."""
        self.log = folder / "java.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                jvm.command(str(_PROGRAM)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def call(self, operation: str, **arguments: Any) -> Any:
        """Raises :class:`JavaThrew`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"operation": operation, **arguments}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the virtual machine has ended:\n{self.log.read_text()}"
        answer = json.loads(line)
        if "thrown" in answer:
            raise JavaThrew(answer["thrown"], answer["message"])
        return answer["result"]

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)
        self._process.stdout.close()

    def list_offset(
        self, bootstrap: str, topic: str, spec: str | int, *, isolation: str = "READ_UNCOMMITTED"
    ) -> tuple[int, int]:
        """Offset and timestamp in partition 0; ``spec``: earliest, latest, max or a timestamp."""
        offset, timestamp, _ = self.call(
            "listOffset",
            bootstrap=bootstrap,
            topic=topic,
            partition=0,
            spec=str(spec),
            isolation=isolation,
        )
        return offset, timestamp

    def move_leader(self, bootstrap: str, topic: str, replicas: Sequence[int]) -> None:
        """Makes the first of these replicas the leader of partition 0."""
        place = {"bootstrap": bootstrap, "topic": topic, "partition": 0}
        self.call("reassign", **place, replicas=replicas)
        wait_until(lambda: not self.call("isMoving", **place), "the reassignment does not end")
        try:
            self.call("electPreferred", **place)
        except JavaThrew as thrown:
            if thrown.kind != "ElectionNotNeededException":
                raise


class JavaProducer:
    """The context manager closes it."""

    def __init__(self, java: JavaMachine, bootstrap: str, **options: object) -> None:
        """``options`` are the client's, with "_" for "."."""
        self._java = java
        self._name = f"producer-{next(_names)}"
        self.call("openProducer", options=_options(bootstrap, options))

    def call(self, operation: str, **arguments: Any) -> Any:
        return self._java.call(operation, name=self._name, **arguments)

    def send(
        self,
        topic: str,
        values: Sequence[str],
        stamps_ms: Sequence[int | None] | None = None,
        *,
        apart: bool = False,
        partition: int = 0,
    ) -> list[int]:
        """The records' offsets; ``apart``: each in a batch of its own."""
        records = list(zip(values, stamps_ms or [None] * len(values), strict=True))
        found: list[int] = self.call(
            "send", topic=topic, partition=partition, records=records, apart=apart
        )
        return found

    def send_offset(self, consumer: JavaConsumer, topic: str, offset: int) -> None:
        """To the transaction, for the consumer's group and partition 0."""
        self.call("sendOffset", consumer=consumer.name, topic=topic, partition=0, offset=offset)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.call("closeProducer")


class JavaConsumer:
    """Of partition 0 of a topic, or a member of a group (``tests.support.groups.Member``)."""

    def __init__(
        self,
        java: JavaMachine,
        bootstrap: str,
        topic: str,
        *,
        group: str | None = None,
        **options: object,
    ) -> None:
        """With a group it subscribes. ``options`` are the client's, with "_" for "."."""
        self._java = java
        self._topic = topic
        self.name = f"consumer-{next(_names)}"
        own = {"enable.auto.commit": "false", "auto.offset.reset": "earliest"}
        if group is not None:
            own["group.id"] = group
        settings = {**own, **_options(bootstrap, options)}
        partition = 0 if group is None else None
        self._call("openConsumer", partition=partition, options=settings)

    def _call(self, operation: str, partition: int | None = 0, **arguments: Any) -> Any:
        place = {"topic": self._topic, "partition": partition}
        return self._java.call(operation, name=self.name, **place, **arguments)

    def records(self) -> list[JavaRecord]:
        """What arrived shortly."""
        return [JavaRecord(*fields) for fields in self._call("poll", ms=_POLL_MS)]

    def read(self, count: int) -> list[JavaRecord]:
        """Waits for so many records at least."""
        found: list[JavaRecord] = []

        def has_read() -> bool:
            found.extend(self.records())
            return len(found) >= count

        wait_until(has_read, lambda: f"{len(found)} of {count} records: {found[-5:]}")
        return found

    def seek(self, offset: int, epoch: int | None = None) -> None:
        self._call("seek", offset=offset, epoch=epoch)

    def seek_to(self, edge: str) -> int:
        """``edge`` is End or Beginning; returns the position."""
        found: int = self._call(f"seekTo{edge}")
        return found

    def position(self) -> int:
        found: int = self._call("position")
        return found

    def lag(self) -> int | None:
        found: int | None = self._call("lag")
        return found

    def offsets_for_times(self, times_ms: Sequence[int]) -> list[tuple[int, int] | None]:
        """Offset and timestamp for each."""
        found = self._call("offsetsForTimes", times=times_ms)
        return [None if one is None else (one[0], one[1]) for one in found]

    # --- as a member -----------------------------------------------------------------------------

    @property
    def events(self) -> list[Any]:
        """Of the rebalance listener: what, and partitions."""
        found: list[Any] = self._call("events")
        return found

    def poll(self) -> list[str]:
        return [record.value or "" for record in self.records()]

    def assigned(self) -> list[int]:
        found: list[int] = self._call("assignment")
        return found

    def commit(self, offsets: Mapping[int, int], note: str) -> None:
        for partition, offset in offsets.items():
            self._call("commit", partition=partition, offset=offset, note=note)

    def committed(self, partition: int) -> tuple[int, str] | None:
        found = self._call("committed", partition=partition)
        return None if found is None else (found[0], found[1])

    def close(self) -> None:
        self._call("closeConsumer")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _options(bootstrap: str, options: Mapping[str, object]) -> dict[str, str]:
    named = {name.replace("_", "."): str(value) for name, value in options.items()}
    return {"bootstrap.servers": bootstrap, **named}
