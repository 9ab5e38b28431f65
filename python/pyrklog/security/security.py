"""How a client's connections are protected, and who the client says it is."""

from __future__ import annotations

import importlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyrklog.security.core_security import CorePem, CoreSecurity, CoreToken

TokenCallable = Callable[[str], tuple[Any, ...]]
"""As ``oauth_cb`` of confluent-kafka: from ``sasl.oauthbearer.config`` to (token, its end in
seconds since 1970[, principal[, extensions]])."""

_STATIC_TOKEN_S = 86_400.0
"""librdkafka wants an end: it asks again, and gets the same token."""


_BLOCK = re.compile(r"(-----BEGIN [A-Z ]+-----)([A-Za-z0-9+/=\s]*)(-----END [A-Z ]+-----)")


@dataclass(frozen=True)
class Pem:
    """PEM in a file, which is read where a client is opened, or as text."""

    option: str
    file: str | None = None
    text: str | None = field(default=None, repr=False)

    def read(self) -> CorePem:
        """Raises ValueError for a file that is none of PEM's, with how to convert it, and for one
        that cannot be read."""
        if self.text is not None:
            return self.option, _BLOCK.sub(_in_lines, self.text)
        assert self.file is not None
        source = f"{self.option} {self.file}"
        try:
            found = Path(self.file).read_bytes()
        except OSError as error:
            raise ValueError(f"{source} cannot be read: {error.strerror}") from error
        if found.startswith(b"\xfe\xed\xfe\xed"):
            raise ValueError(f"{source} is a JKS store: {CONVERT}")
        if b"-----BEGIN" not in found:
            raise ValueError(f"{source} has no PEM, perhaps PKCS12: {CONVERT}")
        return source, found.decode("utf-8", "replace")


def _is_token(found: object) -> bool:
    if not isinstance(found, tuple) or len(found) < 2:
        return False
    # Of other types the errors that follow would show values.
    return isinstance(found[0], str) and isinstance(found[1], (int, float))


def _in_lines(block: re.Match[str]) -> str:
    """Java's clients take blocks whose lines a file of properties has joined."""
    return "\n".join([block[1], *block[2].split(), block[3], ""])


CONVERT = (
    "convert certificates with keytool -exportcert -rfc -keystore STORE -alias ALIAS -file ca.pem, "
    "keys with openssl pkcs12 -in STORE -out client.pem (for JKS, keytool -importkeystore "
    "-deststoretype PKCS12 before)"
)


@dataclass(frozen=True)
class Security:
    """By default neither TLS nor SASL. Its ``repr`` has no secrets."""

    protocol: str = "PLAINTEXT"
    mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    token: str | None = field(default=None, repr=False)
    token_callable: TokenCallable | str | None = None
    """Itself, or ``MODULE:NAME``, which is imported where a client is opened."""
    token_config: str = field(default="", repr=False)
    ca: Pem | None = None
    certificate: Pem | None = None
    key: Pem | None = None
    key_password: str | None = field(default=None, repr=False)
    checks_name: bool = True

    @property
    def is_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def is_sasl(self) -> bool:
        return self.protocol.startswith("SASL")

    def core(self) -> CoreSecurity:
        """For a client in Rust. Raises ValueError for files and callables that cannot be used."""
        identity = None
        if self.is_tls and self.certificate is not None and self.key is not None:
            identity = (self.certificate.read(), self.key.read())
        is_bearer = self.is_sasl and self.mechanism == "OAUTHBEARER"
        return CoreSecurity(
            is_tls=self.is_tls,
            roots=self.ca.read() if self.is_tls and self.ca is not None else None,
            identity=identity,
            key_password=self.key_password,
            checks_name=self.checks_name,
            mechanism=self.mechanism if self.is_sasl else "",
            username=self.username,
            password=self.password,
            token=self._core_tokens() if is_bearer else None,
        )

    def librdkafka(self) -> dict[str, Any]:
        """The same for confluent-kafka's clients."""
        if self.protocol == "PLAINTEXT":
            return {}
        found: dict[str, Any] = {"security.protocol": self.protocol}
        if self.is_tls:
            names = (("ca", self.ca), ("certificate", self.certificate), ("key", self.key))
            for name, pem in names:
                if pem is not None:
                    found[f"ssl.{name}.pem"] = pem.read()[1]
            if self.key_password is not None:
                found["ssl.key.password"] = self.key_password
            check = "https" if self.checks_name else "none"
            found["ssl.endpoint.identification.algorithm"] = check
        if self.is_sasl:
            found["sasl.mechanism"] = self.mechanism
            if self.mechanism == "OAUTHBEARER":
                found["oauth_cb"] = self._callable()
                found["sasl.oauthbearer.config"] = self.token_config
            else:
                found["sasl.username"] = self.username
                found["sasl.password"] = self.password
        return found

    def _core_tokens(self) -> Callable[[], CoreToken]:
        if self.token is not None:
            static = self.token
            return lambda: (static, None, [])
        ask = self._callable()

        def tokens() -> CoreToken:
            found = ask(self.token_config)
            if not _is_token(found):
                raise TypeError("sasl.oauthbearer.callable gives no (token, end in seconds)")
            extensions = dict(found[3]) if len(found) > 3 and found[3] else {}
            return found[0], float(found[1]) - time.time(), list(extensions.items())

        return tokens

    def _callable(self) -> TokenCallable:
        if self.token is not None:
            static = self.token
            return lambda _: (static, time.time() + _STATIC_TOKEN_S)
        named = self.token_callable
        if not isinstance(named, str):
            assert named is not None
            return named
        module, _, name = named.partition(":")
        try:
            found: TokenCallable = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise ValueError(f"sasl.oauthbearer.callable is {named}: {error}") from error
        return found
