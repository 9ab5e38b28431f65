"""The archive of a bundle: pieces within bounds, without secrets, in one file that only its owner
reads."""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
import time
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyrklog.base.problems import Problem
from pyrklog.cli.failures import CliError
from pyrklog.redaction import HIDDEN, Kind, Redactor

PIECE_BYTES_MAX = 2 * 2**20
"""Of one piece, before secrets are removed."""
TOTAL_BYTES_MAX = 32 * 2**20
PIECES_MAX = 300
FOLDER = "pyrklog-doctor"
MANIFEST = "bundle.json"
CONFIGURATION = (Kind.OPTIONS, Kind.PROPERTIES, Kind.TOML)
_NAME = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Piece:
    """``name``: its path in the archive. ``origin`` says where it is from. ``is_cut``: it is only
    the end, or the beginning, of that. ``is_by_others``: it has texts that clients chose."""

    name: str
    content: str
    kind: Kind
    origin: str
    is_cut: bool = False
    is_by_others: bool = False


class Pieces:
    """Collects what goes into the archive. What does not fit is left out, and listed."""

    def __init__(self) -> None:
        self.found: list[Piece] = []
        self.left_out: list[str] = []
        self._bytes = 0

    def add(
        self,
        name: str,
        content: str,
        kind: Kind,
        origin: str,
        *,
        is_cut: bool = False,
        is_by_others: bool = False,
    ) -> None:
        """A piece that is too large is cut: of a log the end stays, of others the beginning. Logs
        are by others as well."""
        size = len(content.encode(errors="replace"))
        if size > PIECE_BYTES_MAX:
            content, is_cut = cut(content, kind), True
            size = len(content.encode(errors="replace"))
        if len(self.found) >= PIECES_MAX or self._bytes + size > TOTAL_BYTES_MAX:
            self.left_out.append(f"{origin}: the bundle is full")
            return
        self._bytes += size
        is_by_others |= kind is Kind.LOG
        self.found.append(Piece(self._free_name(name), content, kind, origin, is_cut, is_by_others))

    def add_json(self, name: str, value: Any, origin: str, *, is_by_others: bool = False) -> None:
        content = json.dumps(value, indent=1, default=str)
        self.add(name, content, Kind.JSON, origin, is_by_others=is_by_others)

    def add_file(self, name: str, path: Path, kind: Kind) -> None:
        """Of a log its last part. What cannot be read, and what is no text, is left out."""
        try:
            content, is_cut = _read(path, kind)
        except OSError as error:
            self.left_out.append(f"{path}: {error.strerror or error}")
            return
        if "\0" in content:
            self.left_out.append(f"{path}: no text, so no secret could be removed from it")
            return
        self.add(name, content, kind, str(path), is_cut=is_cut)

    def _free_name(self, name: str) -> str:
        """Each name once, of harmless characters."""
        parts = [_NAME.sub("_", part).strip(".") or "_" for part in name.split("/") if part]
        clean = "/".join(parts)[-200:]
        taken = {one.name for one in self.found}
        number, tried = 1, clean
        while tried in taken:
            number, tried = number + 1, f"{clean}.{number + 1}"
        return tried


def cut(content: str, kind: Kind) -> str:
    """Whole lines of a log; a secret's name and its value stay together."""
    raw = content.encode(errors="replace")
    if kind is Kind.LOG:
        return raw[-PIECE_BYTES_MAX:].decode(errors="ignore").partition("\n")[2]
    return raw[:PIECE_BYTES_MAX].decode(errors="ignore").rpartition("\n")[0]


def _read(path: Path, kind: Kind) -> tuple[str, bool]:
    """The text, and whether it is a part. Only of a regular file: others may never end."""
    if path.exists() and not path.is_file():
        raise OSError(f"{path} is no file")
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        is_cut = size > PIECE_BYTES_MAX
        if is_cut and kind is Kind.LOG:
            file.seek(size - PIECE_BYTES_MAX)
        raw = file.read(PIECE_BYTES_MAX)
    text = raw.decode("utf-8", errors="replace")
    if is_cut and kind is Kind.LOG:
        text = text.partition("\n")[2]  # the first line has lost its beginning
    return text, is_cut


