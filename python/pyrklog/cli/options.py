"""Options of many commands, and their settings.

A shared option may be before or after the command; after wins.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyrklog.base.problems import Problem
from pyrklog.cli.failures import CliError, guarded, refuse_empty
from pyrklog.cli.usage import Commands

if TYPE_CHECKING:
    from pyrklog.cli.profiles import Profile

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
DEFAULT_TIMEOUT_S = 30.0
WHERE = (
    "start, end, an offset, -N (N before the end) or @TIME: milliseconds, 2024-01-31T12:00:00 "
    "or -90m"
)
"""Places in a log, for people; :mod:`pyrklog.cli.offsets` reads them."""
_BROKERS = ("bootstrap.servers", "metadata.broker.list")
"""librdkafka's two names of the same property."""
_OF_COMMANDS = frozenset(
    ("PYRKLOG_BOOTSTRAP", "PYRKLOG_CONFIG", "PYRKLOG_PROFILE", "PYRKLOG_TRACEBACK")
)
INT32_MAX = 2**31 - 1
TIMEOUT_MAX_S = 86_400.0
"""A day; milliseconds must fit an int32."""


class OutputFormat(StrEnum):
    """Values of ``-o`` of commands that list something."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    JSONL = "jsonl"
    YAML = "yaml"
    CSV = "csv"
    NAME = "name"


def option(names: str, about: str, default: Any = ..., **more: Any) -> Any:
    """``names`` as in the help: ``-n, --count N``."""
    *others, last = names.split(", ")
    name, _, metavar = last.partition(" ")
    return typer.Option(default, *others, name, metavar=metavar or None, help=about, **more)


def argument(metavar: str, about: str | None = None, default: Any = ..., **more: Any) -> Any:
    return typer.Argument(default, metavar=metavar, help=about, **more)


ZooKeeper = Annotated[
    str | None,
    option(
        "--zookeeper HOST:PORT/CHROOT",
        "Be a broker of the cluster that ZooKeeper keeps there; without it, one alone.",
    ),
]
BrokerId = Annotated[
    str | None,
    option(
        "--broker-id N",
        "Number of the broker in its cluster. Default: the data's, else the next one.",
    ),
]
AdoptZooKeeper = Annotated[
    str | None,
    option(
        "--adopt-zookeeper HOST:PORT/CHROOT",
        "Where the topics' options are, at the first start on a directory of a Kafka "
        "with ZooKeeper.",
    ),
]
Bootstrap = Annotated[
    str | None,
    option(
        "-b, --bootstrap-server HOST:PORT",
        "Broker to start from, or several with commas; without :PORT 9092; environment "
        f"PYRKLOG_BOOTSTRAP; default: the profile's, or {DEFAULT_BOOTSTRAP}.",
    ),
]
ProfileName = Annotated[
    str | None,
    option(
        "--profile NAME",
        "Profile to use (see `pyrklog profile`), or none; environment PYRKLOG_PROFILE.",
    ),
]
Properties = Annotated[
    list[str] | None, option("-X, --property K=V", "Any property of librdkafka; may be repeated.")
]
Timeout = Annotated[
    float | None,
    option(
        "--timeout SECONDS",
        f"How long to wait for the broker; default {DEFAULT_TIMEOUT_S:g}.",
        min=0.1,
    ),
]
Verbose = Annotated[bool, option("-v, --verbose", "Say more, on standard error.")]
Quiet = Annotated[bool, option("-q, --quiet", "Say nothing but errors.")]
Output = Annotated[
    OutputFormat, option("-o, --output", "How to print what is listed.", case_sensitive=False)
]
DryRun = Annotated[bool, option("--dry-run", "Let the broker check it, but change nothing.")]
OnlySaid = Annotated[bool, option("--dry-run", "Only say what would be done; send nothing.")]
MaxFill = Annotated[
    str | None,
    option("--max-fill PERCENT", "Copy nothing to a disk that would be fuller; default: 90%."),
]
Yes = Annotated[bool, option("-y, --yes", "Do not ask.")]
Filters = Annotated[
    list[str] | None,
    option(
        "--filter CONDITION",
        "Only records for which it holds, such as header:NAME=TEXT, value.a.b!=1, key~REGEX or "
        "timestamp>@-1d; may be repeated.",
    ),
]


Places = Annotated[
    list[str] | None,
    argument("[TOPIC[:P]...]", "Topics, or single partitions of them; default: all."),
]


@dataclass(frozen=True)
class Given:
    """What the command line says before and behind a command; None: nothing."""

    bootstrap: str | None = None
    profile: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float | None = None
    verbose: bool = False
    quiet: bool = False
    confirmed: str | None = None
    """The profile's name, from ``--confirm``."""


