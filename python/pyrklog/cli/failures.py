"""Ends of commands: exit codes, and errors with a number (:mod:`pyrklog.base.problems`).

Functions of this package raise :class:`CliError` for what a user can see or fix.
"""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from pyrklog.base.exit_codes import Exit as Exit
from pyrklog.base.problems import Problem, lines
from pyrklog.cli.internal_topics import TAKES_NO_RECORDS, internal_of

TRACEBACK = "PYRKLOG_TRACEBACK"
"""Environment variable that shows tracebacks of unexpected exceptions."""
P = ParamSpec("P")
R = TypeVar("R")


_as_json: ContextVar[bool] = ContextVar("as_json", default=False)
"""Whether the running command prints JSON, and so its errors, too."""


ARGUMENTS = "pyrklog.arguments"
"""The whole command line, in the ``meta`` of a context."""


class CliError(Exception):
    """A command cannot continue: the problem's number, what happened, why, how to fix it."""

    def __init__(
        self, problem: Problem, what: str, fix: str | None = None, *, why: str | None = None
    ) -> None:
        super().__init__(what if why is None else f"{what.rstrip('.')}; {why}")
        self.problem = problem
        self.what = what
        self.why = why
        self.fix = fix

    @property
    def code(self) -> Exit:
        return self.problem.exit

    def text(self) -> str:
        return lines(self.problem, self.what, self.why, self.fix)

    def json(self) -> str:
        told = {
            "code": self.problem.code,
            "title": self.problem.title,
            "what": " ".join(self.what.split()).rstrip("."),
            "why": None if self.why is None else " ".join(self.why.split()).rstrip("."),
            "fix": self.fix,
        }
        return json.dumps({"error": told})


def tell(error: CliError, *, as_json: bool | None = None) -> None:
    """Prints the error, without ``as_json`` like the running command. On a terminal also where
    more is to be read."""
    told = error.json() if (_as_json.get() if as_json is None else as_json) else error.text()
    if sys.stderr.isatty():
        told = f"{told}\n  see: pyrklog explain {error.problem.code}"
    print(told, file=sys.stderr, flush=True)


_PROBLEMS: dict[str, Problem] = {
    "_TRANSPORT": Problem.NO_BROKER,
    "_ALL_BROKERS_DOWN": Problem.NO_BROKER,
    "_RESOLVE": Problem.NO_BROKER,
    "BROKER_NOT_AVAILABLE": Problem.BROKER_AWAY,
    "_UNKNOWN_TOPIC": Problem.TOPIC_NOT_FOUND,
    "_UNKNOWN_PARTITION": Problem.PARTITION_NOT_FOUND,
    "UNKNOWN_TOPIC_OR_PART": Problem.TOPIC_NOT_FOUND,
    "UNKNOWN_TOPIC_ID": Problem.TOPIC_NOT_FOUND,
    "RESOURCE_NOT_FOUND": Problem.OPTION_NOT_FOUND,
    "GROUP_ID_NOT_FOUND": Problem.GROUP_NOT_FOUND,
    "NON_EMPTY_GROUP": Problem.GROUP_ACTIVE,
    "TOPIC_ALREADY_EXISTS": Problem.TOPIC_EXISTS,
    "_AUTHENTICATION": Problem.NOT_AUTHORIZED,
    "SASL_AUTHENTICATION_FAILED": Problem.NOT_AUTHORIZED,
    "TOPIC_AUTHORIZATION_FAILED": Problem.NOT_AUTHORIZED,
    "GROUP_AUTHORIZATION_FAILED": Problem.NOT_AUTHORIZED,
    "CLUSTER_AUTHORIZATION_FAILED": Problem.NOT_AUTHORIZED,
    "_TIMED_OUT": Problem.NO_ANSWER,
    "_TIMED_OUT_QUEUE": Problem.NO_ANSWER,
    "_MSG_TIMED_OUT": Problem.NO_ANSWER,
    "REQUEST_TIMED_OUT": Problem.NO_ANSWER,
    "INVALID_RECORD": Problem.RECORD_REFUSED,
    "_INVALID_DIFFERENT_RECORD": Problem.RECORD_REFUSED,
    "MSG_SIZE_TOO_LARGE": Problem.RECORD_REFUSED,
    "INVALID_CONFIG": Problem.OPTION_NOT_CHANGED,
    "INVALID_PARTITIONS": Problem.PARTITION_COUNT,
    "OFFSET_OUT_OF_RANGE": Problem.OUTSIDE_THE_LOG,
    "_AUTO_OFFSET_RESET": Problem.OUTSIDE_THE_LOG,
    "UNSUPPORTED_VERSION": Problem.NOT_SERVED,
    "_UNSUPPORTED_FEATURE": Problem.NOT_SERVED,
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
    "INVALID_PARTITIONS": "partitions are added, never removed: give more than there are",
    "MSG_SIZE_TOO_LARGE": "raise the topic's max.message.bytes, and -X message.max.bytes=N here",
}

