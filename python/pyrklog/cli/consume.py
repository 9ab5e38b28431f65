"""``pyrklog consume``: reads chosen partitions, or as a member of a group (-g)."""

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from pyrklog.base.problems import Problem
from pyrklog.cli.failures import CliError, counted, refuse_empty
from pyrklog.cli.interrupts import held
from pyrklog.cli.options import (
    CONNECTION,
    INT32_MAX,
    WHERE,
    Filters,
    Settings,
    argument,
    option,
    with_settings,
)
from pyrklog.cli.schemas import BAD, CONSUMED, CONSUMED_KEY, RecordDecoder

if TYPE_CHECKING:
    from pyrklog.cli.consumer import RecordConsumer
    from pyrklog.cli.offsets import OffsetRange
    from pyrklog.cli.record_filter import Condition
    from pyrklog.cli.record_format import Kinds
    from pyrklog.cli.records import Record

BATCH_RECORDS_MAX = 1000
POLL_S = 0.1

KeyDelimiter = Annotated[
    str | None, option("-K TEXT", "Print the key too, then this, then the value.")
]
Partitions = Annotated[
    list[int] | None,
    option("-p, --partition N", "Only this partition; may be repeated.", min=0, max=INT32_MAX),
]


@with_settings(*CONNECTION, "verbose", "quiet")
def consume(
    options: Settings,
    topics: list[str] = argument("TOPIC..."),
    partitions: Partitions = None,
    offset: list[str] | None = option(
        "-o, --offset RANGE",
        f"START, START:END or :END, END left out. Each is {WHERE}. Default: start.",
        None,
    ),
    group: str | None = option(
        "-g, -G, --group GROUP",
        "Read as a member of this consumer group, and commit what was printed.",
        None,
    ),
    count: int | None = option("-c, -n, --count N", "Stop after so many records.", None, min=1),
    exit_at_end: bool = option("-e, --exit", "Stop at the end of all partitions.", False),
    format_: str | None = option(
        "-f, --format FORMAT",
        r"What to print of each record, for example '%t %p %o %k %v\n'; or jsonl. Verbs: "
        "%t %p %o %k %v %h %T %d{iso} %e %a %K %V %H %[ %| %]; {hex} {base64} {json} {avro} "
        "{protobuf}.",
        None,
    ),
    schema: str | None = CONSUMED,
    key_schema: str | None = CONSUMED_KEY,
    on_bad: str = BAD,
    key: str | None = option("--key KEY", "Only records with this key.", None),
    filters: Filters = None,
    key_delimiter: KeyDelimiter = None,
    null: str = option("-Z, --null TEXT", "What to print for null keys and values.", ""),
    read_committed: bool = option(
        "--read-committed",
        "Leave out records of aborted transactions; ends at the first open transaction.",
        False,
    ),
) -> None:
    """Read records and print them.

    With -g the group chooses the partitions and where to go on; -o then holds only for partitions
    without a committed offset.
    """
    from pyrklog.cli.consume_properties import refuse_without_effect
    from pyrklog.cli.offsets import RangeError, parse_range
    from pyrklog.cli.producer import argument_bytes
    from pyrklog.cli.record_filter import conditions_of
    from pyrklog.cli.record_format import FormatError

    refuse_empty("TOPIC", "topic", topics)
    refuse_without_effect(options.properties, group)
    decode = RecordDecoder(schema, key_schema, on_bad, options.timeout_s, is_quiet=options.quiet)
    try:
        wanted = parse_range(offset or [], time.time_ns() // 1_000_000)
        reading = _reading(options, topics, partitions, wanted, group, read_committed)
        source = _format(format_, key_delimiter)
        write = _writer(source, argument_bytes(null), reading, decode.kinds())
    except (RangeError, FormatError) as error:
        raise CliError(Problem.ARGUMENT_VALUE, str(error)) from None
    conditions = conditions_of(filters, key)
    started = time.monotonic()
    try:
        reading.start()
        if not exit_at_end and not options.quiet:
            _tell_awaited(reading)
        is_bounded = exit_at_end or wanted.stop is not None
        read = _copy(reading, decode, write, conditions, count, exit_at_end, is_bounded)
        if reading.finished(exit_at_end):
            _tell_unread(reading, read == count, read_committed and not options.quiet)
    except RangeError as error:
        raise CliError(Problem.OUTSIDE_THE_LOG, str(error), "give another -o") from None
    finally:
        reading.close()
        decode.finish()
    if options.verbose:
        _tell_read(read, time.monotonic() - started)


def _tell_read(count: int, elapsed_s: float) -> None:
    typer.echo(f"{counted(count, 'record')} in {elapsed_s:.2f} s", err=True)


def _tell_awaited(reading: "RecordConsumer") -> None:
    waiting = reading.awaited()
    if waiting:
        (topic, partition), (end, stop) = next(iter(waiting.items()))
        others = len(waiting) - 1
        more = f" (also {counted(others, 'other partition')})" if others else ""
        what = f"{topic} [{partition}] ends at {end}, before {stop}{more}"
        typer.echo(f"note: {what}: waiting for records; -e stops at the end", err=True)


def _tell_unread(reading: "RecordConsumer", is_enough: bool, tells: bool) -> None:
    """Once it has finished. Raises :class:`CliError` for what was left out, unless so many records
    as were asked for were read."""
    from pyrklog.cli.held_back import sentence, where_seen

    held = reading.held_back() if tells else {}
    if held:
        typer.echo(f"note: {sentence(held)}; {where_seen(held)}", err=True)
    if not is_enough:
        reading.check_whole()


def _reading(
    options: "Settings",
    topics: list[str],
    partitions: list[int] | None,
    wanted: "OffsetRange",
    group: str | None,
    read_committed: bool,
) -> "RecordConsumer":
    if group is None:
        from pyrklog.cli.assigned_consumer import AssignedConsumer

        return AssignedConsumer(options, topics, partitions, wanted, read_committed=read_committed)
    from pyrklog.cli.group_consumer import GroupConsumer

    refuse_empty("-g", "group", [group])
    if partitions:
        raise CliError(
            Problem.ARGUMENTS_DISAGREE,
            "-g and -p exclude each other: the group gives out partitions",
        )
    if wanted.stop is not None:
        raise CliError(
            Problem.ARGUMENTS_DISAGREE, "-g and an end in -o exclude each other", "use -c or -e"
        )
    return GroupConsumer(options, topics, group, wanted.start, read_committed=read_committed)


def _format(format_: str | None, key_delimiter: str | None) -> str:
    if format_ is not None and key_delimiter is not None:
        raise CliError(Problem.ARGUMENTS_DISAGREE, "-f and -K exclude each other")
    if format_ is not None:
        return format_
    if key_delimiter is None:
        return r"%v\n"
    escaped = key_delimiter.replace("%", "%%")
    return rf"%k{escaped}%v\n"


def _writer(
    source: str, null: bytes, reading: "RecordConsumer", kinds: "Kinds"
) -> "Callable[[Record], bytes]":
    from pyrklog.cli.record_format import RecordFormat
    from pyrklog.cli.records import to_json

    if source in ("jsonl", "json"):
        return to_json
    return RecordFormat(source, null=null, bounds=reading.bounds, kinds=kinds).write


def _copy(
    reading: "RecordConsumer",
    decode: "RecordDecoder",
    write: "Callable[[Record], bytes]",
    conditions: "Sequence[Condition]",
    count: int | None,
    exit_at_end: bool,
    is_bounded: bool,
) -> int:
    """Prints records until a reason to stop; returns their number.

    ``is_bounded``: the records exist already, so the wait for them ends at the timeout.
    """
    from pyrklog.cli.record_filter import all_hold
    from pyrklog.cli.records import from_message

    read = 0
    out = sys.stdout.buffer
    while not reading.finished(exit_at_end) and (count is None or read < count):
        left = BATCH_RECORDS_MAX if count is None else min(count - read, BATCH_RECORDS_MAX)
        messages = reading.read(BATCH_RECORDS_MAX if conditions else left, POLL_S)
        if messages:
            chosen: list[bytes] = []
            looked_at = 0
            problem: CliError | None = None
            while looked_at < len(messages) and len(chosen) < left:
                try:
                    record = decode(from_message(messages[looked_at]))
                except CliError as error:
                    problem = error  # what came before it is printed first
                    break
                looked_at += 1
                if record is not None and all_hold(conditions, record):
                    chosen.append(write(record))
            with held:  # the reader has seen these: commit them
                out.write(b"".join(chosen))
                out.flush()
                reading.written(messages[:looked_at])
            read += len(chosen)
            if problem is not None:
                raise problem
        elif is_bounded:
            reading.check_progress()
    return read