@dataclass(frozen=True)
class Settings:
    bootstrap: str = DEFAULT_BOOTSTRAP
    properties: dict[str, str] = field(default_factory=dict)
    timeout_s: float = DEFAULT_TIMEOUT_S
    verbose: bool = False
    quiet: bool = False
    bootstrap_option: str = "-b"
    """What the broker was given with, for errors."""
    property_option: str = "-X"
    """The same of the properties."""
    profile: "Profile | None" = None
    is_profiles_broker: bool = False
    """Whether the profile has chosen the broker."""

    @property
    def security_protocol(self) -> str:
        """In lower case: ``plaintext``, ``ssl``, ``sasl_ssl``, ..."""
        return self.properties.get("security.protocol", "plaintext").strip().lower()


def given(
    context: typer.Context,
    bootstrap: str | None = None,
    profile: str | None = None,
    properties: list[str] | None = None,
    timeout_s: float | None = None,
    verbose: bool = False,
    quiet: bool = False,
) -> Given:
    """These options, and those before the command where these say nothing."""
    base = context.find_object(Given) or Given()
    if timeout_s is not None and not timeout_s <= TIMEOUT_MAX_S:
        what = f"--timeout takes up to {TIMEOUT_MAX_S:g} seconds, not {timeout_s:g}"
        raise CliError(Problem.ARGUMENT_VALUE, what)
    pairs = parse_pairs(properties, "-X")
    refuse_brokers(pairs)
    return replace(
        base,
        bootstrap=base.bootstrap if bootstrap is None else bootstrap,
        profile=base.profile if profile is None else profile,
        properties={**base.properties, **pairs},
        timeout_s=base.timeout_s if timeout_s is None else timeout_s,
        verbose=base.verbose or verbose,
        quiet=base.quiet or quiet,
    )


def settings(given: Given, profile: "Profile | None" = None) -> Settings:
    """The command line before the environment, the environment before the profile. A profile that
    the command line names comes before the environment's broker."""
    import os

    named = DEFAULT_BOOTSTRAP if profile is None else profile.bootstrap
    of_environment = os.environ.get("PYRKLOG_BOOTSTRAP") or None
    is_chosen = profile is not None and named is not None
    if given.bootstrap is not None:
        bootstrap, is_chosen = given.bootstrap, False
    elif of_environment is not None and not (is_chosen and given.profile):
        bootstrap, is_chosen = of_environment, False
    else:
        bootstrap = named or DEFAULT_BOOTSTRAP
    return Settings(
        bootstrap=bootstrap,
        properties={**({} if profile is None else profile.properties), **given.properties},
        timeout_s=DEFAULT_TIMEOUT_S if given.timeout_s is None else given.timeout_s,
        verbose=given.verbose,
        quiet=given.quiet,
        profile=profile,
        is_profiles_broker=is_chosen,
    )


