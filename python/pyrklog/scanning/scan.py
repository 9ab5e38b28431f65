"""``pyrklog.scan``: a bounded read of topics, as a stream of Arrow record batches."""

from __future__ import annotations

import ctypes
import os
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from pyrklog.base.internal_topics import OF_PYRKLOG
from pyrklog.scanning.arguments import (
    bad_topic,
    check,
    core_bootstrap,
    core_ids,
    core_topics,
    milliseconds,
    refuse_other_lists,
    refuse_read,
)
from pyrklog.scanning.core_scan import (
    CoreScan,
    ScanClosedError,
    UnknownTopicError,
    open_scan,
    topic_names,
)
from pyrklog.scanning.decoding import core_decode, names
from pyrklog.scanning.keywords import hinting
from pyrklog.scanning.places import EARLIEST, LATEST, Places, core_places
from pyrklog.scanning.settings import ScanSettings
from pyrklog.security import Security, security_of

if TYPE_CHECKING:
    import pyarrow

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""The columns of a scan unless others are named; ``headers`` is the only other one."""

_THREADS_DEFAULT_MAX = 4
_ISOLATIONS = ("read_committed", "read_uncommitted")
_MISSING = ("fail", "skip")
_UNANSWERED = ("fail", "leave")

Topics = str | Sequence[str] | Mapping[str, Sequence[int] | None] | re.Pattern[str]
"""A topic, several, or the partitions to read of each; None for all. A pattern is for whole
names."""


class PartitionProgress(NamedTuple):
    """How far a scan is in a partition, by the batches that were taken from it.

    ``position`` is the offset to go on at, ``leader_epoch`` that of the record before it (-1
    unknown): as a pair they are a start that notices a truncated log. ``bytes`` counts record
    batches as they were fetched. ``skipped`` counts offsets that were deleted before they were
    read. ``bad`` counts values that did not fit the schema (``decode``).
    """

    topic: str
    partition: int
    start: int
    position: int
    end: int
    leader_epoch: int
    records: int
    bytes: int
    skipped: int
    bad: int = 0


class LeftOut(NamedTuple):
    """A partition that a scan goes on without, and why."""

    topic: str
    partition: int
    reason: str


class Batch:
    """One record batch, for ``pyarrow.record_batch(batch)`` and whatever else takes Arrow's
    PyCapsules. It is given away once."""

    def __init__(self, schema: object, array: object) -> None:
        self._capsules = (schema, array)

    def __repr__(self) -> str:
        length = _length(self._capsules[1])
        if length is None:
            return "<pyrklog Batch, given away>"
        rows = "1 row" if length == 1 else f"{length} rows"
        return f"<pyrklog Batch of {rows}: pyarrow.record_batch(batch) takes it>"

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """(schema, array) capsules; a requested schema is left to the consumer, as the protocol
        allows."""
        return self._capsules


class _ArrowArray(ctypes.Structure):
    """Of Arrow's C data interface."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("length", "nulls", "offset", "buffers", "children")),
        *((name, ctypes.c_void_p) for name in ("buffer", "child", "dictionary", "release", "data")),
    )


_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def _length(array: object) -> int | None:
    """Rows of an array's capsule; None once a consumer has taken it."""
    found = _ArrowArray.from_address(_pointer_of(array, b"arrow_array"))
    return int(found.length) if found.release else None


