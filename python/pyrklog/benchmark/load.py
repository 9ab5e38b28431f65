"""What a load does, whichever engine runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Mode(StrEnum):
    PRODUCE = "produce"
    CONSUME = "consume"
    LATENCY = "latency"
    """Paced single records, each measured from when it was due to a consumer that has it."""


class Engine(StrEnum):
    NATIVE = "native"
    LIBRDKAFKA = "librdkafka"
    JAVA = "java"


@dataclass(frozen=True)
class Load:
    """A load on one topic, which exists. Sizes are bytes, times seconds."""

    mode: Mode
    bootstrap: str
    """HOST:PORT of a broker; with the engines librdkafka and java several, with commas."""
    topic: str
    records: int | None = None
    """Ends a producer after so many (native: rounded up to whole batches); a consumer begins so
    many before the end. None: only time ends it, and a consumer reads everything."""
    seconds: float = 60.0
    """Ends it, too."""
    record_bytes: int = 100
    batch_bytes: int = 16_384
    connections: int = 1
    """Producers or consumers."""
    acks: str = "all"
    """0, 1 or all."""
    rate: float | None = None
    """Records a second, of all producers."""
    warmup_seconds: float = 0.0
    """Before measuring."""
    follows: bool = False
    """A consumer that stays at the end until its standard input ends."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Of the client, as the engine's clients have them; native takes none."""
