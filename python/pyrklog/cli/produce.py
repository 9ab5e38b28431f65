"""``pyrklog produce``: writes records from arguments, standard input or a file."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pyrklog.base.problems import Problem
from pyrklog.cli.admin_common import connect, say
from pyrklog.cli.deeds import is_document, telling
from pyrklog.cli.failures import CliError, counted, refuse_empty
from pyrklog.cli.options import (
    CONNECTION,
    INT32_MAX,
    OnlySaid,
    Settings,
    argument,
    option,
    with_settings,
)
from pyrklog.cli.schemas import PRODUCED, PRODUCED_KEY, REGISTER, encoders_of

if TYPE_CHECKING:
    from pyrklog.cli.records import InputRecord

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS = ("all", "-1", "1", "0")


Values = Annotated[
    list[str] | None, argument("VALUE...", "Values; without any, lines of standard input.")
]
Key = Annotated[str | None, option("-k, --key KEY", "Key of every record.")]
Partition = Annotated[
    int | None, option("-p, --partition N", "Partition; default: by key.", min=0, max=INT32_MAX)
]
KeyDelimiter = Annotated[
    str | None, option("-K TEXT", "Lines are key, this, value; one without it needs -k.")
]
Format = Annotated[str | None, option("-f, --format FORMAT", "jsonl: lines of `consume -f jsonl`.")]


@with_settings(*CONNECTION, "verbose", "quiet")
@telling
def produce(
    options: Settings,
    topic: str = argument("TOPIC"),
    values: Values = None,
    key: Key = None,
    headers: list[str] | None = option("-H, --header K=V", "Header; may be repeated.", None),
    key_delimiter: KeyDelimiter = None,
    partition: Partition = None,
    codec: str = option("-z, --compression CODEC", "none, gzip, snappy, lz4 or zstd.", "none"),
    acks: str = option("--acks ACKS", "all, 1 or 0.", "all"),
    tombstone: bool = option("--tombstone", "A null value for the key given with -k.", False),
    empty_is_null: bool = option("-Z, --null", "Empty keys and values are null.", False),
    format_: Format = None,
    source: Path | None = option("--from FILE", "Read lines from a file.", None),
    schema: str | None = PRODUCED,
    key_schema: str | None = PRODUCED_KEY,
    register: str | None = REGISTER,
    rate: float | None = option("--rate N", "At most so many records a second.", None),
    dry_run: OnlySaid = False,
) -> None:
    """Write records, one for each value or line. With -v, print where each one went."""
    refuse_empty("TOPIC", "topic", [topic])
    _refuse_words(codec, acks, format_)
    if values and source is not None:
        raise CliError(Problem.ARGUMENTS_DISAGREE, "values and --from exclude each other")
    if tombstone and (key is None or values or source is not None):
        raise CliError(
            Problem.ARGUMENTS_DISAGREE, "--tombstone takes a key and no value", "give -k KEY"
        )
    from pyrklog.cli.pace import Pace, parse_rate
    from pyrklog.cli.producer import (
        LineReader,
        RecordProducer,
        argument_bytes,
        parse_headers,
        read_lines,
        send_all,
    )
    from pyrklog.cli.records import InputRecord

    encoders = encoders_of(topic, schema, key_schema, register, options.timeout_s)
    template = InputRecord(
        key=None if key is None else encoders.argument_key(argument_bytes(key)),
        value=None,
        headers=parse_headers(headers or []),
        partition=partition,
    )
    reader = LineReader(
        template,
        encoders=encoders,
        key_delimiter=argument_bytes(key_delimiter or ""),
        empty_is_null=empty_is_null,
        json_lines=format_ == "jsonl",
    )
    pace = Pace(parse_rate(rate))
    # During a long stream a connection may break: retries must not duplicate records. A few values
    # on the command line need the answer half a second earlier more.
    idempotent = not (tombstone or values)
    if tombstone:
        records = iter([template])
    elif values:
        records = reader.records(map(argument_bytes, values))
    else:
        records = reader.records(read_lines(source))
    if dry_run:
        _say_only(options, topic, records)
        return
    sender = RecordProducer(options, topic, codec=codec, acks=acks, idempotent=idempotent)
    send_all(sender, pace.each(records), None if tombstone or values else reader)
    if not options.quiet or is_document():
        sender.sum_up()


def _refuse_words(codec: str, acks: str, format_: str | None) -> None:
    refuse_codec(codec)
    if acks not in ACKS:
        raise CliError(Problem.ARGUMENT_VALUE, f"--acks {acks} is not all, 1 or 0")
    if format_ not in (None, "jsonl"):
        raise CliError(Problem.ARGUMENT_VALUE, f"-f {format_} is not jsonl")


def _say_only(options: Settings, topic: str, records: "Iterator[InputRecord]") -> None:
    """Reads all records, so that a bad line is told."""
    metadata = connect(options).metadata()
    count = sum(1 for _ in records)
    missing = "" if topic in metadata.topics else ", which does not exist yet"
    say(options, f"{counted(count, 'record')} would be written to {topic}{missing}")


def refuse_codec(codec: str) -> None:
    if codec not in CODECS:
        raise CliError(
            Problem.ARGUMENT_VALUE, f"-z {codec} is no codec", f"one of {', '.join(CODECS)}"
        )
