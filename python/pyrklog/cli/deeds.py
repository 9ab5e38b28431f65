"""What a command has done: sentences for people, or a document (``-o``) of the same.

``@telling`` below ``@command`` gives a command ``-o``. Lines of :func:`tell_done` become items
then: ``kind`` and ``name`` of what was changed, ``result``, and ``done``, which is false after
``--dry-run``. Lines of ``say`` are items with a result alone.
"""

from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any

import typer

from pyrklog.cli.options import Output, OutputFormat, Settings

SCHEMA = "pyrklog.done/1"
_PAGES = (OutputFormat.TABLE, OutputFormat.WIDE)

_items: ContextVar[list[dict[str, Any]] | None] = ContextVar("done", default=None)
"""What the running command has told; None where it tells people."""


def tell_done(
    options: Settings,
    line: str,
    *,
    kind: str | None = None,
    name: str | None = None,
    result: str | None = None,
) -> None:
    """``result`` is the line unless that begins with the name."""
    items = _items.get()
    if items is not None:
        items.append({"kind": kind, "name": name, "result": line if result is None else result})
    elif not options.quiet:
        typer.echo(line)


def is_document() -> bool:
    """Whether the running command prints a document, and so nothing else."""
    return _items.get() is not None


def telling(run: Callable[..., None]) -> Callable[..., None]:
    """Of a command: ``-o``, which prints what it told once it ends, also by a failure."""

    @wraps(run)
    def wrapper(options: Settings, *, output: OutputFormat, **own: Any) -> None:
        if output in _PAGES:
            run(options, **own)
            return
        items: list[dict[str, Any]] = []
        token = _items.set(items)
        try:
            run(options, **own)
        except BaseException:
            if items:
                _print(items, output, is_dry=bool(own.get("dry_run")))
            raise
        finally:
            _items.reset(token)
        _print(items, output, is_dry=bool(own.get("dry_run")))

    parameters = signature(run, eval_str=True).parameters.values()
    kind = Parameter.POSITIONAL_OR_KEYWORD
    added = Parameter("output", kind, annotation=Output, default=OutputFormat.TABLE)
    wrapper.__signature__ = Signature([*parameters, added])  # type: ignore[attr-defined]
    return wrapper


def _print(items: list[dict[str, Any]], output: OutputFormat, *, is_dry: bool) -> None:
    from pyrklog.cli.output import Listing, columns, print_listing

    told = [{**one, "done": not is_dry} for one in items]
    print_listing(Listing(SCHEMA, columns("kind, name, result, done"), told), output)
