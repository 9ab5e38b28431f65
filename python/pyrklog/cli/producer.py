import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import typer

from pyrklog.base.problems import Problem
from pyrklog.cli.connection import Connection
from pyrklog.cli.deeds import is_document, tell_done
from pyrklog.cli.failures import (
    CliError,
    cli_error,
    counted,
    problem_of,
    refuse_non_text,
    unread,
)
from pyrklog.cli.interrupts import held
from pyrklog.cli.options import Settings
from pyrklog.cli.records import BadLineError, Headers, InputRecord, from_json
from pyrklog.cli.schemas import NO_ENCODERS, Encoders

ANY_PARTITION = -1
DRAIN_S = 0.5
LINGER_MS = 5
CREATED_WITHIN_S = 2.0
"""Longest wait for a broker that creates topics."""
LOOK_AGAIN_S = 0.1


def argument_bytes(value: str) -> bytes:
    """An argument's own bytes, which need not be UTF-8."""
    return value.encode("utf-8", "surrogateescape")


def parse_headers(headers: list[str]) -> Headers:
    """Parses ``K=V`` texts. Raises :class:`CliError` for one without ``=``."""
    found: list[tuple[str, bytes | None]] = []
    for header in headers:
        name, equals, value = header.partition("=")
        refuse_non_text(name)
        if not equals:
            fix = f"`-H {name}=` for an empty value; `produce -f jsonl` writes a null one"
            raise CliError(Problem.ARGUMENT_VALUE, f"-H takes K=V, not {header!a}", fix)
        found.append((name, argument_bytes(value)))
    return tuple(found)


def read_lines(source: Path | None) -> Iterator[bytes]:
    """Lines of a file or of standard input, without their ends. Opens the file at once, before a
    broker is asked for anything."""
    try:
        stream: BinaryIO = source.open("rb") if source is not None else sys.stdin.buffer
    except OSError as error:
        raise unread(source, error) from None
    return _lines_of(stream, is_typed=source is None and sys.stdin.isatty())


def _lines_of(stream: BinaryIO, *, is_typed: bool) -> Iterator[bytes]:
    if is_typed:
        typer.echo("one record a line; end with Ctrl-D", err=True)
    with stream:
        for line in stream:
            yield line.removesuffix(b"\n")


class LineReader:
    def __init__(
        self,
        template: InputRecord,
        *,
        key_delimiter: bytes = b"",
        empty_is_null: bool = False,
        json_lines: bool = False,
        encoders: Encoders = NO_ENCODERS,
    ) -> None:
        self._template = template
        self._delimiter = key_delimiter
        self._empty_is_null = empty_is_null
        self._json_lines = json_lines
        self._encoders = encoders
        self.number = 0
        """Of the line that was read last."""

    def records(self, lines: Iterable[bytes]) -> Iterator[InputRecord]:
        for number, line in enumerate(lines, start=1):
            self.number = number
            try:
                if not self._json_lines:
                    self._refuse_without_key(number, line)
                    yield self._plain(line)
                elif line.strip():
                    yield self._from_json(line)
            except BadLineError as error:
                raise CliError(Problem.FILE_CONTENT, f"line {number} {error}") from None

    def _refuse_without_key(self, number: int, line: bytes) -> None:
        if self._delimiter and self._delimiter not in line and self._template.key is None:
            text = self._delimiter.decode(errors="backslashreplace")
            what = f"line {number} has no {text!r} after a key (-K)"
            raise CliError(
                Problem.FILE_CONTENT, what, "give -k KEY for such lines, or leave out -K"
            )

    def _plain(self, line: bytes) -> InputRecord:
        key, text = self._template.key, line
        if self._delimiter and self._delimiter in line:
            key_text, _, text = line.partition(self._delimiter)
            is_null = self._empty_is_null and not key_text
            key = None if is_null else self._encoders.key_of_text(key_text)
        elif self._empty_is_null:
            key = key or None
        is_null = self._empty_is_null and not text
        value = None if is_null else self._encoders.value_of_text(text)
        return self._template._replace(key=key, value=value)

    def _from_json(self, line: bytes) -> InputRecord:
        template, encoders = self._template, self._encoders
        record = from_json(line, encoders.key, encoders.value)
        return record._replace(
            key=record.key if template.key is None else template.key,
            headers=record.headers + template.headers,
            partition=record.partition if template.partition is None else template.partition,
        )


