"""``pyrklog profile``: list, show, use, create, edit, delete, import."""

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyrklog.base.problems import Problem
from pyrklog.cli.admin_common import confirm, say, show
from pyrklog.cli.colour import AUTO, MODES
from pyrklog.cli.deeds import tell_done, telling
from pyrklog.cli.failures import CliError, refuse_empty
from pyrklog.cli.options import (
    Output,
    OutputFormat,
    Properties,
    Settings,
    Yes,
    argument,
    command,
    command_group,
    option,
    parse_pairs,
)
from pyrklog.cli.profiles import (
    HIDDEN,
    PROFILE_VARIABLE,
    WITHOUT,
    Profile,
    Profiles,
    config_path,
    is_secret,
    load,
    refuse_bad_name,
)

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

app = command_group("Keep clusters' brokers, options and guards under names, and choose one.")

Name = Annotated[str, argument("NAME")]
OnlyChecked = Annotated[bool, option("--dry-run", "Check it and say it, but write nothing.")]
Brokers = Annotated[
    str | None,
    option("-b, --bootstrap-server HOST:PORT,...", "Brokers to start from."),
]
Colour = Annotated[str | None, option("--colour MODE", f"{', '.join(MODES)}.")]
Asked = Annotated[
    list[str] | None,
    option("--ask K", "Ask for this property's value, without showing it; may be repeated."),
]


@command(app, "list")
def list_profiles(_options: Settings, output: Output = OutputFormat.TABLE) -> None:
    """List profiles; the one in use has a star."""
    from pyrklog.cli.output import Listing, columns

    found = load(os.environ)
    used = found.selected(None, os.environ)
    items = [{**_item(found.get(name)), "in_use": name == used} for name in found.names()]
    shown = [{**one, "used": "*" if one["in_use"] else ""} for one in items]
    is_for_people = output in (OutputFormat.TABLE, OutputFormat.WIDE)
    heads = columns(
        "name, used IN USE, brokers, security, read_only READ-ONLY, confirm, colour*, dev*"
        if is_for_people
        else "name, in_use, brokers, security, read_only, confirm, colour, dev"
    )
    show(Listing("pyrklog.profiles/1", heads, shown if is_for_people else items), output)