def _selected_profile(given: Given) -> "Profile | None":
    import os

    from pyrklog.cli import colour, profiles

    if given.profile is not None:  # from an unset variable: not the broker that is meant
        refuse_empty("--profile", "profile", [given.profile])
    found = profiles.load(os.environ)
    name = found.selected(given.profile, os.environ)
    profile = None if name is None else found.get(name)
    colour.choose(colour.AUTO if profile is None else profile.colour)
    if profile is not None and not given.quiet:
        profiles.tell_open_secrets(found.path, profile)
    return profile


def refuse_brokers(properties: Iterable[str]) -> None:
    """Refuses brokers among the properties: a command would act on those of ``-b`` instead."""
    name = next((name for name in properties if name in _BROKERS), None)
    if name is not None:
        what = f"-X {name} does not choose the broker"
        raise CliError(Problem.ARGUMENTS_DISAGREE, what, "give the broker with -b HOST:PORT")


def _tell_unknown_variables() -> None:
    """Warns of unknown variables: a misspelled ``PYRKLOG_BOOTSTRAP`` would silently lead to another
    broker."""
    import os

    ours = [name for name in os.environ if name.startswith("PYRKLOG_")]
    if set(ours) <= _OF_COMMANDS:
        return  # the table of options loads slowly
    from pyrklog.config.load import unknown_variables

    for notice in unknown_variables(ours):
        typer.echo(f"note: {notice}", err=True)


def parse_pairs(pairs: list[str] | None, option: str) -> dict[str, str]:
    """Parses ``K=V`` texts."""
    found: dict[str, str] = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise CliError(Problem.ARGUMENT_VALUE, f"{option} takes KEY=VALUE, not {pair!r}")
        found[name.strip()] = value
    return found


_SHARED: dict[str, tuple[Any, Any]] = {
    "bootstrap": (Bootstrap, None),
    "profile": (ProfileName, None),
    "properties": (Properties, None),
    "timeout_s": (Timeout, None),
    "verbose": (Verbose, False),
    "quiet": (Quiet, False),
}
_EVERYWHERE: dict[str, tuple[Any, Any]] = {
    "verbose": (Annotated[bool, option("-v, --verbose", "", hidden=True)], False),
    "quiet": (Annotated[bool, option("-q, --quiet", "", hidden=True)], False),
}
"""Shared options that commands take without showing them, because they change little there."""
CONNECTION = ("bootstrap", "profile", "properties", "timeout_s")
_WITHOUT_BROKER_OPTION = ("mirror run",)
"""Commands that change clusters which they name with options of their own."""


def command_group(about: str) -> Commands:
    """Commands of one subject."""
    return Commands(help=about, no_args_is_help=True, rich_markup_mode=None)


def with_settings(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Guards a command, and makes its ``options: Settings`` of these shared options, which follow
    the command's own, and of hidden ``-v`` and ``-q``."""
    added_options = {**_EVERYWHERE, **{name: _SHARED[name] for name in names}}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(context: typer.Context, **own: Any) -> None:
            shared = {name: own.pop(name) for name in added_options}
            found = given(context, **shared)
            if not found.quiet:
                _tell_unknown_variables()
            path = " ".join(context.command_path.split()[1:])
            profile = None
            if "profile" in names or path in _WITHOUT_BROKER_OPTION:
                profile = _selected_profile(found)
            if profile is not None:
                from pyrklog.cli.profile_guard import check

                check(path, own, profile, found.confirmed)
            command(settings(found, profile), **own)

        _, *parameters = signature(command, eval_str=True).parameters.values()
        kind = Parameter.POSITIONAL_OR_KEYWORD
        added = [
            Parameter(name, kind, annotation=annotation, default=default)
            for name, (annotation, default) in added_options.items()
        ]
        context = Parameter("context", kind, annotation=typer.Context)
        run.__signature__ = Signature([context, *parameters, *added])  # type: ignore[attr-defined]
        return guarded(run)

    return decorate


def command(
    group: typer.Typer, name: str, *shared: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command of a group; see :func:`with_settings`."""
    return lambda run: group.command(name)(with_settings(*shared)(run))
