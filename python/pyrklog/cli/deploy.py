"""``pyrklog deploy``: files for running brokers as a service."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pyrklog.base.problems import Problem
from pyrklog.cli.admin_common import show
from pyrklog.cli.failures import CliError, guarded, not_written
from pyrklog.cli.options import Output, OutputFormat, argument, option

if TYPE_CHECKING:
    from pyrklog.deploy.files import Settings


@guarded
def deploy(
    kind: str | None = argument(
        "[KIND]", "systemd, container, logrotate, prometheus, alerts, runbooks or grafana.", None
    ),
    to: Path | None = option(
        "--to DIR", "Write the files there instead of printing one; made if it is missing.", None
    ),
    overwrite: bool = option("--overwrite", "Replace files that are there and differ.", False),
    program: Path | None = option(
        "--program PATH", "pyrklog in the systemd unit. Default: this one.", None
    ),
    runbooks: str | None = option(
        "--runbooks URL", "Where the alerts lead. Default: runbooks.md, without a host.", None
    ),
    output: Output = OutputFormat.TABLE,
) -> None:
    """Print or write what runs a broker as a service; without KIND, list what there is."""
    from pyrklog.deploy.files import KINDS, is_hidden

    settings = _settings(program, runbooks)
    if kind is None:
        _list(settings, output)
        return
    if kind not in KINDS:
        raise CliError(Problem.ARGUMENT_VALUE, f"deploy takes {', '.join(KINDS)}, not {kind!r}")
    files = KINDS[kind].files(settings)
    if kind == "systemd" and is_hidden(settings.program):
        typer.echo(
            f"note: the unit hides home directories (ProtectHome=yes) and would not find "
            f"{settings.program}; install pyrklog elsewhere, for example in /opt/pyrklog",
            err=True,
        )
    if to is not None:
        _write(files, to, overwrite=overwrite)
    elif len(files) == 1:
        sys.stdout.write(next(iter(files.values())))
    else:
        raise CliError(Problem.ARGUMENT_MISSING, f"{kind} is {len(files)} files", "give --to DIR")


def _settings(program: Path | None, runbooks: str | None) -> "Settings":
    from pyrklog.deploy.alerts import RUNBOOKS
    from pyrklog.deploy.files import Settings

    if program is not None and not (program.is_absolute() and str(program).isprintable()):
        what = f"--program takes an absolute path of printable characters, not {str(program)!a}"
        raise CliError(
            Problem.ARGUMENT_VALUE, what, "for example --program /opt/pyrklog/bin/pyrklog"
        )
    if runbooks is not None and (not runbooks.strip() or "#" in runbooks):
        what = f"--runbooks takes the address of a page without an anchor, not {runbooks!r}"
        raise CliError(
            Problem.ARGUMENT_VALUE, what, "for example --runbooks https://wiki.example/runbooks"
        )
    return Settings(program or _own_program(), RUNBOOKS if runbooks is None else runbooks)


def _own_program() -> Path:
    """Links are not resolved: a virtual environment is what a link is in."""
    started = Path(sys.argv[0])
    if started.name == "pyrklog":
        return started.absolute()
    return Path(sys.executable).with_name("pyrklog")  # python -m pyrklog


def _list(settings: "Settings", output: OutputFormat) -> None:
    from pyrklog.cli.output import Listing, columns
    from pyrklog.deploy.files import KINDS

    items = [
        {"kind": name, "about": kind.about, "files": list(kind.files(settings))}
        for name, kind in KINDS.items()
    ]
    show(Listing("pyrklog.deploy/1", columns("kind, files, about WHAT IT IS"), items), output)


def _write(files: Mapping[str, str], to: Path, *, overwrite: bool) -> None:
    """All files or, where one is in the way, none."""
    texts = {to / name: text for name, text in files.items()}
    states = {path: _state(path, text) for path, text in texts.items()}
    differing = [str(path) for path, state in states.items() if state == "differs"]
    if differing and not overwrite:
        what = f"{', '.join(differing)} is there and differs"
        raise CliError(Problem.FILE_EXISTS, what, "--overwrite replaces it, or choose another --to")
    try:
        to.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            if states[path] != "same":
                path.write_text(text, encoding="utf-8")
            typer.echo(f"{path}{' is up to date' if states[path] == 'same' else ''}")
    except OSError as error:
        raise not_written(error) from error


def _state(path: Path, text: str) -> str:
    """``new``, ``same`` or ``differs``."""
    try:
        found = path.read_bytes()
    except FileNotFoundError:
        return "new"
    except OSError as error:
        raise not_written(error) from error
    return "same" if found == text.encode() else "differs"
