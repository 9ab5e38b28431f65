"""A registry of schemas, as far as readers and writers ask one."""

from __future__ import annotations

import json
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import unquote

_PREFIX = "/schemas/ids/"
_SUBJECTS = "/subjects/"
_VERSIONS = "/versions/"
_SERIALIZED = "?format=serialized"


class Proto(NamedTuple):
    """A ``.proto`` file's text, and its descriptor, which a registry makes of it; without one it
    knows no other form than the text."""

    text: str
    descriptor: bytes | None = None


class Referring(NamedTuple):
    """A schema, and what it refers to: names, subjects and versions."""

    schema: Any
    references: tuple[tuple[str, str, int], ...]


def _as_answer(schema: Any, serialized: bool = False) -> dict[str, Any]:
    """A text is a schema of another format than Avro."""
    if isinstance(schema, Referring):
        named = [dict(zip(_REFERENCE, one, strict=True)) for one in schema.references]
        return {**_as_answer(schema.schema, serialized), "references": named}
    if isinstance(schema, Proto):
        has_form = serialized and schema.descriptor is not None
        text = b64encode(schema.descriptor or b"").decode() if has_form else schema.text
        return {"schema": text, "schemaType": "PROTOBUF"}
    if isinstance(schema, str):
        return {"schema": schema, "schemaType": "PROTOBUF"}
    return {"schema": json.dumps(schema)}


_REFERENCE = ("name", "subject", "version")


class Registry:
    """Schemas by id on a port of its own, and the ids of subjects' latest ones. ``asked`` lists the
    ids asked for, ``asked_subjects`` the subjects. ``failing`` answers with status 503. With a
    ``password`` (``NAME:PASSWORD``) others get status 401. A subject has one version, 1."""

    def __init__(self, schemas: dict[int, Any], subjects: dict[str, int] | None = None) -> None:
        self.schemas = schemas
        self.subjects = subjects or {}
        self.asked: list[int] = []
        self.asked_subjects: list[str] = []
        self.failing = False
        self.password: str | None = None
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._tell(*registry._checked(self.headers.get("Authorization"), self.path))

            def do_POST(self) -> None:
                size = int(self.headers.get("Content-Length", 0))
                self._tell(*registry._register(self.path, json.loads(self.rfile.read(size))))

            def _tell(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = Thread(target=self._server.serve_forever)

    def _checked(self, given: str | None, path: str) -> tuple[int, bytes]:
        wanted = b64encode((self.password or "").encode()).decode()
        if self.password is not None and given != f"Basic {wanted}":
            return 401, b'{"error_code": 401, "message": "Unauthorized"}'
        return self._answer(path)

    def _register(self, path: str, told: dict[str, Any]) -> tuple[int, bytes]:
        subject = unquote(path.removeprefix(_SUBJECTS).removesuffix("/versions"))
        if told["schema"] == "" or "refused" in subject:
            return 409, b'{"error_code": 409, "message": "incompatible with an earlier schema"}'
        is_proto = told.get("schemaType") == "PROTOBUF"
        schema = told["schema"] if is_proto else json.loads(told["schema"])
        known = [number for number, one in self.schemas.items() if one == schema]
        number = known[0] if known else max(self.schemas, default=0) + 1
        self.schemas[number] = schema
        self.subjects[subject] = number
        return 200, json.dumps({"id": number}).encode()

    def _answer(self, path: str) -> tuple[int, bytes]:
        if self.failing:
            return 503, b""
        is_serialized = path.endswith(_SERIALIZED)
        path = path.removesuffix(_SERIALIZED)
        subject, _, version = path.removeprefix(_SUBJECTS).rpartition(_VERSIONS)
        if path.startswith(_SUBJECTS) and version in ("latest", "1"):
            return self._latest(unquote(subject), is_serialized)
        if not path.startswith(_PREFIX):
            return 404, b'{"error_code": 404, "message": "HTTP 404 Not Found"}'
        schema_id = int(path.removeprefix(_PREFIX))
        self.asked.append(schema_id)
        if schema_id not in self.schemas:
            return 404, b'{"error_code": 40403, "message": "Schema not found"}'
        return 200, json.dumps(_as_answer(self.schemas[schema_id], is_serialized)).encode()

    def _latest(self, subject: str, is_serialized: bool) -> tuple[int, bytes]:
        self.asked_subjects.append(subject)
        if subject not in self.subjects:
            return 404, b'{"error_code": 40401, "message": "Subject not found."}'
        schema_id = self.subjects[subject]
        answer = {"subject": subject, "version": 1, "id": schema_id}
        told = _as_answer(self.schemas[schema_id], is_serialized)
        return 200, json.dumps(answer | told).encode()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
