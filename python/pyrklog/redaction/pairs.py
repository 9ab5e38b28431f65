"""Names and values in free text: ``name=value``, ``name: value``, ``"name": "value"``,
``--name value``, in properties, JSON, YAML, TOML, shell, JAAS and lines of logs.

A value ends where its form says: at its quotation mark, at its bracket, with its indented block, or
with its line. In a line of a log it also ends at the next name.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from pyrklog.redaction.named_values import NamedValues
from pyrklog.redaction.names import HIDDEN, hides
from pyrklog.redaction.patterns import looks_random

_PAIR = re.compile(
    r"""
    (?<![\w.-]) -{0,2} (?P<name>[A-Za-z_][\w.-]*) (?:\\{0,8}["'])?
    (?P<sep> [ \t]* (?:=>|:=|[=:]) [ \t]* )
    """,
    re.VERBOSE,
)
_OPTION = re.compile(r"(?<![\w-])--?(?P<name>[A-Za-z][\w.-]*)(?P<sep>[ \t]+)(?![-\s])")
_NAME_FIRST = re.compile(r"^[ \t]*(?P<name>[A-Za-z_][\w.-]*)(?P<sep>[ \t]+)(?![=:\s])", re.M)
"""Of properties, ``.netrc`` and the like."""
_QUOTE = re.compile(r"\\{0,8}(\"\"\"|'''|[\"'`])")
_NEXT_NAME = re.compile(r"[\s,;&)\]}]{1,20}[\"']?[A-Za-z_][\w.-]*[\"']?[ \t]*(?:=|:(?!//))")
_BRACKETS = {"{": "}", "[": "]"}
_BRACKET = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[\[\]{}]", re.S)
"""Also quotations, whose brackets do not count."""
_LONE_WORD = re.compile(r"\S+")
_PUNCTUATION = ",;.)]}'\"`"
QUOTED_MAX = 64 * 1024
"""Characters in which the end of a quotation is looked for."""

Learn = Callable[[str], None]
Shown = Callable[[str], bool]
"""Whether an option of that name is known to be no secret."""


class PairHider:
    """Hides values in one text. ``is_log``: each line is one by itself."""

    def __init__(self, text: str, *, is_log: bool, shows: Shown, learn: Learn) -> None:
        self._text = text
        self._is_log = is_log
        self._shows = shows
        self._learn = learn

    def hidden(self) -> str:
        text, at = self._text, 0
        kept: list[str] = []
        patterns = (_PAIR, _OPTION) if self._is_log else (_PAIR, _OPTION, _NAME_FIRST)
        named = NamedValues(text, is_log=self._is_log, shows=self._shows)
        found = [
            (pair, named.name_of(pair) or pair["name"])
            for pattern in patterns
            for pair in pattern.finditer(text)
        ]
        found += named.under_headings()
        for pair, name in sorted(found, key=lambda one: one[0].start("name")):
            if pair.start("name") < at:
                continue  # within a value that is hidden
            if not hides(name) or self._shows(name):
                continue
            start, end = self._value_at(pair)
            value = text[start:end]
            if not value.strip() or not hides(name, _bare(value)) or value.strip() == HIDDEN:
                continue
            self._learn_value(value)
            kept += (text[at:start], self._in_its_place(value))
            at = end
        kept.append(text[at:])
        return "".join(kept)

    def _value_at(self, pair: re.Match[str]) -> tuple[int, int]:
        text, start = self._text, pair.end()
        line_end = _line_end(text, start)
        quote = _QUOTE.match(text, start)
        if quote is not None:
            return start, self._quotation_end(quote, line_end)
        if pair.re is _OPTION:
            word = _LONE_WORD.match(text, start)
            return start, start if word is None else word.end()
        if text[start : start + 1] in _BRACKETS:
            return start, self._bracket_end(start, line_end)
        if self._is_log:
            found = _NEXT_NAME.search(text, start, line_end)
            return start, line_end if found is None else found.start()
        return start, self._lines_end(pair, start, line_end)

    def _quotation_end(self, quote: re.Match[str], line_end: int) -> int:
        """Behind the mark that closes it; else at the end of the line."""
        text, mark = self._text, quote[1]
        backslashes = quote.end() - quote.start() - len(mark)
        limit = line_end if self._is_log else min(len(text), quote.end() + QUOTED_MAX)
        at = quote.end()
        while (at := text.find(mark, at, limit)) >= 0:
            before = at
            while before > quote.end() and text[before - 1] == "\\":
                before -= 1
            is_closing = (at - before) % 2 == 0 if not backslashes else at - before == backslashes
            if is_closing:
                return at + len(mark)
            at += 1
        return line_end

    def _bracket_end(self, start: int, line_end: int) -> int:
        """Behind the bracket that closes this one; without one everything belongs to it."""
        text = self._text
        limit = line_end if self._is_log else len(text)
        depth = 0
        for found in _BRACKET.finditer(text, start, limit):
            if found[0][0] in "\"'":
                continue
            depth += 1 if found[0] in _BRACKETS else -1
            if depth == 0:
                return found.end()
        return limit

    def _lines_end(self, pair: re.Match[str], start: int, line_end: int) -> int:
        """With the lines that continue it: after a backslash, or indented further than its name."""
        text, end = self._text, line_end
        while _continues(text[_line_start(text, end) : end]) and end < len(text):
            end = _line_end(text, end + 1)
        if ":" not in pair["sep"]:
            return end
        head = _line_start(text, pair.start())
        indent = pair.start() - head if not text[head : pair.start()].strip(" \t-") else None
        while indent is not None and end < len(text):
            following = text[end + 1 : _line_end(text, end + 1)]
            is_item = not text[start:line_end].strip() and following.lstrip().startswith("- ")
            depth = len(following) - len(following.lstrip(" \t"))
            if following.strip() and depth <= indent and not (is_item and depth == indent):
                break
            end += 1 + len(following)
        return end

    def _in_its_place(self, value: str) -> str:
        """With the same quotation marks, so that a structure stays one."""
        quote = _QUOTE.match(value)
        shown = HIDDEN if quote is None else f"{quote[0]}{HIDDEN}{quote[0]}"
        return shown + "\n" * (value.endswith("\n"))

    def _learn_value(self, value: str) -> None:
        bare = _bare(value)
        for line in bare.splitlines() if "\n" in bare else ():
            self._learn(_bare(line.strip().removeprefix("- ").rpartition(": ")[2]))
        if bare.startswith("*"):  # an alias of YAML
            anchor = re.search(rf"&{re.escape(bare[1:].strip())}[ \t]+(\S.*)", self._text)
            self._learn(_bare(anchor[1]) if anchor is not None else "")
        self._learn(bare)
        self._learn(bare.rstrip(_PUNCTUATION))
        first = bare.split()[0].rstrip(_PUNCTUATION) if self._is_log and bare.split() else ""
        if looks_random(first):  # else a word of a sentence
            self._learn(first)


def _bare(value: str) -> str:
    """Without quotation marks and blanks around it."""
    value = value.strip()
    quote = _QUOTE.match(value)
    if quote is None:
        return value
    return value[quote.end() :].removesuffix(quote[1]).rstrip("\\" if "\\" in quote[0] else "")


def _line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _continues(line: str) -> bool:
    line = line.rstrip("\r")
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1
