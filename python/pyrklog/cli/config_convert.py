"""``pyrklog config convert``: a broker's file in its other form, and what its options do here.

No sentence has a value of the file: it may be a password.
"""

import os
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import typer

from pyrklog.base.problems import Problem
from pyrklog.cli.failures import CliError, Exit, unread
from pyrklog.cli.profiles import is_secret
from pyrklog.config.broker import Given
from pyrklog.config.convert import known_option, to_properties, to_toml
from pyrklog.config.given_counts import Effect, effect_of
from pyrklog.config.instead import instead_of
from pyrklog.config.load import ENVIRONMENT_PREFIX, OF_COMMANDS, verdict_on, wrong_options
from pyrklog.config.properties import PropertiesError, parse_properties
from pyrklog.config.providers import PROVIDERS, is_definition
from pyrklog.config.toml_file import SUFFIX, is_toml, parse_toml
from pyrklog.errors import ConfigError

TOML, PROPERTIES = "toml", "properties"
FORMS = (TOML, PROPERTIES)


class Told(NamedTuple):
    """What was found. ``notes`` are about options, ``refusals`` about those with which a broker
    does not start."""

    text: str
    notes: Sequence[str]
    refusals: Sequence[str]


def convert(path: Path, form: str | None, out: Path | None, *, quiet: bool) -> Exit:
    """Writes the other form to ``out``, or to standard output. Raises :class:`CliError`."""
    there = TOML if is_toml(path) else PROPERTIES
    wanted = (PROPERTIES if there == TOML else TOML) if form is None else form
    _refuse_forms(path, there, wanted, out)
    told = converted(path, there)
    if out is None:
        sys.stdout.write(told.text)
        sys.stdout.flush()
    else:
        _write(path, out, told.text)
    if not quiet:
        for note in told.notes:
            typer.echo(f"note: {note}", err=True)
    for refusal in told.refusals:
        typer.echo(f"refused: {refusal}", err=True)
    return Exit.DIFFERS if told.refusals else Exit.OK


def _refuse_forms(path: Path, there: str, wanted: str, out: Path | None) -> None:
    if wanted not in FORMS:
        what = f"--to takes {' or '.join(FORMS)}, not {wanted!r}"
        raise CliError(Problem.ARGUMENT_VALUE, what)
    if wanted == there:
        how = f"ends in {SUFFIX}" if there == TOML else f"does not end in {SUFFIX}"
        what = f"{path} is {wanted} already: its name {how}"
        other = FORMS[1 - FORMS.index(wanted)]
        raise CliError(Problem.ARGUMENTS_DISAGREE, what, f"give --to {other}, or leave it out")
    if out is not None and is_toml(out) is not (wanted == TOML):
        must = "must end" if wanted == TOML else "must not end"
        what = f"the name {out} {must} in {SUFFIX}, by which a broker knows the form"
        raise CliError(Problem.ARGUMENTS_DISAGREE, what)


def converted(path: Path, there: str) -> Told:
    """Raises :class:`CliError`."""
    text = _read(path)
    try:
        found = parse_toml(text) if there == TOML else parse_properties(text)
        after = to_properties(text) if there == TOML else to_toml(text)
    except PropertiesError as error:
        raise CliError(Problem.FILE_CONTENT, f"{path}: {error}") from None
    given = {one.key: Given(one.value, f"{path.name} line {one.line}") for one in found}
    refused = _refusals(path, given)
    sentences = list(dict.fromkeys(sentence for _, sentence in refused))
    return Told(after, _notes(given, {name for name, _ in refused}), sentences)


def _read(path: Path) -> str:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise unread(path, error) from None
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")  # as a broker reads it


def _write(source: Path, out: Path, text: str) -> None:
    """A new file that nobody can read who cannot read the source."""
    try:
        mode = source.stat().st_mode & 0o666
        number = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        fix = "choose another name, or remove it first"
        raise CliError(Problem.FILE_EXISTS, f"{out} is there already", fix) from None
    with os.fdopen(number, "w", encoding="utf-8") as file:
        file.write(text)


def _refusals(path: Path, given: Mapping[str, Given]) -> list[tuple[str, str]]:
    """Options with which a broker does not start, each with a sentence; "" for several that do not
    go together."""
    found = []
    for name, value in given.items():
        error = verdict_on(name, value, given)
        if error is not None:
            found.append((name, sentence(error, given)))
    # Values may name variables of the environment, which gives no options here.
    environ = {
        name: text
        for name, text in os.environ.items()
        if not name.startswith(ENVIRONMENT_PREFIX) or name in OF_COMMANDS
    }
    wrong = wrong_options(path, environ, [name for name, _ in found])
    return [*found, *((name, sentence(error, given)) for name, error in wrong)]


def sentence(error: ConfigError, given: Mapping[str, Given]) -> str:
    whole = error.what.rstrip(".")
    whole += f": {error.why.rstrip('.')}" if error.why else ""
    whole += f"; {error.fix}" if error.fix else ""
    secrets = (one.text.strip() for name, one in given.items() if _is_secret(name))
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        whole = whole.replace(secret, "(hidden)")
    return whole


def _is_secret(name: str) -> bool:
    option = known_option(name)
    return is_secret(name) or (option is not None and option.is_secret)


def _notes(given: Mapping[str, Given], refused: Collection[str]) -> list[str]:
    by_effect: dict[Effect, list[str]] = {one: [] for one in Effect}
    for name in given:
        if name not in refused:
            by_effect[_effect_of(name, given)].append(name)
    notes = [
        f"{_counted(names, *_SAID[effect])}: {', '.join(names)}"
        for effect, names in by_effect.items()
        if names
    ]
    others = [*by_effect[Effect.NONE], *by_effect[Effect.JVM_ONLY], *filter(None, refused)]
    notes += [f"instead of {_named(names)}: {sentence}" for sentence, names in instead_of(others)]
    return notes


def _effect_of(name: str, given: Mapping[str, Given]) -> Effect:
    """Providers of values take effect, though a broker keeps no option of them."""
    if PROVIDERS in given and is_definition(name):
        return Effect.FULL
    return effect_of(name)


_SAID = {
    Effect.FULL: ("takes effect", "take effect"),
    Effect.NONE: ("has no effect in this version", "have no effect in this version"),
    Effect.JVM_ONLY: ("is for Java only, and ignored", "are for Java only, and ignored"),
    Effect.UNKNOWN: (
        "is unknown, as the settings of Kafka's plug-ins are, and ignored",
        "are unknown, as the settings of Kafka's plug-ins are, and ignored",
    ),
}


def _counted(names: Sequence[str], one: str, several: str) -> str:
    return f"1 option {one}" if len(names) == 1 else f"{len(names)} options {several}"


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(names[:2])
    return shown if len(names) <= 2 else f"{shown} and {len(names) - 2} more"