_NAME_REFUSED = "TOPIC_EXCEPTION"
_ANY_CAUSE = "Broker: "
"""How librdkafka's text begins; it takes the place of a broker's own."""
_NAME_FIX = "names have up to 249 letters, digits, dots, underscores and hyphens"


def problem_of(kafka_error: Any) -> Problem:
    return _PROBLEMS.get(kafka_error.name(), Problem.BROKER_REFUSED)


def exit_code(kafka_error: Any) -> Exit:
    return problem_of(kafka_error).exit


def cli_error(
    kafka_error: Any, about: str, fix: str | None = None, *, topic: str | None = None
) -> CliError:
    """A ``confluent_kafka.KafkaError`` as :class:`CliError`; ``about`` begins the sentence,
    ``topic`` is the name that the broker may have refused."""
    problem, name = problem_of(kafka_error), kafka_error.name()
    reason = kafka_error.str() or name
    if name == _NAME_REFUSED and topic is not None:
        if internal_of([topic]) and reason.startswith(_ANY_CAUSE):
            return CliError(problem, f"{about}: {TAKES_NO_RECORDS}", fix)
        fix = fix or _fix_of_name(topic, reason)
    if problem is Problem.PARTITION_NOT_FOUND:
        fix = fix or f"see `pyrklog topic describe {topic or 'TOPIC'}`"
    fix = fix or _SPECIAL_FIXES.get(name) or _FIXES.get(problem.exit)
    return CliError(problem, f"{about}: {reason}", fix)


def _fix_of_name(topic: str, reason: str) -> str | None:
    from pyrklog.cluster.topic_names import wrong_with_name

    if wrong_with_name(topic) is not None:
        return _NAME_FIX
    return f"`pyrklog topic create {topic}` tells why" if reason.startswith(_ANY_CAUSE) else None


def missing_partition(topic: str, partition: int, count: int) -> CliError:
    """``count``: how many partitions the topic has."""
    numbers = "0" if count == 1 else f"0 to {count - 1}"
    has = f"it has {counted(count, 'partition')}, {numbers}" if count else "it has none"
    what = f"topic {topic} has no partition {partition}: {has}"
    return CliError(Problem.PARTITION_NOT_FOUND, what, f"see `pyrklog topic describe {topic}`")


def worst(codes: Iterable[Exit]) -> Exit:
    """One exit code for several items: the common one, or PARTIAL if some succeeded."""
    seen = set(codes)
    if len(seen) <= 1:
        return seen.pop() if seen else Exit.OK
    return Exit.PARTIAL if Exit.OK in seen else Exit.FAILED