def written(file: Path, pieces: Pieces, redactor: Redactor, about: Mapping[str, Any]) -> int:
    """Writes the archive, and returns its size. Raises :class:`CliError`.

    All pieces are redacted first: what is a secret in one of them is one in every other. Those of
    our own configuration come first, as only so many secrets are remembered.
    """
    redacted: dict[str, str] = {}
    for one in sorted(pieces.found, key=_turn):
        told = redactor.redacted(one.content, one.kind, is_by_others=one.is_by_others)
        redacted[one.name] = told
    contents = {one.name: _scrubbed(redactor, redacted[one.name], one.kind) for one in pieces.found}
    manifest = {
        **about,
        "files": [
            {
                "name": one.name,
                "from": one.origin,
                "cut": one.is_cut,
                "bytes": len(contents[one.name]),
            }
            for one in pieces.found
        ],
        "left_out": pieces.left_out,
        "hidden_values": redactor.count,
        "hidden_values_beyond_memory": redactor.is_full,
    }
    told = json.dumps(redactor.value(manifest), indent=1) + "\n"
    contents[MANIFEST] = _scrubbed(redactor, told, Kind.JSON)
    # A name may have a secret, too.
    files = {
        redactor.scrubbed(name).replace(HIDDEN, "hidden"): text for name, text in contents.items()
    }
    return _write(file, {name: text.encode(errors="replace") for name, text in files.items()})


def _turn(piece: Piece) -> tuple[bool, bool]:
    return piece.is_by_others, piece.kind not in CONFIGURATION


def _scrubbed(redactor: Redactor, text: str, kind: Kind) -> str:
    scrubbed = redactor.scrubbed(text)
    if kind is not Kind.JSON or scrubbed == text:
        return scrubbed
    try:
        json.loads(scrubbed)
    except ValueError:  # a number, or a name of JSON's own, was a secret
        try:
            scrubbed = json.dumps(_each_scrubbed(redactor, json.loads(text)), indent=1) + "\n"
        except ValueError:
            return scrubbed  # it was no JSON before
    return scrubbed


def _each_scrubbed(redactor: Redactor, value: Any) -> Any:
    if isinstance(value, dict):
        return {
            redactor.scrubbed(str(name)): _each_scrubbed(redactor, one)
            for name, one in value.items()
        }
    if isinstance(value, list):
        return [_each_scrubbed(redactor, one) for one in value]
    if value is None or isinstance(value, bool):
        return value
    text = str(value)
    left = redactor.scrubbed(text)
    return value if left == text else left


def refuse_file(file: Path) -> None:
    """Raises :class:`CliError` for a bundle that cannot be written there, before the checks."""
    if os.path.lexists(file):
        raise _exists(file)
    if not file.parent.is_dir():
        what = f"cannot write {file}: there is no directory {file.parent}"
        raise CliError(Problem.NOT_WRITTEN, what, "make it, or give --bundle another name")


def _exists(file: Path) -> CliError:
    fix = "give --bundle another name, or remove it"
    return CliError(Problem.FILE_EXISTS, f"{file} exists", fix)


def _write(file: Path, contents: Mapping[str, bytes]) -> int:
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise _exists(file) from None
    except OSError as error:
        raise CliError(Problem.NOT_WRITTEN, f"cannot write {file}: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "wb") as out:
            (_zip if file.name.endswith(".zip") else _tar)(out, contents)
            return out.tell()
    except OSError as error:
        file.unlink(missing_ok=True)
        raise CliError(Problem.NOT_WRITTEN, f"cannot write {file}: {error.strerror}") from None


def _tar(out: io.BufferedWriter, contents: Mapping[str, bytes]) -> None:
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"{FOLDER}/{name}")
            member.size, member.mode, member.mtime = len(content), 0o600, int(time.time())
            archive.addfile(member, io.BytesIO(content))


def _zip(out: io.BufferedWriter, contents: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(f"{FOLDER}/{name}", content)
