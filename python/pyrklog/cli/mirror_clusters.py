"""The two clusters of ``pyrklog mirror``: their options, and whether they let the mirror in.

No sentence here has the value of an option: it may be a password.
"""

import re
from collections.abc import Callable, Sequence
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn

import typer

from pyrklog.base.problems import Problem
from pyrklog.cli.failures import CliError, refuse_empty, unread
from pyrklog.cli.options import Settings, option

if TYPE_CHECKING:
    from pyrklog.mirror import Cluster, MirrorError, Names
    from pyrklog.mirror.cluster import ClusterAdmin
    from pyrklog.security import Security

FROM, TO = "--from", "--to"
ALIASES = {FROM: "source", TO: "target"}
"""Unless others are given, as MirrorMaker's."""
_PLACE = re.compile(r"(?:([^=:,]*)=)?(.+)", re.DOTALL)
_NAME = re.compile(r"[\w.-]+", re.ASCII)
_SECURITY = ("security.", "sasl.", "ssl.")
_ABOUT = "Option of TLS or SASL for that cluster"
_FILE = "Client properties of Java or librdkafka with options of TLS and SASL for that cluster."
_TEXT = Parameter.empty
_OPTIONS: dict[str, tuple[Any, Any]] = {
    "from_place": (
        Annotated[
            str,
            option(
                f"{FROM} [ALIAS=]HOST:PORT",
                "A broker of the cluster to copy from; several with commas.",
            ),
        ],
        _TEXT,
    ),
    "to_place": (
        Annotated[
            str,
            option(
                f"{TO} [ALIAS=]HOST:PORT",
                "A broker of the cluster to copy to; several with commas.",
            ),
        ],
        _TEXT,
    ),
}
_SECURITY_OPTIONS: dict[str, tuple[Any, Any]] = {
    "from_file": (Annotated[str | None, option(f"{FROM}-config FILE", _FILE)], None),
    "from_pairs": (
        Annotated[
            list[str] | None,
            option(f"{FROM}-X, {FROM}-property K=V", f"{_ABOUT}; may be repeated."),
        ],
        None,
    ),
    "to_file": (Annotated[str | None, option(f"{TO}-config FILE", _FILE)], None),
    "to_pairs": (
        Annotated[
            list[str] | None, option(f"{TO}-X, {TO}-property K=V", f"{_ABOUT}; may be repeated.")
        ],
        None,
    ),
}


class Side(NamedTuple):
    """What the command line says of a cluster; ``name`` is its option."""

    name: str
    place: str
    file: str | None = None
    pairs: list[str] | None = None


class Sides(NamedTuple):
    source: Side
    target: Side


def with_sides(command: Callable[..., None]) -> Callable[..., None]:
    """Makes a command's ``sides: Sides``, its second parameter, of the options of both clusters."""

    @wraps(command)
    def run(*given: Any, **more: Any) -> None:
        source = Side(FROM, *(more.pop(f"from_{name}") for name in ("place", "file", "pairs")))
        target = Side(TO, *(more.pop(f"to_{name}") for name in ("place", "file", "pairs")))
        command(*given, Sides(source, target), **more)

    kind = Parameter.POSITIONAL_OR_KEYWORD
    first, _, *own = signature(command, eval_str=True).parameters.values()
    before, behind = (
        [
            Parameter(name, kind, annotation=annotation, default=default)
            for name, (annotation, default) in options.items()
        ]
        for options in (_OPTIONS, _SECURITY_OPTIONS)
    )
    run.__signature__ = Signature([first, *before, *own, *behind])  # type: ignore[attr-defined]
    return run


def places(
    options: Settings, sides: Sides, policy: str | None, name: str | None
) -> "tuple[Cluster, Cluster, Names]":
    """Raises :class:`CliError`. Names that do not depend on the policy are asked for without."""
    from pyrklog.mirror import MirrorError, Names, Policy

    if options.properties:
        what = "mirror does not take -X: it has two clusters"
        raise CliError(Problem.ARGUMENTS_DISAGREE, what, f"give {FROM}-property or {TO}-property")
    source, target = (_cluster(options, side) for side in sides)
    kind = Policy.IDENTITY if policy is None else Policy(policy)
    if name is not None:
        refuse_empty("--name", "mirror", [name])
    try:
        own = source.alias if name is None else name
        return source, target, Names(source.alias, target.alias, kind, own)
    except MirrorError as error:
        fail(error)


