"""Just enough of Rust's lexical structure for ci/check_structure.py; not a parser."""

import re
from dataclasses import dataclass

_OPAQUE = re.compile(
    r"""
      (?P<line>//[^\n]*)
    | (?P<block>/\*)
    | (?P<raw>\bb?r(?P<hashes>\#*)"(?:.|\n)*?"(?P=hashes))
    | (?P<string>b?"(?:[^"\\]|\\(?:.|\n))*")
    | (?P<char>b?'(?:[^'\\\n]|\\(?:x[0-9a-fA-F]{2}|u\{[0-9a-fA-F_]+\}|.))')
    """,
    re.VERBOSE,
)
_BLOCK_EDGE = re.compile(r"/\*|\*/")
_FUNCTION = re.compile(r"\bfn\s+(?P<name>[A-Za-z_]\w*)")
_TEST_ITEM = re.compile(r"#\[cfg\((?:test|all\(test\b[^\]]*)\)\]")


@dataclass(frozen=True)
class Function:
    """One ``fn`` with a body: name, first line (1-based) and number of lines."""

    name: str
    line: int
    lines: int


def code_only(source: str) -> str:
    """``source`` with comments, strings and characters blanked; every newline stays in place."""
    kept: list[str] = []
    at = 0
    while match := _OPAQUE.search(source, at):
        end = _block_end(source, match.end()) if match["block"] else match.end()
        kept.append(source[at : match.start()])
        kept.append(re.sub(r"[^\n]", " ", source[match.start() : end]))
        at = end
    return "".join([*kept, source[at:]])


def without_tests(code: str) -> str:
    """``code`` (from ``code_only``) with the items under ``#[cfg(test)]`` blanked."""
    at = 0
    while match := _TEST_ITEM.search(code, at):
        end = _item_end(code, match.end())
        code = code[: match.start()] + re.sub(r"[^\n]", " ", code[match.start() : end]) + code[end:]
        at = end
    return code


def functions(code: str) -> list[Function]:
    """Every function with a body in ``code`` (from ``code_only``), nested ones too."""
    found = []
    for match in _FUNCTION.finditer(code):
        end = _item_end(code, match.end())
        if code[end - 1] == "}":
            line = code.count("\n", 0, match.start()) + 1
            found.append(Function(match["name"], line, code.count("\n", match.start(), end) + 1))
    return found


def _block_end(source: str, at: int) -> int:
    """The end of a block comment whose opening ends at ``at``; Rust nests them."""
    depth = 1
    for edge in _BLOCK_EDGE.finditer(source, at):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    return len(source)


def _item_end(code: str, at: int) -> int:
    """The end of the item that continues at ``at``: after its ``;``, or after its
    matching ``}``."""
    depth = 0
    for edge in re.compile(r"[(){}\[\];]").finditer(code, at):
        if edge[0] in "([{":
            depth += 1
        elif edge[0] in ")]}":
            depth -= 1
        if depth == 0 and edge[0] in ";}":
            return edge.end()
    return len(code)
