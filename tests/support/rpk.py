"""rpk, Redpanda's command line: the program that ``make test-rpk RPK=PATH`` names.

No package registry has it. It runs in a folder of its own, with no other program on its PATH,
without Docker, and with a proxy that is closed: it reaches this machine and nothing else.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any, Self

from pyrklog.testing.ports import free_port
from tests.support.feature_table import BY_SLUG

NAMED = os.environ.get("RPK", "")
_TIMEOUT_S = 120
_SUBCOMMANDS = re.compile(r"^Available Commands:\n((?:  .+\n)+)", re.MULTILINE)


def program(named: str = NAMED) -> str:
    """AssertionError with a sentence if there is none."""
    found = shutil.which(named) if named else None
    assert found is not None, f"RPK is {named or 'not set'}, no program: `make test-rpk RPK=PATH`"
    return str(Path(found).resolve())


class RpkClaims:
    """Of one row: what its test found of rpk must be what the page says."""

    def __init__(self, slug: str) -> None:
        self._row = BY_SLUG[slug]
        self.is_made = False

    def __call__(self, rpk: str) -> None:
        assert rpk == self._row.rpk, f"the page says otherwise of {self._row.name}"
        self.is_made = True


class Rpk:
    """Runs it, at one cluster if there is an address."""

    def __init__(self, home: Path, *options: str) -> None:
        self.home = home
        self._program = program()
        self._options = [word for option in options for word in ("-X", option)]
        (home / "empty").mkdir(exist_ok=True)

    def __call__(self, *words: str, stdin: str | bytes = b"", code: int = 0) -> str:
        """Standard output; with another ``code`` standard error behind it."""
        done = self.full(*words, stdin=stdin)
        out, err = (one.decode(errors="surrogateescape") for one in (done.stdout, done.stderr))
        assert done.returncode == code, (words, done.returncode, out, err)
        return out if code == 0 else out + err

    def full(self, *words: str, stdin: str | bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [self._program, *words, *self._options],
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            env=self._environment(),
            cwd=self.home,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )

    def _environment(self) -> dict[str, str]:
        closed = f"http://127.0.0.1:{free_port()}"
        return {
            "HOME": str(self.home),
            "PATH": str(self.home / "empty"),
            "DOCKER_HOST": f"unix://{self.home}/no-docker",
            "HTTP_PROXY": closed,
            "HTTPS_PROXY": closed,
        }

    def rows(self, *words: str) -> list[list[str]]:
        """The words of each line of what it prints, without the heading."""
        return [line.split() for line in self(*words).splitlines()[1:] if line.strip()]

    def records(self, topic: str, *words: str) -> list[dict[str, Any]]:
        """All that the topic has, by rpk's JSON."""
        told = self("topic", "consume", topic, "-o", ":end", "--pretty-print=false", *words)
        return [json.loads(line) for line in told.splitlines()]


class Commands:
    """What rpk says of each of its commands: the help of its whole tree."""

    def __init__(self, rpk: Rpk) -> None:
        self.helps: Mapping[str, str] = dict(_helps(rpk, ()))

    def under(self, path: str) -> set[str]:
        """The commands right below one."""
        paths = [one.removeprefix(f"{path} ") for one in self.helps if one.startswith(f"{path} ")]
        return {one for one in paths if " " not in one}

    def lack(self, *words: str) -> None:
        """No command has an option or a sentence about it."""
        for word in words:
            assert not self.saying(word), f"rpk {self.saying(word)} says {word}"

    def saying(self, word: str) -> set[str]:
        """The commands whose help has it."""
        return {name for name, text in self.helps.items() if word in text.lower()}

    def lack_command(self, *names: str) -> None:
        """No command at any place has such a name."""
        found = [path for path in self.helps if set(path.split()) & set(names)]
        assert not found, f"rpk has {found}"


def _helps(rpk: Rpk, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Without the options that all commands have, and without the path of its folder."""
    text = rpk(*path, "--help").partition("Global Flags:")[0].replace(str(rpk.home), "")
    yield " ".join(path), text
    found = _SUBCOMMANDS.search(text)
    for line in found[1].splitlines() if found else ():
        name = line.split()[0]
        if name != "help":
            yield from _helps(rpk, (*path, name))


class AdminApi:
    """In the place of Redpanda's admin API, which other brokers do not have. It knows nothing, and
    ``asked`` lists the paths that it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                self.send_error(404)

            do_POST = do_PUT = do_GET

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_port}"
        self._thread = Thread(target=self._server.serve_forever)

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
