"""Secrets that are planted for a test, and the forms in which none of them may be found."""

from __future__ import annotations

import base64
import json
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, quote_plus


class Planted:
    """Makes secrets, each once: :meth:`new`."""

    def __init__(self) -> None:
        self.secrets: dict[str, str] = {}

    def new(self, where: str) -> str:
        """With signs that each encoding writes otherwise."""
        secret = f"Pl4nted/{len(self.secrets):02d}+x&y~Z"
        assert where not in self.secrets, where
        self.secrets[where] = secret
        return secret

    def found_in(self, contents: Mapping[str, str]) -> list[str]:
        """Where each secret that is left was planted, in which file it is, and in which form."""
        return [
            f"{where}: {form} in {name}"
            for where, secret in self.secrets.items()
            for form, text in forms(secret).items()
            for name, content in contents.items()
            if text in content or text in name
        ]


def forms(secret: str) -> dict[str, str]:
    raw = secret.encode()
    within = {}
    for before in range(3):
        encoded = base64.b64encode(b"x" * before + raw).decode()
        # The last signs also have what follows, the first ones what precedes.
        within[f"base64 after {before}"] = encoded[
            (before * 8 + 5) // 6 : (before + len(raw)) * 8 // 6
        ]
    return {
        "plain": secret,
        "quoted": quote(secret, safe=""),
        "quoted with slashes": quote(secret),
        "quoted as a form": quote_plus(secret),
        "json": json.dumps(secret)[1:-1],
        "html": secret.replace("&", "&amp;"),
        "hexadecimal": raw.hex(),
        "base64 of addresses": base64.urlsafe_b64encode(raw).decode().rstrip("=")[:-1],
        **within,
    }


def unpacked(file: Path) -> dict[str, str]:
    """The texts of an archive by their paths in it."""
    if file.suffix == ".zip":
        with zipfile.ZipFile(file) as archive:
            return {name: archive.read(name).decode() for name in archive.namelist()}
    found = {}
    with tarfile.open(file) as archive:
        for member in archive.getmembers():
            content = archive.extractfile(member)
            assert content is not None
            assert member.mode == 0o600
            found[member.name] = content.read().decode()
    return found
