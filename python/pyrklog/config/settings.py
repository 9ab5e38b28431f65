"""Settings of a part of the broker, whose fields name the options that they have."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_origin, get_type_hints

if TYPE_CHECKING:
    from pyrklog.config.broker import BrokerConfig

Settings = TypeVar("Settings")


def from_options(kind: Callable[..., Settings], config: BrokerConfig, **others: Any) -> Settings:
    """Fills the fields ``Annotated[type, "option"]`` of a class; ``others`` are the other ones."""
    options = {
        name: config.value(hint.__metadata__[0])
        for name, hint in get_type_hints(kind, include_extras=True).items()
        if get_origin(hint) is Annotated
    }
    return kind(**options, **others)
