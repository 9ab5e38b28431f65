"""Imports between a crate's files, read from ``use`` declarations and inline paths.

A name that a module re-exports (``pub use``) counts for the file that defines it, so a folder's
root file does not stand between its parts. Code under ``#[cfg(test)]`` is left out. Two things are
not seen: methods of one type in several files, and macros.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ci import rust_source

Names = tuple[str, ...]
Modules = dict[Names, "_Module"]

_USE = re.compile(r"(?P<public>\bpub(?:\([^)]*\))?\s+)?\buse\s+(?P<tree>[^;]+);")
_INLINE = re.compile(r"\b(?:crate|super|self)(?:\s*::\s*[A-Za-z_]\w*)+")
_TOKEN = re.compile(r"[A-Za-z_]\w*|::|[{},*]")
_REEXPORTS_MAX = 8


@dataclass(frozen=True)
class _Use:
    """One name of a ``use``; ``target`` begins with "" if it is relative."""

    target: Names
    name: str
    is_public: bool


@dataclass(eq=False)
class _Module:
    file: Path
    path: Names
    body: str
    uses: list[_Use] = field(default_factory=list)
    inline: list[Names] = field(default_factory=list)


def imports_of(source: Path) -> dict[Path, set[Path]]:
    """Each file under ``source`` (a crate's ``src``) with the files that it imports."""
    modules = {module.path: module for module in _modules(source)}
    graph: dict[Path, set[Path]] = {}
    for module in modules.values():
        named = (_resolve(modules, path) for path in _named(module))
        graph[module.file] = {one.file for one in named if one and one is not module}
    return graph


def _modules(source: Path) -> Iterator[_Module]:
    for file in sorted(source.rglob("*.rs")):
        parts = file.relative_to(source).with_suffix("").parts
        if "tests" in parts:
            continue
        path = () if parts in {("lib",), ("main",)} else parts
        if path and path[-1] == "mod":
            path = path[:-1]
        code = rust_source.without_tests(rust_source.code_only(file.read_text()))
        module = _Module(file, path, _USE.sub("", code))
        for match in _USE.finditer(code):
            is_public = match["public"] is not None
            for target, name in _flat(match["tree"]):
                module.uses.append(_Use(_absolute(path, target), name, is_public))
        for match in _INLINE.finditer(module.body):
            module.inline.append(_absolute(path, tuple(re.split(r"\s*::\s*", match[0]))))
        yield module


def _flat(tree: str) -> Iterator[tuple[Names, str]]:
    """``a::{b, c as d}`` as (("a", "b"), "b") and (("a", "c"), "d")."""
    tokens = [*_TOKEN.findall(tree), ","]
    prefixes: list[Names] = [()]
    path: Names = ()
    alias = None
    for before, token in zip(["", *tokens], tokens, strict=False):
        if token == "{":
            prefixes.append(path)
        elif token in ",}":
            if path != prefixes[-1]:
                whole = path[:-1] if path[-1] == "self" else path
                yield whole, alias or whole[-1]
            if token == "}":
                prefixes.pop()
            path, alias = prefixes[-1], None
        elif before == "as":
            alias = token
        elif token not in ("::", "as"):
            path = (*path, token)


def _absolute(here: Names, path: Names) -> Names:
    if path[0] == "crate":
        return path[1:]
    if path[0] == "self":
        return (*here, *path[1:])
    if path[0] != "super":
        return ("", *path)
    while path and path[0] == "super":
        here, path = here[:-1], path[1:]
    return (*here, *path)


def _named(module: _Module) -> Iterator[Names]:
    yield from module.inline
    for use in module.uses:
        if not use.is_public or re.search(rf"\b{use.name}\b", module.body):
            yield _whole(module, use.target)


def _whole(module: _Module, target: Names) -> Names:
    return (*module.path, *target[1:]) if target[:1] == ("",) else target


def _resolve(modules: Modules, path: Names, reexports: int = 0) -> _Module | None:
    """The module that defines what ``path`` names; None if it is outside the crate."""
    for end in range(len(path), -1, -1):
        module = modules.get(path[:end])
        if module is None:
            continue
        rest = path[end:]
        if rest and reexports < _REEXPORTS_MAX:
            for use in module.uses:
                if use.name == rest[0]:
                    target = (*_whole(module, use.target), *rest[1:])
                    return _resolve(modules, target, reexports + 1)
        is_here = end > 0 or rest in {(), ("*",)} or re.search(rf"\b{rest[0]}\b", module.body)
        return module if is_here else None
    return None