def _cluster(options: Settings, side: Side) -> "Cluster":
    from pyrklog.cli.bootstrap import addresses
    from pyrklog.mirror import Cluster

    refuse_empty(side.name, "broker", [side.place])
    found = _PLACE.fullmatch(side.place)
    assert found is not None
    if "=" in found[2]:
        what = f"{side.name} takes one alias, before all brokers"
        raise CliError(
            Problem.ARGUMENT_VALUE, what, f"for example {side.name} east=HOST:PORT,HOST:PORT"
        )
    bootstrap = ",".join(f"{host}:{port}" for host, port in addresses(found[2]))
    alias = ALIASES[side.name] if found[1] is None else found[1]
    return Cluster(alias, bootstrap, _security(options, side))


def _security(options: Settings, side: Side) -> "Security":
    from pyrklog.cli.option_advice import like_option
    from pyrklog.security import OPTIONS, security_of

    given: dict[str, str] = {}
    if side.file is not None:
        given = _of_file(options, side.file)
    given |= _of_pairs(f"{side.name}-property", side.pairs or [])
    try:
        return security_of(given)
    except ValueError as error:
        what = "; ".join(str(error).splitlines())
        raise CliError(
            Problem.ARGUMENT_VALUE, f"{side.name}: {what}", like_option(given, OPTIONS)
        ) from None


def _of_pairs(name: str, pairs: list[str]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not _NAME.fullmatch(key.strip()):
            raise CliError(
                Problem.ARGUMENT_VALUE, f"{name} takes KEY=VALUE, such as security.protocol=SSL"
            )
        found[key.strip()] = value
    return found


def _of_file(options: Settings, path: str) -> dict[str, str]:
    """Options of security; of others there may be some, which a note names."""
    from pyrklog.config.properties import PropertiesError, parse_properties

    try:
        properties = parse_properties(Path(path).read_text("utf-8"))
    except OSError as error:
        raise unread(path, error, Problem.FILE_CONTENT) from None
    except UnicodeDecodeError:
        raise CliError(Problem.FILE_CONTENT, f"{path} is no text in UTF-8") from None
    except PropertiesError as error:
        raise CliError(Problem.FILE_CONTENT, f"{path}, {error}") from None
    found, others = {}, []
    for one in properties:
        if not _NAME.fullmatch(one.key) or not (one.value or one.key.startswith(_SECURITY)):
            raise CliError(Problem.FILE_CONTENT, f"{path}, line {one.line} must be NAME=VALUE")
        if one.key.startswith(_SECURITY):
            found[one.key] = one.value
        else:
            others.append(one.key)
    _tell_passed_over(options, path, others)
    return found


def _tell_passed_over(options: Settings, path: str, names: Sequence[str]) -> None:
    if names and not options.quiet:
        what = "option" if len(names) == 1 else "options"
        named = ", ".join(dict.fromkeys(names))
        typer.echo(f"note: {path}: passed over, as no {what} of TLS or SASL: {named}", err=True)


def probe(options: Settings, source: "Cluster", target: "Cluster") -> None:
    """Raises :class:`CliError` at once if a cluster is not reached."""
    from dataclasses import replace

    from pyrklog.cli.connection import probe as probe_one

    for cluster, name in ((source, FROM), (target, TO)):
        probe_one(
            replace(
                options,
                bootstrap=cluster.bootstrap,
                bootstrap_option=name,
                is_profiles_broker=False,
                properties={"security.protocol": cluster.security.protocol},
                property_option=f"{name}-property",
            )
        )


def admins(
    options: Settings, source: "Cluster", target: "Cluster"
) -> "tuple[ClusterAdmin, ClusterAdmin]":
    """Of clusters that let the mirror in. Raises :class:`CliError`, MirrorError."""
    from pyrklog.mirror.cluster import ClusterAdmin

    probe(options, source, target)
    found = ClusterAdmin(source, options.timeout_s), ClusterAdmin(target, options.timeout_s)
    for admin in found:
        admin.check_access()
    return found


_PROBLEMS = {
    "FAILED": Problem.MIRROR_STOPPED,
    "USAGE": Problem.MIRROR_ARGUMENTS,
    "UNREACHABLE": Problem.BROKER_AWAY,
    "NOT_FOUND": Problem.MIRROR_NOT_FOUND,
    "DENIED": Problem.NOT_AUTHORIZED,
}
"""By the name of the mirror's kind of failure, which would load slowly."""


def fail(error: "MirrorError") -> NoReturn:
    raise CliError(_PROBLEMS[error.kind.name], error.what, error.fix) from None
