"""Words that the project has given up, and what it says instead.

A name is compared in parts: `gatedEnd`, `gated_end` and `GATED_END` are one word. The changelog
tells what things were called and is not looked at. `glossary.md` has the words
in use.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

# Names of code: old -> new. A short list: the ones somebody would write again.
NAMES = {
    "gated end": "durable end offset",
    "take office": "finish transition",
    "tells marks": "notify high watermark",
    "leave mark": "high watermark",
    "fetch work": "DelayedFetch",
    "pending produce": "DelayedProduce",
    "isr keeper": "IsrManager",
    "own channel": "local_channel",
    "roster": "members",
    "asker": "RawClient, FetchClient",
    "taken up": "reattached",
    "gate moved": "durable_end_moved",
    "set gate": "set_durable_end",
    "above gate": "above the durable end",
    "waits for gate": "waits_for_durable_end",
    "gate look": "DURABLE_END_POLL",
    "gave way": "is_flush_postponed",
    "why not held": "why_not_hosted",
    "is overfull": "has_twice_too_much_unwritten",
    "release replicated": "raise_high_watermark_without_growth",
    "follower fetched": "update_follower_fetch_state",
    "cache keeper": "CacheJanitorThread",
    "reader keeper": "reader starter",
    "list offsets work": "DelayedListOffsets",
    "connections parked": "connections_muted_for_room",
    "produce park": "produce_muted",
}
# What no sentence begins with or needs: a plain one has a subject.
PHRASES = {
    "whoever": "name who it is",
    "whomever": "name who it is",
    "so that whom": "begin with the subject",
}
SUFFIXES = {".py", ".pyi", ".rs", ".md", ".toml"}
ROOTS = ("README.md", "Makefile", "docs", "rust", "python", "tests", "benches", "ci", "demo")
ITSELF = ("ci/old_words.py", "tests/unit/ci/test_old_words.py")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|\s+|[^\w\s]")


def in_parts(text: str) -> str:
    """`text` in lower case, its names taken apart: ` take office ` for `takeOffice`."""
    return " " + " ".join(part.lower() for part in _WORD.findall(text) if part.strip()) + " "


def find(text: str) -> Iterator[tuple[int, str, str]]:
    """Line (from 1), old word and its replacement, for each that `text` has."""
    for number, line in enumerate(text.splitlines(), 1):
        parts = in_parts(line)
        for old, new in (NAMES | PHRASES).items():
            if f" {old} " in parts or f" {old}s " in parts:
                yield number, old, new


def files(root: Path) -> Iterator[Path]:
    """The files that are looked at, below `root`."""
    for name in ROOTS:
        top = root / name
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            is_text = path.suffix in SUFFIXES or path == top
            if path.is_file() and is_text and path.relative_to(root).as_posix() not in ITSELF:
                yield path


def main() -> int:
    """Checks the tree given as the only argument, by default the one that holds this file."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1]
    is_clean = True
    for path in files(root):
        for line, old, new in find(path.read_text()):
            print(f'{path.relative_to(root)}:{line}: "{old}": say "{new}"')
            is_clean = False
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
