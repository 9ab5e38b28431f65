"""Ends of commands: exit codes, and errors as one line ``error: what; fix: ...``.

Functions of this package raise :class:`CliError` for what a user can see or fix.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from pyrklog.cli.internal_topics import TAKES_NO_RECORDS, internal_of

TRACEBACK = "PYRKLOG_TRACEBACK"
"""Environment variable that shows tracebacks of unexpected exceptions."""
P = ParamSpec("P")
R = TypeVar("R")


class Exit(IntEnum):
    """Exit codes of all commands except ``serve`` (:mod:`pyrklog.errors`)."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    NOT_FOUND = 4
    EXISTS = 5
    DENIED = 6
    TIMED_OUT = 7
    DIFFERS = 8
    """Also: unhealthy, not safe."""
    PARTIAL = 9
    INTERRUPTED = 130
    TERMINATED = 143


class CliError(Exception):
    """A command cannot continue: exit code, what happened, how to fix it."""

    def __init__(self, code: Exit, what: str, fix: str | None = None) -> None:
        super().__init__(what)
        self.code = code
        self.what = what
        self.fix = fix

    def line(self) -> str:
        what = " ".join(self.what.split()).rstrip(".")
        return f"error: {what}; fix: {self.fix}" if self.fix else f"error: {what}"


_CODES: dict[str, Exit] = {
    "_TRANSPORT": Exit.UNREACHABLE,
    "_ALL_BROKERS_DOWN": Exit.UNREACHABLE,
    "_RESOLVE": Exit.UNREACHABLE,
    "BROKER_NOT_AVAILABLE": Exit.UNREACHABLE,
    "_UNKNOWN_TOPIC": Exit.NOT_FOUND,
    "_UNKNOWN_PARTITION": Exit.NOT_FOUND,
    "UNKNOWN_TOPIC_OR_PART": Exit.NOT_FOUND,
    "UNKNOWN_TOPIC_ID": Exit.NOT_FOUND,
    "RESOURCE_NOT_FOUND": Exit.NOT_FOUND,
    "GROUP_ID_NOT_FOUND": Exit.NOT_FOUND,
    "TOPIC_ALREADY_EXISTS": Exit.EXISTS,
    "_AUTHENTICATION": Exit.DENIED,
    "SASL_AUTHENTICATION_FAILED": Exit.DENIED,
    "TOPIC_AUTHORIZATION_FAILED": Exit.DENIED,
    "GROUP_AUTHORIZATION_FAILED": Exit.DENIED,
    "CLUSTER_AUTHORIZATION_FAILED": Exit.DENIED,
    "_TIMED_OUT": Exit.TIMED_OUT,
    "_TIMED_OUT_QUEUE": Exit.TIMED_OUT,
    "_MSG_TIMED_OUT": Exit.TIMED_OUT,
    "REQUEST_TIMED_OUT": Exit.TIMED_OUT,
}

_FIXES: dict[Exit, str] = {
    Exit.UNREACHABLE: "check -b, and that the broker runs",
    Exit.EXISTS: "choose another name, or use --if-not-exists",
    Exit.DENIED: "check the credentials given with -X",
    Exit.TIMED_OUT: "try again, or raise --timeout",
}

_NO_KEY = (
    "a compacted topic (cleanup.policy) takes no records without a key: `produce` takes -k or -K"
)
_SPECIAL_FIXES = {
    "INVALID_RECORD": _NO_KEY,
    "_INVALID_DIFFERENT_RECORD": _NO_KEY,
    "MSG_SIZE_TOO_LARGE": "raise the topic's max.message.bytes, and -X message.max.bytes=N here",
    "_UNKNOWN_PARTITION": "see `pyrklog topic describe TOPIC`",
}

_NAME_REFUSED = "TOPIC_EXCEPTION"
_ANY_CAUSE = "Broker: "
"""How librdkafka's text begins; it takes the place of a broker's own."""
_NAME_FIX = "names have up to 249 letters, digits, dots, underscores and hyphens"


def exit_code(kafka_error: Any) -> Exit:
    return _CODES.get(kafka_error.name(), Exit.FAILED)


def cli_error(
    kafka_error: Any, about: str, fix: str | None = None, *, topic: str | None = None
) -> CliError:
    """A ``confluent_kafka.KafkaError`` as :class:`CliError`; ``about`` begins the sentence,
    ``topic`` is the name that the broker may have refused."""
    code, name = exit_code(kafka_error), kafka_error.name()
    reason = kafka_error.str() or name
    if name == _NAME_REFUSED and topic is not None:
        if internal_of([topic]) and reason.startswith(_ANY_CAUSE):
            return CliError(code, f"{about}: {TAKES_NO_RECORDS}", fix)
        fix = fix or _fix_of_name(topic, reason)
    return CliError(code, f"{about}: {reason}", fix or _SPECIAL_FIXES.get(name) or _FIXES.get(code))


