"""``--schema`` and ``--key-schema`` of ``consume`` and ``produce``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from pyrklog.base.json_text import without_controls
from pyrklog.base.problems import Problem
from pyrklog.cli.failures import CliError, counted, unread
from pyrklog.cli.options import option
from pyrklog.cli.records import BadLineError, Encode

if TYPE_CHECKING:
    from pyrklog.cli.record_format import Kinds
    from pyrklog.cli.records import Record
    from pyrklog.serdes.codec import Decoder

_ADDRESS = re.compile(r"[\w.-]+:[0-9]+(#.*)?", re.ASCII)
"""HOST:PORT, which is no file."""
ON_BAD = ("fail", "raw", "drop")
TOLD_MAX = 10
"""Bad records whose places are told; of others the number."""
_SOURCE = "FILE.avsc, FILE.proto[:MESSAGE], a descriptor set FILE:MESSAGE, or a registry's URL"
CONSUMED = option(
    "--schema SOURCE", f"Show values as the JSON that it makes of them: {_SOURCE}.", None
)
CONSUMED_KEY = option("--key-schema SOURCE", "The same of keys.", None)
BAD = option(
    "--on-bad fail|raw|drop",
    "What becomes of a record that does not fit its schema: an error, printed as it is, left out.",
    "fail",
)
PRODUCED = option(
    "--schema SOURCE",
    f"Values are JSON, written by it: {_SOURCE}[#SUBJECT or #ID][:MESSAGE].",
    None,
)
PRODUCED_KEY = option("--key-schema SOURCE", "The same of keys.", None)
REGISTER = option(
    "--register URL",
    "Register the files of --schema and --key-schema in this registry, under TOPIC-value and "
    "TOPIC-key, and write their ids.",
    None,
)


class RecordDecoder:
    """What ``consume`` does with records before it prints them."""

    def __init__(
        self, value: str | None, key: str | None, on_bad: str, timeout_s: float, *, is_quiet: bool
    ) -> None:
        """Raises :class:`CliError`."""
        if on_bad not in ON_BAD:
            raise CliError(Problem.ARGUMENT_VALUE, f"--on-bad {on_bad} is not fail, raw or drop")
        self._on_bad = on_bad
        self._is_quiet = is_quiet
        self._bad = 0
        self._sides: list[tuple[str, str, str, Decoder]] = []
        for name, given, text in (("key", "--key-schema", key), ("value", "--schema", value)):
            if text is not None:
                self._sides.append((name, given, text, _decoder(given, text, timeout_s)))

    def kinds(self) -> Kinds:
        from pyrklog.cli.record_format import ANY, Kinds

        return Kinds(**{name: decoder.kind or ANY for name, *_, decoder in self._sides})

    def __call__(self, record: Record) -> Record | None:
        """None for a record that is left out. Raises :class:`CliError`."""
        for name, given, text, decoder in self._sides:
            data = record.key if name == "key" else record.value
            shown: bytes | None = None
            if data is not None:
                try:
                    with _explained(given, text):
                        shown = without_controls(decoder.decode(data).decode()).encode()
                except BadLineError as error:
                    self._note(record, name, data, str(error))
                    if self._on_bad == "drop":
                        return None
            if name == "key":
                record = record._replace(key_json=shown, has_key_schema=True)
            else:
                record = record._replace(value_json=shown, has_value_schema=True)
        return record

    def _note(self, record: Record, name: str, data: bytes, reason: str) -> None:
        from pyrklog.cli.output import cell

        self._bad += 1
        where = f"{record.topic} [{record.partition}] at offset {record.offset}"
        what = f"{where}: {name}: {cell(reason)}"
        if self._on_bad == "fail":
            fix = "`--on-bad raw` prints such records as they are, `--on-bad drop` leaves them out"
            if data[:1] == b"\0" and not reason.startswith("the registry"):
                fix += "; a byte 0 at the beginning is a registry's: `--schema http://HOST:PORT`"
            raise CliError(Problem.NOT_DECODED, what, fix)
        if self._bad <= TOLD_MAX and not self._is_quiet:
            done = "left out" if self._on_bad == "drop" else "printed as it is"
            typer.echo(f"note: {what}; {done}", err=True)

    def finish(self) -> None:
        """Tells how many were bad."""
        if self._bad > TOLD_MAX and not self._is_quiet:
            typer.echo(f"note: {counted(self._bad, 'record')} did not fit their schema", err=True)


def _decoder(given: str, text: str, timeout_s: float) -> Decoder:
    from pyrklog.serdes.source import decoder_of

    with _usable(given, text):
        return decoder_of(text, timeout_s)


@contextmanager
def _explained(given: str, text: str) -> Iterator[None]:
    """Data that do not fit are a :class:`BadLineError`."""
    from pyrklog.serdes.codec import DataError
    from pyrklog.serdes.registry import RegistryError

    try:
        yield
    except DataError as error:
        raise BadLineError(str(error)) from None
    except RegistryError as error:
        raise _away(given, text, error) from None


def _encoder(
    given: str, text: str | None, timeout_s: float, subject: str, register: str | None
) -> Encode | None:
    """Raises :class:`CliError`; what it returns raises :class:`BadLineError`."""
    if text is None:
        return None
    from pyrklog.serdes.codec import DataError
    from pyrklog.serdes.source import encoder_of

    with _usable(given, text, register):
        found = encoder_of(text, timeout_s, subject, register)

    def encode(value: Any) -> bytes:
        try:
            return found.encode(value)
        except DataError as error:
            raise BadLineError(f"does not fit {given}: {error}") from None

    return encode


class Encoders(NamedTuple):
    """Of keys and values; None where there is no schema."""

    key: Encode | None = None
    value: Encode | None = None

    def key_of_text(self, text: bytes) -> bytes:
        """Raises :class:`BadLineError`, like :meth:`value_of_text`."""
        return _of_text(self.key, text, "has a key that")

    def value_of_text(self, text: bytes) -> bytes:
        return _of_text(self.value, text, "has a value that")

    def argument_key(self, text: bytes) -> bytes:
        """That of -k. Raises :class:`CliError`."""
        try:
            return _of_text(self.key, text, "-k")
        except BadLineError as error:
            fix = "it takes JSON, such as -k '\"text\"' for a string"
            raise CliError(Problem.ARGUMENT_VALUE, str(error), fix) from None


NO_ENCODERS = Encoders()


def encoders_of(
    topic: str, value: str | None, key: str | None, register: str | None, timeout_s: float
) -> Encoders:
    """Raises :class:`CliError`."""
    if register is not None and value is None and key is None:
        raise CliError(Problem.ARGUMENT_MISSING, "--register of which file?", "give --schema FILE")
    if register is not None and _ADDRESS.fullmatch(register):
        what = f"--register takes the URL of a registry, not {register}"
        raise CliError(Problem.ARGUMENT_VALUE, what, f"--register http://{register}")
    return Encoders(
        _encoder("--key-schema", key, timeout_s, f"{topic}-key", register),
        _encoder("--schema", value, timeout_s, f"{topic}-value", register),
    )


def _of_text(encode: Encode | None, text: bytes, subject: str) -> bytes:
    if encode is None:
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadLineError(f"{subject} is not JSON: {error}") from None
    return encode(value)


@contextmanager
def _usable(given: str, text: str, register: str | None = None) -> Iterator[None]:
    """What a schema's source can raise, as :class:`CliError`. ``register``: the registry that
    gets it."""
    from pyrklog.serdes.codec import SchemaError
    from pyrklog.serdes.protobuf import PROTOC, CompilerMissingError
    from pyrklog.serdes.registry import RegistryError, SchemaMissingError, SchemaRefusedError

    shown = _without_password(text)
    try:
        yield
    except CompilerMissingError as error:
        fix = f"install {PROTOC}, or give what `protoc --descriptor_set_out` writes elsewhere"
        raise CliError(Problem.PROGRAM_MISSING, f"{given} {shown}: {error}", fix) from None
    except (SchemaError, SchemaRefusedError) as error:
        raise CliError(Problem.SCHEMA_UNUSABLE, f"{given} {shown}", why=str(error)) from None
    except SchemaMissingError as error:
        fix = "name another one as URL#SUBJECT or URL#ID, or register a file with --register"
        raise CliError(Problem.SCHEMA_NOT_FOUND, f"{given} {shown}", fix, why=str(error)) from None
    except RegistryError as error:
        named = (given, text) if register is None else ("--register", register)
        raise _away(*named, error) from None
    except FileNotFoundError as error:
        if not _ADDRESS.fullmatch(text):
            raise unread(shown, error) from None
        fix = f"a registry is named by its URL: {given} http://{text}"
        raise CliError(Problem.FILE_NOT_FOUND, f"there is no file {text}", fix) from None
    except OSError as error:
        raise unread(shown, error) from None
    except ValueError as error:
        raise CliError(Problem.ARGUMENT_VALUE, f"{given} {shown}: {error}") from None


def _away(given: str, text: str, error: Exception) -> CliError:
    from pyrklog.serdes.registry import RegistryDeniedError

    if isinstance(error, RegistryDeniedError):
        fix = "give name and password as http://NAME:PASSWORD@HOST:PORT"
    else:
        fix = "check that the registry runs, and its URL"
    url = _without_password(text).partition("#")[0]
    what = f"the registry {url} of {given} gives no answer to use"
    return CliError(Problem.REGISTRY_AWAY, what, fix, why=str(error))


def _without_password(text: str) -> str:
    """A URL without its user."""
    scheme, mark, rest = text.partition("://")
    if not mark:
        return text
    place, slash, path = rest.partition("/")
    return f"{scheme}{mark}{place.rpartition('@')[2]}{slash}{path}"
