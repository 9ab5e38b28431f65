"""Usage lines as other tools have them: ``TOPIC...``, not ``{TOPIC...}``."""

from collections.abc import Callable
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand

F = TypeVar("F", bound=Callable[..., Any])


class PlainUsage(TyperCommand):
    """Typer puts what must be given in braces, which mean a choice elsewhere."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [_plain(one) for one in super().collect_usage_pieces(ctx)]


def _plain(piece: str) -> str:
    is_choice = "|" in piece
    return piece if is_choice or not piece.startswith("{") else piece[1:-1]


class Commands(typer.Typer):
    """Commands with such lines."""

    def command(self, name: str | None = None, **more: Any) -> Callable[[F], F]:
        more.setdefault("cls", PlainUsage)
        return super().command(name, **more)