def problem_of_all(errors: Sequence[CliError], codes: Iterable[Exit]) -> Problem:
    """The problem of a command with several items, whose exit code is :func:`worst`."""
    code = worst(codes)
    if code is Exit.PARTIAL:
        return Problem.PARTLY_DONE
    return next((one.problem for one in errors if one.code is code), Problem.BROKER_REFUSED)


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

        token = _as_json.set(_prints_json(kwargs))
        try:
            with taken_over():
                return ending(checked)
        finally:
            _as_json.reset(token)

    return run


_JSON = ("json", "jsonl")
"""Forms of output whose errors are JSON, a line each."""
_OUTPUT = ("-o", "--output")


def asks_for_json(context: Any) -> bool:
    """Whether the command line asks for JSON, also one that could not be read. The last -o
    counts."""
    form = ""
    arguments = list(context.meta.get(ARGUMENTS, ()))
    for one, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if one == "--":
            break
        if one in _OUTPUT:
            form = following
        elif one.startswith("--output="):
            form = one.removeprefix("--output=")
        elif one.startswith("-o"):
            form = one.removeprefix("-o")
    return form.lower() in _JSON


def _prints_json(arguments: Mapping[str, Any]) -> bool:
    """The outermost group has no form of its own, but the command behind it may."""
    context = arguments.get("context")
    if "output" in arguments or context is None or context.parent is not None:
        return arguments.get("output") in _JSON
    return asks_for_json(context)


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
        raise CliError(
            Problem.ARGUMENT_VALUE, what, "set the terminal and the locale to UTF-8"
        ) from None


def refuse_empty(argument: str, kind: str, names: Iterable[str]) -> None:
    """Raises :class:`CliError` for an empty name, as from an unset shell variable."""
    if not all(names):
        article = "an" if kind[0] in "aeiou" else "a"
        what = f"{argument} takes the name of {article} {kind}, not an empty text"
        raise CliError(Problem.ARGUMENT_VALUE, what)


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
        failure = error
    except DevError as error:
        failure = CliError(error.problem, error.what, error.fix)
    except StartError as error:
        failure = CliError(error.problem, error.what, error.fix, why=error.why)
    except KeyboardInterrupt as error:
        from pyrklog.cli.interrupts import Terminated

        _flush_output()
        is_asked = isinstance(error, Terminated)
        raise typer.Exit(Exit.TERMINATED if is_asked else Exit.INTERRUPTED) from None
    except BrokenPipeError:
        discard_output()
        raise typer.Exit(Exit.OK) from None
    except OSError as error:
        failure = not_written(error)
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except Exception as error:
        failure = unforeseen(error)
    tell(failure)
    raise typer.Exit(failure.code)


def unforeseen(error: Exception) -> CliError:
    """An unexpected exception as one line; raises it if the user wants that."""
    import os

    if os.environ.get(TRACEBACK):
        raise error
    library = sys.modules.get("confluent_kafka")
    if library is not None and isinstance(error, library.KafkaException):
        return cli_error(error.args[0], "the cluster or librdkafka refused")
    what = f"unexpected {type(error).__name__}: {error}"
    return CliError(
        Problem.UNFORESEEN, what, f"a bug: report what {TRACEBACK}=1 shows in the environment"
    )


def unread(path: object, error: OSError, otherwise: Problem = Problem.FILE_UNREADABLE) -> CliError:
    """A file that cannot be read."""
    is_missing = isinstance(error, FileNotFoundError)
    problem = Problem.FILE_NOT_FOUND if is_missing else otherwise
    return CliError(problem, f"cannot read {path}: {error.strerror or error}")


def not_written(error: OSError) -> CliError:
    """Gives up unprintable output; a file's error names the file."""
    if error.filename is None:
        discard_output()
    where = error.filename or "what was to be printed could not be written"
    return CliError(Problem.NOT_WRITTEN, f"{where}: {error.strerror or error}")


def _flush_output() -> None:
    """Discards buffered output, which would raise again at the exit."""
    try:
        sys.stdout.flush()
    except OSError:
        discard_output()


def discard_output() -> None:
    """Discards output after a broken pipe: buffered output must not raise again at the exit."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