class RecordProducer:
    """A producer, and the results of its records.

    With ``verbose`` each acknowledged record prints ``topic partition@offset`` on standard output.
    """

    def __init__(
        self,
        settings: Settings,
        topic: str,
        *,
        codec: str,
        acks: str,
        idempotent: bool,
        more: Mapping[str, Any] | None = None,
        fixes: Mapping[str, str] | None = None,
    ) -> None:
        """``more`` properties override ours, and so do ``fixes`` by the error's name. Raises
        :class:`CliError` if no broker answers.

        librdkafka takes half a second to get an idempotent producer's id.
        """
        from confluent_kafka import Producer

        self._settings = settings
        self._verbose = settings.verbose
        self._topic = topic
        self._fixes = fixes or {}
        self._connection = Connection(settings)
        configuration = self._connection.configuration(
            **{
                "compression.type": codec,
                "acks": acks,
                "enable.idempotence": idempotent and acks in ("all", "-1"),
                "partitioner": "murmur2_random",
                "message.timeout.ms": round(settings.timeout_s * 1000),
                "linger.ms": LINGER_MS,
                **(more or {}),
            }
        )
        self._producer = self._connection.make(Producer, configuration)
        self._refuse_missing_topic(min(settings.timeout_s, CREATED_WITHIN_S))
        self._delivered = 0
        self._failed = 0
        self._first_error: Any = None

    def _refuse_missing_topic(self, patience_s: float) -> None:
        """Raises :class:`CliError` if the topic does not exist and the request does not create it:
        librdkafka would wait for it as long as for an acknowledgement."""
        from confluent_kafka import KafkaError, KafkaException

        deadline = time.monotonic() + patience_s
        while True:
            try:
                with held:
                    found = self._producer.list_topics(self._topic, timeout=patience_s)
            except KafkaException:
                return
            error = found.topics[self._topic].error
            if error is None:
                return
            if error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                if error.retriable():
                    return
                raise self._connection.explain(error, "nothing written", [self._topic])
            if time.monotonic() > deadline:
                raise CliError(
                    Problem.TOPIC_NOT_FOUND,
                    f"topic {self._topic} does not exist, and the broker creates none by itself",
                    f"`pyrklog topic create {self._topic}`",
                )
            with held:
                time.sleep(LOOK_AGAIN_S)

    def send(self, record: InputRecord) -> None:
        while True:
            try:
                with held:
                    self._producer.produce(
                        self._topic,
                        key=record.key,
                        value=record.value,
                        headers=list(record.headers),
                        partition=ANY_PARTITION if record.partition is None else record.partition,
                        timestamp=record.timestamp_ms or 0,
                        on_delivery=self._on_delivery,
                    )
                    self._producer.poll(0)
                return
            except BufferError:
                with held:
                    self._producer.poll(DRAIN_S)

    def finish(self) -> None:
        waiting = 1
        while waiting > 0:
            with held:
                waiting = self._producer.flush(DRAIN_S)
        sys.stdout.flush()

    def failure(self) -> CliError | None:
        if self._first_error is None:
            return None
        total = counted(self._failed + self._delivered, "record")
        about = f"{self._failed} of {total} not written"
        error = self._connection.explain(self._first_error, about, [self._topic])
        problem = Problem.PARTLY_DONE if self._delivered else problem_of(self._first_error)
        return CliError(problem, error.what, self._fixes.get(self._first_error.name(), error.fix))

    def with_written(self, problem: CliError) -> CliError:
        if not self._delivered or self._first_error is not None:
            return problem
        count = self._delivered
        before = "1 record before it was" if count == 1 else f"{count} records before it were"
        return CliError(
            Problem.PARTLY_DONE, f"{problem.what}; {before} written", problem.fix, why=problem.why
        )

    def sum_up(self) -> None:
        told = f"{counted(self._delivered, 'record')} written"
        if is_document():
            tell_done(self._settings, told, kind="topic", name=self._topic)
        elif sys.stderr.isatty():
            typer.echo(f"{told} to {self._topic}", err=True)

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed += 1
            self._first_error = self._first_error or error
            return
        self._delivered += 1
        if not self._verbose:
            return
        place = f"{message.partition()}@{message.offset()}"
        if is_document():
            tell_done(self._settings, place, kind="record", name=message.topic())
        else:
            sys.stdout.write(f"{message.topic()} {place}\n")


def send_all(
    sender: RecordProducer, records: Iterator[InputRecord], reader: LineReader | None = None
) -> None:
    """``reader``: whose lines the records are."""
    from confluent_kafka import KafkaException

    problem: CliError | None = None
    number, size = 0, 0
    try:
        for record in records:
            number += 1
            size = len(record.key or b"") + len(record.value or b"")
            sender.send(record)
    except KafkaException as error:
        where = f"record {number}" if reader is None else f"line {reader.number}"
        about = f"{where}, a record of {counted(size, 'byte')}, not written"
        problem = cli_error(error.args[0], about)
    except CliError as error:
        problem = error
    except KeyboardInterrupt:
        sender.finish()  # sends queued records; a second Ctrl-C does not wait
        raise
    sender.finish()
    problem = sender.failure() or problem
    if problem is not None:
        raise sender.with_written(problem)