@command(app, "show")
def show_profile(
    _options: Settings,
    name: str | None = argument("[NAME]", "Default: the one in use.", None),
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show what a profile says; passwords are hidden."""
    from pyrklog.cli.output import Listing, columns

    found = load(os.environ)
    wanted = found.selected(None, os.environ) if name is None else name
    if wanted is None:
        raise CliError(
            Problem.PROFILE_NOT_FOUND, "no profile is in use", "see `pyrklog profile list`"
        )
    profile = found.get(wanted)
    if output in (OutputFormat.JSON, OutputFormat.YAML, OutputFormat.JSONL):
        items = [{**_item(profile), "properties": _shown_properties(profile)}]
        show(Listing("pyrklog.profile/1", columns("name"), items), output)
        return
    rows = [(key, value) for key, value in _item(profile).items() if value is not None]
    rows += [(f"-X {key}", value) for key, value in _shown_properties(profile).items()]
    items = [{"key": key, "value": value} for key, value in rows]
    show(Listing("pyrklog.profile/1", columns("key, value"), items), output)


@command(app, "use", "quiet")
@telling
def use(
    options: Settings,
    name: str = argument("NAME", f"{WITHOUT}: no profile from now on."),
    dry_run: OnlyChecked = False,
) -> None:
    """Use a profile from now on, wherever -p and PYRKLOG_PROFILE name no other."""
    from pyrklog.cli.profile_file import select

    wanted = None if name == WITHOUT else name
    if wanted is not None:
        load(os.environ).get(wanted)
    _change(lambda document: select(document, wanted), dry_run)
    result = "in use" if wanted is not None else "not in use"
    line = "no profile is in use" if wanted is None else f"{name} is in use"
    _tell(options, name, line, result, dry_run)
    others = os.environ.get(PROFILE_VARIABLE)
    if others and others != name and not options.quiet:
        typer.echo(f"note: {PROFILE_VARIABLE}={others} in the environment hides it", err=True)


@command(app, "create", "quiet")
@telling
def create(
    options: Settings,
    name: Name,
    brokers: Brokers = None,
    properties: Properties = None,
    asked: Asked = None,
    colour: Colour = None,
    read_only: bool = option("--read-only", "Refuse every command that changes a cluster.", False),
    by_name: bool = option("--confirm-name", "Ask for the name before a change.", False),
    chosen: bool = option("--use", "Use it from now on.", False),
    dry_run: OnlyChecked = False,
) -> None:
    """Write a new profile."""
    from pyrklog.cli.profile_file import put, select

    refuse_bad_name(name)
    _refuse_existing(load(os.environ), [name])
    profile = Profile(
        name=name,
        brokers=_brokers(brokers),
        properties=_properties(properties, asked),
        colour=_mode(colour),
        read_only=read_only,
        confirm=by_name,
    )

    def act(document: "TOMLDocument") -> None:
        put(document, profile)
        if chosen:
            select(document, name)

    _change(act, dry_run)
    result = "created" + (", and in use" if chosen else "")
    _tell(options, name, f"{name} {result}", result, dry_run)


@command(app, "edit", "quiet")
@telling
def edit(
    options: Settings,
    name: str | None = argument("[NAME]", "What to change with the options.", None),
    brokers: Brokers = None,
    properties: Properties = None,
    asked: Asked = None,
    unset: list[str] | None = option("--unset K", "Remove a property; may be repeated.", None),
    colour: Colour = None,
    read_only: bool | None = option("--read-only/--no-read-only", "Refuse changes.", None),
    by_name: bool | None = option("--confirm-name/--no-confirm-name", "Ask for the name.", None),
    dry_run: OnlyChecked = False,
) -> None:
    """Change a profile by options, or the whole file with $VISUAL or $EDITOR."""
    changes = (brokers, properties, asked, unset, colour, read_only, by_name)
    if all(one is None or one == [] for one in changes):
        from pyrklog.cli.profile_editor import edit_file

        if dry_run:
            fix = "give the change by options, or leave --dry-run out"
            raise CliError(Problem.ARGUMENTS_DISAGREE, "--dry-run opens no editor", fix)
        if name is not None:
            load(os.environ).get(name)
        path = config_path(os.environ)
        say(options, f"{path} {'changed' if edit_file(path, os.environ) else 'stays as it was'}")
        return
    if name is None:
        raise CliError(
            Problem.ARGUMENT_MISSING,
            "which profile?",
            "`pyrklog profile edit NAME` with the options",
        )
    before = load(os.environ).get(name)
    kept = {key: one for key, one in before.properties.items() if key not in (unset or [])}
    for key in unset or []:
        if key not in before.properties:
            raise CliError(Problem.PROFILE_NOT_FOUND, f"profile {name} has no property {key}")
    after = replace(
        before,
        brokers=before.brokers if brokers is None else _brokers(brokers),
        properties={**kept, **_properties(properties, asked)},
        colour=before.colour if colour is None else _mode(colour),
        read_only=before.read_only if read_only is None else read_only,
        confirm=before.confirm if by_name is None else by_name,
    )
    from pyrklog.cli.profile_file import put

    _change(lambda document: put(document, after), dry_run)
    _tell(options, name, f"{name} changed", "changed", dry_run)


@command(app, "delete", "quiet")
@telling
def delete(options: Settings, name: Name, yes: Yes = False, dry_run: OnlyChecked = False) -> None:
    """Delete a profile. Asks for the name, unless -y is given."""
    from pyrklog.cli.profile_file import remove

    found = load(os.environ)
    if name not in found.tables:
        found.get(name)  # says that it is missing
    if not yes and not dry_run:
        confirm([name])
    _change(lambda document: remove(document, name), dry_run)
    _tell(options, name, f"{name} deleted", "deleted", dry_run)
    if found.chosen == name and not dry_run:
        say(options, "no profile is in use")


@command(app, "import", "quiet")
def import_profiles(
    options: Settings,
    kind: str = argument("KIND", "rpk, kaf, java or librdkafka."),
    file: str | None = argument(
        "[FILE]",
        "Default: rpk's rpk.yaml, kaf's config, for librdkafka kcat.conf.",
        None,
    ),
    name: str | None = option(
        "--name NAME",
        "Of rpk and kaf: only this one. Of the others: its name here; default: the file's.",
        None,
    ),
    again: bool = option("--replace", "Write over profiles of the same names.", False),
    chosen: bool = option("--use", "Use the only, or the current one from now on.", False),
    dry_run: OnlyChecked = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Take over other tools' clusters as profiles, and name what was passed over."""
    from pyrklog.cli.output import Listing, columns
    from pyrklog.cli.profile_file import put, select
    from pyrklog.cli.profile_import import read

    if name is not None:
        refuse_empty("--name", "profile", [name])
    found = read(kind, file, name, os.environ)
    if not again:
        _refuse_existing(load(os.environ), [one.profile.name for one in found.profiles])
    current = found.current if len(found.profiles) > 1 else found.profiles[0].profile.name
    if chosen and current is None:
        raise CliError(
            Problem.ARGUMENT_MISSING, "which one is to be used?", "give --name, or leave out --use"
        )

    def act(document: "TOMLDocument") -> None:
        for one in found.profiles:
            put(document, one.profile)
        if chosen:
            select(document, current)

    _change(act, dry_run)
    items = [
        {
            "name": one.profile.name,
            "brokers": list(one.profile.brokers),
            "properties": list(one.profile.properties),
            "passed_over": list(one.passed_over),
        }
        for one in found.profiles
    ]
    heads = columns("name, brokers, properties TAKEN, passed_over PASSED OVER")
    show(Listing("pyrklog.imported-profiles/1", heads, items), output)
    if found.passed_over:
        told = f"note: {found.path}: passed over: {', '.join(found.passed_over)}"
        typer.echo(told, err=True)
    if not options.quiet and (chosen or dry_run):
        used = f"{current} is in use" if chosen else "nothing was written"
        typer.echo(f"note: {f'{used} (not done)' if dry_run and chosen else used}", err=True)


def _change(act: "Callable[[TOMLDocument], None]", dry_run: bool) -> None:
    from pyrklog.cli.profile_file import change, checked

    if dry_run:
        checked(config_path(os.environ), act)
    else:
        change(config_path(os.environ), act)


def _tell(options: Settings, name: str, line: str, result: str, dry_run: bool) -> None:
    would = " (not done)" if dry_run else ""
    tell_done(options, f"{line}{would}", kind="profile", name=name, result=result)


def _refuse_existing(found: Profiles, names: list[str]) -> None:
    there = [name for name in names if name in found.tables]
    if there:
        what = f"there is a profile {there[0]} in {found.path}"
        raise CliError(
            Problem.PROFILE_EXISTS, what, "choose another name, or `pyrklog profile edit` it"
        )


def _brokers(text: str | None) -> tuple[str, ...]:
    from pyrklog.cli.bootstrap import addresses

    if text is None:
        return ()
    addresses(text)
    return tuple(one.strip() for one in text.split(",") if one.strip())


def _properties(pairs: list[str] | None, asked: list[str] | None) -> dict[str, str]:
    from pyrklog.cli.options import refuse_brokers

    given = parse_pairs(pairs, "-X")
    refuse_brokers([*given, *(asked or [])])
    return {**given, **{key: _asked_value(key) for key in asked or []}}


def _asked_value(key: str) -> str:
    """Typed without being shown, or a line of standard input."""
    if not sys.stdin.isatty():
        line = sys.stdin.readline()
        if not line:
            what = f"standard input has no line for {key}"
            raise CliError(Problem.ARGUMENT_MISSING, what, f"type it, or pipe it to --ask {key}")
        return line.rstrip("\n")
    try:
        return str(typer.prompt(key, hide_input=True, err=True))
    except typer.Abort:
        raise CliError(Problem.STOPPED, "nothing was changed") from None


def _mode(text: str | None) -> str:
    if text is not None and text not in MODES:
        raise CliError(Problem.ARGUMENT_VALUE, f"--colour takes {', '.join(MODES)}, not {text!r}")
    return text or AUTO


def _item(profile: Profile) -> dict[str, Any]:
    return {
        "name": profile.name,
        "brokers": list(profile.brokers),
        "security": _security(profile),
        "read_only": profile.read_only,
        "confirm": profile.confirm,
        "colour": profile.colour,
        "dev": profile.dev,
    }


def _security(profile: Profile) -> str:
    protocol = profile.properties.get("security.protocol", "plaintext").lower()
    mechanism = profile.properties.get("sasl.mechanism") or profile.properties.get(
        "sasl.mechanisms"
    )
    return f"{protocol} {mechanism}" if mechanism and "sasl" in protocol else protocol


def _shown_properties(profile: Profile) -> dict[str, str]:
    return {key: HIDDEN if is_secret(key) else value for key, value in profile.properties.items()}