class Scan:
    """A planned scan: what it will read is fixed, and nothing is read before it is asked for.

    Read it once: by iterating over it, by :meth:`next_batch`, by :meth:`reader` (pyarrow), or by
    ``__arrow_c_stream__`` (``polars.DataFrame(scan)``, DuckDB). A consumer of the stream raises
    exceptions of its own with the text of ours, and :attr:`error` has ours; the others raise those
    of :mod:`pyrklog.scanning`. Closing a scan, dropping it or the stream's consumer ends its
    threads.
    """

    def __init__(self, core: CoreScan) -> None:
        self._core = core
        self._has_reader = False
        self._has_ended = False
        self._is_closed = False

    def __arrow_c_schema__(self) -> object:
        """The schema's capsule."""
        return self._core.schema_capsule()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The stream's capsule, once: raises ScanClosedError when the scan was read already. A
        requested schema is left to the consumer, as the protocol allows."""
        self._refuse_read()
        return self._core.stream_capsule()

    def reader(self) -> pyarrow.RecordBatchReader:
        """The scan as pyarrow's reader: ``reader().read_all()`` is a table.

        It raises what iterating raises, and closes the scan when it is closed or dropped. Raises
        ScanClosedError when called twice, and ImportError, with what to install, without pyarrow;
        the scan can then still be read otherwise.
        """
        try:
            import pyarrow
        except ImportError as error:
            raise ImportError(
                "Scan.reader() needs pyarrow, which is not installed: pip install pyarrow"
            ) from error
        if self._has_reader:
            raise ScanClosedError("the scan has a reader already: open another one")
        self._refuse_read()
        self._has_reader = True
        # Not by the C stream, which can carry neither our exceptions nor Ctrl-C.
        batches = self._batches(pyarrow.record_batch)
        return pyarrow.RecordBatchReader.from_batches(pyarrow.schema(self), batches)

    def _batches(self, take: Callable[[Batch], object]) -> Iterator[object]:
        try:
            for batch in self:
                yield take(batch)
        finally:
            self.close()

    def _refuse_read(self) -> None:
        """A second reading would look as if there were no records, and so would one of a closed
        scan."""
        if self._has_ended:
            raise ScanClosedError("the scan was read already, to its end: open another one")
        if self._is_closed:
            raise ScanClosedError("the scan was closed: open another one")

    def __iter__(self) -> Iterator[Batch]:
        """The scan itself, which goes on where it is. Raises ScanClosedError when it was read to
        its end."""
        self._refuse_read()
        return self

    def __next__(self) -> Batch:
        """The next batch. Waits without the GIL; Ctrl-C ends the wait and the scan."""
        batch = self._next(None)
        if batch is None:
            raise StopIteration
        return batch

    def next_batch(self, timeout_s: float) -> Batch | None:
        """The next batch, if it comes in time; None otherwise, and at the end, which
        :attr:`has_ended` tells apart. Raises what iterating raises."""
        self._refuse_read()
        return self._next(milliseconds("timeout_s", timeout_s))

    def _next(self, most_ms: int | None) -> Batch | None:
        capsules, has_ended = self._core.next_batch(most_ms)
        if has_ended and self._is_closed and not self._has_ended:
            # Batches that nobody took are gone: this is not the end of the records.
            raise ScanClosedError("the scan was closed")
        self._has_ended |= has_ended
        return None if capsules is None else Batch(*capsules)

    @property
    def has_ended(self) -> bool:
        """Whether all was read."""
        return self._has_ended

    def progress(self) -> list[PartitionProgress]:
        """Of each partition, in the order in which the topics were given."""
        rows = zip(self._core.splits(), self._core.progress(), strict=True)
        return [
            PartitionProgress(topic, partition, start, position, end, *figures)
            for (topic, partition, _, start, end), (position, *figures) in rows
        ]

    @property
    def topic_ids(self) -> dict[str, str]:
        """Ids by topic, as Kafka writes them; without those of brokers before 2.8, which have none.
        The scan fails if it meets another one."""
        return {
            topic: urlsafe_b64encode(topic_id).decode().rstrip("=")
            for topic, _, topic_id, *_ in self._core.splits()
            if any(topic_id)
        }

    @property
    def left_out(self) -> list[LeftOut]:
        """Partitions whose leaders have not answered so far (``unanswered="leave"``). One that did
        not answer when the scan was planned has no row in :meth:`progress`."""
        return [LeftOut(*row) for row in self._core.left_out()]

    @property
    def error(self) -> Exception | None:
        """The exception that ended the scan, if one did."""
        return self._core.failure()

    def close(self) -> None:
        """Ends the scan; may be called twice, and from any thread."""
        self._is_closed = True
        self._core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@hinting
def scan(
    topics: Topics,
    start: Places = "earliest",
    end: Places = "latest",
    columns: Sequence[str] | None = None,
    *,
    topic_ids: Mapping[str, str] | None = None,
    decode: str | None = None,
    schema: object = None,
    fields: Sequence[str] | None = None,
    on_bad: str = "null",
    bad_records: str | None = None,
    writer_schema: object = None,
    registry: str | None = None,
    message: str | None = None,
    framed: bool = False,
    bootstrap_servers: str | None = None,
    security: Security | Mapping[str, object] | None = None,
    isolation: str = "read_committed",
    missing: str = "fail",
    unanswered: str = "fail",
    client_id: str = "pyrklog-scan",
    rack: str = "",
    threads: int | None = None,
    batch_rows: int = 65_536,
    batch_bytes: int = 8 << 20,
    memory_bytes: int = 128 << 20,
    large_bytes: int = 100 << 20,
    timeout_s: float = 60.0,
    request_timeout_s: float = 30.0,
    connect_timeout_s: float = 10.0,
    check_crcs: bool = True,
) -> Scan:
    """Plans to read ``topics`` from ``start`` up to, and without, ``end``.

    Asks the cluster which offsets these are now, and returns; see ``docs/understanding/scan.md``
    for what is promised. ``columns`` names those to build, in order; others cost nothing.
    ``topic_ids`` of topics seen before (:attr:`Scan.topic_ids`) refuse others of the name.
    ``bootstrap_servers`` is ``HOST[:PORT]``, several with commas; None takes the environment's
    ``PYRKLOG_BOOTSTRAP``, else 127.0.0.1:9092. ``security`` has options of TLS and SASL by
    librdkafka's or Java's names, such as ``{"security.protocol": "SSL", "ssl.ca.location":
    "ca.pem"}``; None for plain text. ``isolation`` is ``read_committed`` or ``read_uncommitted``.
    ``missing`` says what happens if records at the start are deleted: ``fail``, or ``skip`` to the
    first that is left. ``rack`` reads from a replica there if brokers allow it. ``threads`` decode,
    one a processor by default, at most 4. A batch has at most ``batch_rows`` rows and about
    ``batch_bytes``. All that is fetched, decoded and not taken stays within ``memory_bytes``,
    besides one batch of up to ``large_bytes`` and its expansion of as many. A partition may be
    without progress for ``timeout_s``: then the scan fails, or leaves it out (``unanswered``).

    ``decode="json"`` makes ``value`` a struct of ``schema``'s fields: a pyarrow schema or what else
    has ``__arrow_c_schema__``; None or ``infer`` takes one from the first thousand values.
    ``fields`` names those to decode. A value that does not fit is null, has no row (``drop``), or
    ends the scan (``fail``), as ``on_bad`` says; ``bad_records`` names a topic to which its record
    is written, with its place and the reason in headers, before the batch with its row is given.
    ``decode="avro"`` takes ``schema`` as Avro's JSON: the columns wanted. ``writer_schema`` is what
    the values were written with, if it is another one; with ``registry``, ``http://HOST:PORT``,
    each value names its own. ``decode="protobuf"`` takes ``schema`` as a set of file descriptors,
    and ``message``, a full name; ``framed`` values have a registry's frame.

    Raises ValueError or TypeError for an argument, and the exceptions of :mod:`pyrklog.scanning`.
    """
    read = [] if isinstance(topics, re.Pattern) else core_topics(topics)
    refuse_other_lists(columns=columns, fields=fields)
    settings = ScanSettings(
        bootstrap_servers=core_bootstrap(_bootstrap(bootstrap_servers)),
        client_id=client_id,
        topics=read,
        topic_ids=core_ids(topic_ids),
        start=EARLIEST,
        end=LATEST,
        starts=[],
        ends=[],
        columns=_columns(columns),
        decode=core_decode(
            decode, schema, fields, on_bad, writer_schema, registry, message, framed
        ),
        bad_records=bad_topic(bad_records, decode, on_bad),
        isolation=_one_of("isolation", isolation, _ISOLATIONS),
        rack=rack,
        missing=_one_of("missing", missing, _MISSING),
        unanswered=_one_of("unanswered", unanswered, _UNANSWERED),
        threads=_threads() if threads is None else threads,
        batch_rows=batch_rows,
        batch_bytes=batch_bytes,
        memory_bytes=memory_bytes,
        large_bytes=large_bytes,
        timeout_ms=milliseconds("timeout_s", timeout_s),
        request_timeout_ms=milliseconds("request_timeout_s", request_timeout_s),
        connect_timeout_ms=milliseconds("connect_timeout_s", connect_timeout_s),
        check_crcs=check_crcs,
        security=_security(security).core(),
    )
    check(settings, decode, on_bad)
    return _opened(settings, topics, start, end)


def _opened(settings: ScanSettings, topics: Topics, start: Places, end: Places) -> Scan:
    read = settings.topics
    if isinstance(topics, re.Pattern):
        read = core_topics(_matching(topics, settings))
    refuse_read(settings.bad_records, read)
    first, starts = core_places(start, read, EARLIEST)
    last, ends = core_places(end, read, LATEST)
    settings = settings._replace(topics=read, start=first, end=last, starts=starts, ends=ends)
    return Scan(open_scan(settings))


def _matching(pattern: re.Pattern[str], settings: ScanSettings) -> list[str]:
    """Topics of the cluster. Raises UnknownTopicError if none matches."""
    if not isinstance(pattern.pattern, str):
        raise TypeError(f"topics is {pattern!r}; a pattern is of a text, not of bytes")
    names = (name for name in topic_names(settings) if name not in OF_PYRKLOG)
    found = [name for name in names if pattern.fullmatch(name)]
    if not found:
        raise UnknownTopicError(f"no topic matches {pattern.pattern!r}")
    return found


def _security(given: Security | Mapping[str, object] | None) -> Security:
    return given if isinstance(given, Security) else security_of(given or {})


def _bootstrap(given: str | None) -> str:
    """None as of the commands."""
    if given is None:
        return os.environ.get("PYRKLOG_BOOTSTRAP") or "127.0.0.1:9092"
    return given


def _columns(columns: Sequence[str] | None) -> list[str]:
    named = names("columns", columns)
    return list(COLUMNS) if named is None else named


def _one_of(name: str, value: str, known: Sequence[str]) -> str:
    if value not in known:
        raise ValueError(f"unknown {name} {value!r}; it can be {' or '.join(known)}")
    return value


def _threads() -> int:
    return min(len(os.sched_getaffinity(0)), _THREADS_DEFAULT_MAX)
