"""The first pages' commands, run as they stand, in their order, in a tree of a newcomer.

The tree is on a machine of its own as far as the network goes, where nobody has the pages' ports.
Only what fetches packages runs outside.
"""

from __future__ import annotations

import os
import pty
import re
import shutil
import signal
import subprocess
import threading
from collections import deque
from pathlib import Path
from typing import NamedTuple, Self

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/using/quick-start.md")
"""What a newcomer reads first; one goes on where the other ends."""
_LINE_TIMEOUT_S = 1200.0
_START_TIMEOUT_S = 90.0
_END_TIMEOUT_S = 30.0
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FETCHES = re.compile(r"make (?!run\b)|.*\bpip install\b")
# What goes on until Ctrl-C, and what it prints when there is nothing more to wait for.
_STAYS = {
    re.compile(r"make run\b"): "ready in",
    re.compile(r"\S*pyrklog serve\b"): "ready in",
}
_WATCHES = {
    re.compile(r"\S*pyrklog consume .*-g "): "hello",
    re.compile(r"\S*pyrklog cluster health -w\b"): "NOT SAFE",
}


class Block(NamedTuple):
    """A fenced block: its language (``sh``, ``python``, or nothing) and its text."""

    language: str
    text: str


def blocks(markdown: str) -> list[Block]:
    """All fenced blocks, in their order."""
    return [Block(*match.groups()) for match in _BLOCK.finditer(markdown)]


def tracked_copy(target: Path) -> Path:
    """The checkout's files that git knows or would add, as they are now, with their times."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():  # one that was removed is listed until that is committed
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return target


class Newcomer:
    """Somebody with a tree, an empty home and the first pages. A context manager.

    Raises :class:`AssertionError`, with the output, for a command that fails.
    """

    def __init__(self, tree: Path, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.tree = tree
        self._environment = _environment(home)
        self._terminals: list[_Terminal] = []
        self._network = _Network()

    def follow(self, markdown: str) -> list[str]:
        """Runs each line of each ``sh`` block, and each ``python`` block that needs no Spark.

        What was run.
        """
        done: list[str] = []
        for block in blocks(markdown):
            if block.language == "sh":
                for line in block.text.splitlines():
                    self.run(line)
                    done.append(line)
            elif block.language == "python" and "spark." not in block.text:
                self._python(block.text)
                done.append(block.text)
        return done

    def outside(self, line: str) -> str:
        """Runs a line where packages can be fetched; what it printed."""
        return self._finished(["bash", "-c", line], line)

    def run(self, line: str) -> str:
        """Runs one line as it stands; what it printed so far, of those that go on for ever."""
        if _FETCHES.match(line):
            return self.outside(line)
        command = [*self._network.enter(), "bash", "-c", line]
        for pattern, text in _STAYS.items():
            if pattern.match(line):
                terminal = _Terminal(command, self.tree, self._environment)
                self._terminals.append(terminal)
                return terminal.wait_for(text)
        for pattern, text in _WATCHES.items():
            if pattern.match(line):
                with _Terminal(command, self.tree, self._environment) as terminal:
                    return terminal.wait_for(text)
        return self._finished(command, line)

    def _python(self, text: str) -> str:
        python = self.tree / ".venv" / "bin" / "python"
        return self._finished([*self._network.enter(), str(python), "-c", text], text)

    def _finished(self, command: list[str], what: str) -> str:
        done = subprocess.run(
            command,
            cwd=self.tree,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_LINE_TIMEOUT_S,
        )
        assert done.returncode == 0, f"$ {what}\n{done.stdout}\nexit code {done.returncode}"
        return done.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            for terminal in reversed(self._terminals):
                terminal.interrupt()
        finally:
            self._network.close()


class _Terminal:
    """A command that goes on, in a terminal and session of its own; ends by Ctrl-C."""

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        self._command = command
        screen, terminal = pty.openpty()
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
        os.close(terminal)
        self._lines: deque[str] = deque(maxlen=1000)
        self._changed = threading.Condition()
        self._is_over = False
        threading.Thread(target=self._read, args=[screen], daemon=True).start()

    def _read(self, screen: int) -> None:
        with open(screen, errors="replace") as stream:
            try:
                for line in stream:
                    self._hear(line)
            except OSError:
                pass  # nobody has the terminal open any more
        self._hear(None)

    def _hear(self, line: str | None) -> None:
        with self._changed:
            if line is None:
                self._is_over = True
            else:
                self._lines.append(line)
            self._changed.notify_all()

    def wait_for(self, text: str) -> str:
        """All output so far, once some line of it has this text."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_over or any(text in line for line in self._lines),
                _START_TIMEOUT_S,
            )
            output = "".join(self._lines)
        assert text in output, f"$ {self._command[-1]}\n{output}\nhas not said {text!r}"
        return output

    def interrupt(self) -> None:
        """Ctrl-C, and the end."""
        os.killpg(self._process.pid, signal.SIGINT)
        try:
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.interrupt()


class _Network:
    """A loopback interface of one's own, as long as this object wants it."""

    def __init__(self) -> None:
        identity = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        self._flags = ["--user", "--preserve-credentials"] if identity else []
        script = "ip link set lo up && exec cat"
        self._keeper = subprocess.Popen(
            ["unshare", *identity, "--net", "--", "sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        self._keeper.stdin.write(b"?")
        self._keeper.stdin.flush()
        assert self._keeper.stdout.read(1) == b"?", "no network namespace was made"

    def enter(self) -> list[str]:
        """What, put before a command, runs it there."""
        return ["nsenter", f"--target={self._keeper.pid}", *self._flags, "--net", "--"]

    def close(self) -> None:
        """The network goes when its last process has."""
        self._keeper.kill()
        self._keeper.communicate()


def _environment(home: Path) -> dict[str, str]:
    """Ours with another home; the caches of package managers stay those of this machine."""
    hidden = ("XDG_", "PYRKLOG_", "VIRTUAL_ENV", "PYTHON", "MAKE", "MFLAGS")
    found = {name: text for name, text in os.environ.items() if not name.startswith(hidden)}
    mine = Path.home()
    found |= {
        "HOME": str(home),
        "CARGO_HOME": os.environ.get("CARGO_HOME", str(mine / ".cargo")),
        "RUSTUP_HOME": os.environ.get("RUSTUP_HOME", str(mine / ".rustup")),
        "PIP_CACHE_DIR": os.environ.get("PIP_CACHE_DIR", str(mine / ".cache" / "pip")),
        "MAVEN_OPTS": f"{os.environ.get('MAVEN_OPTS', '')} "
        f"-Dmaven.repo.local={mine / '.m2' / 'repository'}",
        "PYTHONUNBUFFERED": "1",
    }
    settings = mine / ".config" / "pip" / "pip.conf"
    if settings.exists():
        found.setdefault("PIP_CONFIG_FILE", str(settings))
    return found