def _fix_of_name(topic: str, reason: str) -> str | None:
    from pyrklog.cluster.topic_names import wrong_with_name

    if wrong_with_name(topic) is not None:
        return _NAME_FIX
    return f"`pyrklog topic create {topic}` tells why" if reason.startswith(_ANY_CAUSE) else None


def worst(codes: Iterable[Exit]) -> Exit:
    """One exit code for several items: the common one, or PARTIAL if some succeeded."""
    seen = set(codes)
    if len(seen) <= 1:
        return seen.pop() if seen else Exit.OK
    return Exit.PARTIAL if Exit.OK in seen else Exit.FAILED


def exit_with(codes: Iterable[Exit]) -> None:
    """Ends the command with :func:`worst` unless that is 0."""
    import typer

    code = worst(codes)
    if code:
        raise typer.Exit(code)


def guarded(command: Callable[P, R]) -> Callable[P, R]:
    """Ends a command by this module's rules, at once at a second Ctrl-C."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        from pyrklog.cli.interrupts import taken_over

        def checked() -> R:
            _refuse_non_texts(kwargs)
            return command(*args, **kwargs)

        with taken_over():
            return ending(checked)

    return run


_BYTES = frozenset(
    (
        *("values", "key", "keys", "headers", "key_delimiter", "null"),
        *("file", "rollback", "topics_file", "data", "config"),
    )
)
"""Parameters that need not be UTF-8: parts of records, file names."""


def _refuse_non_texts(arguments: Mapping[str, object]) -> None:
    """Refuses texts that are not UTF-8: librdkafka's binding crashes for some of them."""
    for name, value in arguments.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, str) and name not in _BYTES:
                refuse_non_text(one)


def refuse_non_text(value: str) -> None:
    """Raises :class:`CliError` for an argument whose bytes are not UTF-8."""
    try:
        value.encode()
    except UnicodeEncodeError:
        what = f"the argument {value!a} is not UTF-8"
        raise CliError(Exit.USAGE, what, "set the terminal and the locale to UTF-8") from None


def refuse_empty(argument: str, kind: str, names: Iterable[str]) -> None:
    """Raises :class:`CliError` for an empty name, as from an unset shell variable."""
    if not all(names):
        article = "an" if kind[0] in "aeiou" else "a"
        what = f"{argument} takes the name of {article} {kind}, not an empty text"
        raise CliError(Exit.USAGE, what)


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """``1 record``, ``2 records``."""
    return f"{count} {noun}" if count == 1 else f"{count} {plural or f'{noun}s'}"


def ending(command: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """The result of the command, or its exit code after an expected exception."""
    import typer

    from pyrklog.dev.errors import DevError
    from pyrklog.errors import StartError

    try:
        return command(*args, **kwargs)
    except CliError as error:
        failure, code = error, int(error.code)
    except DevError as error:
        failure = CliError(Exit[error.problem.name], error.what, error.fix)
        code = failure.code
    except StartError as error:
        failure, code = CliError(Exit.FAILED, error.what, error.fix), error.exit_code
    except KeyboardInterrupt as error:
        from pyrklog.cli.interrupts import Terminated

        _flush_output()
        is_asked = isinstance(error, Terminated)
        raise typer.Exit(Exit.TERMINATED if is_asked else Exit.INTERRUPTED) from None
    except BrokenPipeError:
        discard_output()
        raise typer.Exit(Exit.OK) from None
    except OSError as error:
        failure, code = not_written(error), Exit.FAILED
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except Exception as error:
        failure = unforeseen(error)
        code = failure.code
    typer.echo(failure.line(), err=True)
    raise typer.Exit(code)


def unforeseen(error: Exception) -> CliError:
    """An unexpected exception as one line; raises it if the user wants that."""
    import os
    import sys

    if os.environ.get(TRACEBACK):
        raise error
    library = sys.modules.get("confluent_kafka")
    if library is not None and isinstance(error, library.KafkaException):
        return cli_error(error.args[0], "the cluster or librdkafka refused")
    what = f"unexpected {type(error).__name__}: {error}"
    return CliError(Exit.FAILED, what, f"a bug: report what {TRACEBACK}=1 shows in the environment")


def unread(path: object, error: OSError, otherwise: Exit = Exit.FAILED) -> CliError:
    """A file that cannot be read."""
    is_missing = isinstance(error, FileNotFoundError)
    code = Exit.NOT_FOUND if is_missing else otherwise
    return CliError(code, f"cannot read {path}: {error.strerror or error}")


def not_written(error: OSError) -> CliError:
    """Gives up unprintable output; a file's error names the file."""
    if error.filename is None:
        discard_output()
    where = error.filename or "what was to be printed could not be written"
    return CliError(Exit.FAILED, f"{where}: {error.strerror or error}")


def _flush_output() -> None:
    """Discards buffered output, which would raise again at the exit."""
    import sys

    try:
        sys.stdout.flush()
    except OSError:
        discard_output()


def discard_output() -> None:
    """Discards output after a broken pipe: buffered output must not raise again at the exit."""
    import os
    import sys

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
