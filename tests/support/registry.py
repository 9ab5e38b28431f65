"""A registry of schemas, as far as readers ask one."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote

_PREFIX = "/schemas/ids/"
_SUBJECTS = "/subjects/"
_LATEST = "/versions/latest"


def _as_answer(schema: Any) -> dict[str, str]:
    """A text is a schema of another format than Avro."""
    if isinstance(schema, str):
        return {"schema": schema, "schemaType": "PROTOBUF"}
    return {"schema": json.dumps(schema)}


class Registry:
    """Schemas by id on a port of its own, and the ids of subjects' latest ones. ``asked`` lists the
    ids asked for, ``asked_subjects`` the subjects. ``failing`` answers with status 503."""

    def __init__(self, schemas: dict[int, Any], subjects: dict[str, int] | None = None) -> None:
        self.schemas = schemas
        self.subjects = subjects or {}
        self.asked: list[int] = []
        self.asked_subjects: list[str] = []
        self.failing = False
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                status, body = registry._answer(self.path)
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

    def _answer(self, path: str) -> tuple[int, bytes]:
        if self.failing:
            return 503, b""
        if path.startswith(_SUBJECTS) and path.endswith(_LATEST):
            return self._latest(unquote(path.removeprefix(_SUBJECTS).removesuffix(_LATEST)))
        if not path.startswith(_PREFIX):
            return 404, b'{"error_code": 404, "message": "HTTP 404 Not Found"}'
        schema_id = int(path.removeprefix(_PREFIX))
        self.asked.append(schema_id)
        if schema_id not in self.schemas:
            return 404, b'{"error_code": 40403, "message": "Schema not found"}'
        return 200, json.dumps(_as_answer(self.schemas[schema_id])).encode()

    def _latest(self, subject: str) -> tuple[int, bytes]:
        self.asked_subjects.append(subject)
        if subject not in self.subjects:
            return 404, b'{"error_code": 40401, "message": "Subject not found."}'
        schema_id = self.subjects[subject]
        answer = {"subject": subject, "version": 1, "id": schema_id}
        return 200, json.dumps(answer | _as_answer(self.schemas[schema_id])).encode()

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
