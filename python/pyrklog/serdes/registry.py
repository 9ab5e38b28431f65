"""A registry of schemas, as Confluent's, Redpanda's and others serve it over HTTP.

A password in the URL is sent (Basic), and is in no message.
"""

from __future__ import annotations

import json
import time
from base64 import b64encode
from http.client import HTTPException
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import quote, unquote, urlsplit, urlunsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from pyrklog.serdes.codec import SCHEMA_BYTES_MAX

TRIES = 3
PAUSE_S = 0.3
"""Before the second try; twice as long before the third."""
_MEDIA = "application/vnd.schemaregistry.v1+json"


class RegistryError(Exception):
    """The registry gives no usable answer."""


class RegistryDeniedError(RegistryError):
    """It wants a name and a password, or others."""


class SchemaMissingError(Exception):
    """It has no such schema or subject."""


class SchemaRefusedError(Exception):
    """It does not take a schema."""


class Reference(NamedTuple):
    name: str
    subject: str
    version: int


class Registered(NamedTuple):
    """``kind`` is AVRO, PROTOBUF or JSON."""

    schema_id: int
    kind: str
    text: str
    references: tuple[Reference, ...]


class _NoRedirect(HTTPRedirectHandler):
    """A password must not follow to another host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Registry:
    def __init__(self, url: str, timeout_s: float) -> None:
        """Raises ValueError for what is no URL of http or https."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("it takes http://HOST:PORT or https://HOST:PORT")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        place = host if parts.port is None else f"{host}:{parts.port}"
        self.url = urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", ""))
        self._timeout_s = timeout_s
        self._headers = {"Accept": f"{_MEDIA}, application/json"}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        # Like our other clients it reaches hosts directly.
        self._opener = build_opener(ProxyHandler({}), _NoRedirect())

    def schema(self, schema_id: int, *, serialized: bool = False) -> Registered:
        """``serialized``: Protobuf's as a descriptor in base64, by registries that can."""
        form = "?format=serialized" if serialized else ""
        return _registered(self._ask(f"/schemas/ids/{schema_id}{form}"), schema_id)

    def version(
        self, subject: str, version: int | None = None, *, serialized: bool = False
    ) -> Registered:
        """The latest one without a ``version``."""
        form = "?format=serialized" if serialized else ""
        which = "latest" if version is None else version
        path = f"/subjects/{quote(subject, safe='')}/versions/{which}{form}"
        return _registered(self._ask(path), None)

    def register(self, subject: str, kind: str, text: str) -> int:
        """The schema's id, also if it was there already."""
        told = {"schema": text} if kind == "AVRO" else {"schema": text, "schemaType": kind}
        answer = self._ask(f"/subjects/{quote(subject, safe='')}/versions", json.dumps(told))
        schema_id = answer.get("id")
        if not isinstance(schema_id, int):
            raise RegistryError("its answer has no id")
        return schema_id

    def _ask(self, path: str, body: str | None = None) -> dict[str, Any]:
        """Again after a while where it is away: a registry that restarts ends no long reading."""
        for number in range(1, TRIES + 1):
            try:
                return self._ask_once(path, body)
            except RegistryDeniedError:
                raise
            except RegistryError:
                if number == TRIES:
                    raise
                time.sleep(PAUSE_S * number)
        raise AssertionError("unreachable")

    def _ask_once(self, path: str, body: str | None) -> dict[str, Any]:
        data = None if body is None else body.encode()
        headers = self._headers if data is None else {**self._headers, "Content-Type": _MEDIA}
        request = Request(f"{self.url}{path}", data, headers)
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                text = answer.read(SCHEMA_BYTES_MAX + 1)
        except HTTPError as error:
            with error:
                raise _failure(error.code, error.read(10_000)) from None
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            told = getattr(reason, "strerror", None) or str(reason)
            raise RegistryError(told or type(error).__name__) from None
        if len(text) > SCHEMA_BYTES_MAX:
            raise RegistryError(f"its answer has more than {SCHEMA_BYTES_MAX} bytes")
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            raise RegistryError("its answer is no JSON; is it a registry of schemas?") from None
        if not isinstance(found, dict):
            raise RegistryError("its answer is no object; is it a registry of schemas?")
        return found


def _failure(status: int, body: bytes) -> Exception:
    try:
        message = str(json.loads(body)["message"])[:300]
    except (ValueError, KeyError, TypeError, RecursionError):
        message = ""
    said = f": {message}" if message else ""
    if status in (401, 403):
        return RegistryDeniedError(f"it answers with status {status}{said}")
    if status == 404:
        return SchemaMissingError(message or "status 404")
    if status in (409, 422):
        return SchemaRefusedError(message or f"status {status}")
    return RegistryError(f"it answers with status {status}{said}")


def _registered(answer: dict[str, Any], schema_id: int | None) -> Registered:
    found = answer.get("id") if schema_id is None else schema_id
    text, kind = answer.get("schema"), answer.get("schemaType") or "AVRO"
    named = answer.get("references") or []
    if not (isinstance(found, int) and isinstance(text, str) and isinstance(kind, str)):
        raise RegistryError("its answer has no schema; is it a registry of schemas?")
    try:
        references = tuple(
            Reference(str(one["name"]), str(one["subject"]), int(one["version"])) for one in named
        )
    except (TypeError, KeyError, ValueError):
        raise RegistryError("its answer has references that make no sense") from None
    return Registered(found, kind, text, references)
