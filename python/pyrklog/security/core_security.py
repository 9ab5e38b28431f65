"""What the Rust side of a client is given: read there by the names of the fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

CorePem = tuple[str, str]
"""Where it comes from, for messages; PEM."""
CoreToken = tuple[str, float | None, list[tuple[str, str]]]
"""Token, seconds of life or None, extensions of SASL."""


class CoreSecurity(NamedTuple):
    """Of ``rust/bridge/src/security.rs``. ``mechanism`` is empty without SASL."""

    is_tls: bool = False
    roots: CorePem | None = None
    identity: tuple[CorePem, CorePem] | None = None
    key_password: str | None = None
    checks_name: bool = True
    mechanism: str = ""
    username: str = ""
    password: str = ""
    token: Callable[[], CoreToken] | None = None

    def __repr__(self) -> str:
        return f"CoreSecurity(is_tls={self.is_tls}, mechanism={self.mechanism!r})"
