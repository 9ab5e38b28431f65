"""What may stand at the end of a command line: pure, from the commands' own parameters.

A parameter's metavar says what it takes: ``TOPIC``, ``GROUP``, ``FILE`` and so on.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any


class Kind(Enum):
    """What is to be proposed."""

    NOTHING = auto()
    WORDS = auto()
    FILES = auto()
    TOPICS = auto()
    GROUPS = auto()
    PROFILES = auto()
    TOPIC_OPTIONS = auto()
    BROKER_OPTIONS = auto()


@dataclass(frozen=True)
class Question:
    """``start`` is what the last word has so far, without ``before``, which each proposal keeps.

    ``words`` are the proposals of :attr:`Kind.WORDS` with a line of help each. ``given`` are the
    values of options so far, by the parameter's name.
    """

    kind: Kind
    start: str = ""
    before: str = ""
    words: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, Sequence[str]] = field(default_factory=dict)


_BARE = re.compile(r"^\[?([A-Z]+)")
_OF_METAVARS = {
    "ARENA": Kind.FILES,
    "DIR": Kind.FILES,
    "DLQ": Kind.TOPICS,
    "FILE": Kind.FILES,
    "GROUP": Kind.GROUPS,
    "LOG": Kind.FILES,
    "PATH": Kind.FILES,
    "SOURCE": Kind.TOPICS,
    "TARGET": Kind.TOPICS,
    "TOPIC": Kind.TOPICS,
}
_WORDS_OF_METAVARS = {
    "ACKS": ("all", "1", "0"),
    "CODEC": ("none", "gzip", "snappy", "lz4", "zstd"),
    "MODE": ("auto", "always", "never"),
    "WHERE": ("start", "end"),
}
_WORDS_OF_COMMANDS = {
    ("profile import", "kind"): ("rpk", "kaf", "java", "librdkafka"),
    ("completion", "shell"): ("bash", "zsh", "fish"),
    ("topic list", "sort"): ("name", "size", "rate", "skew"),
    ("topic skew", "by"): ("leaders", "replicas", "bytes", "rate"),
}
_PROFILE_COMMANDS = ("profile show", "profile use", "profile edit", "profile delete")
_NAMES_AN_OPTION = ("K", "K=V", "OPTION", "OPTION...")
_SEVERAL = ("TOPIC[:P,...]",)


class _Line:
    """Goes along the words before the last one."""

    def __init__(self, root: Any) -> None:
        self.command = root
        self.path: list[str] = []
        self.operands: list[str] = []
        self.given: dict[str, list[str]] = {}
        self.pending: Any = None
        """The option whose value comes next."""
        self.only_operands = False
        self.is_unknown = False

    def take(self, word: str) -> None:
        if self.pending is not None:
            self._give(self.pending, word)
            self.pending = None
        elif self.only_operands or not word.startswith("-") or word == "-":
            self._take_operand(word)
        elif word == "--":
            self.only_operands = True
        elif word.startswith("--"):
            name, equals, value = word.partition("=")
            self._take_option(option_of(self.command, name), value if equals else None)
        else:
            self._take_short(word[1:])

    def _take_operand(self, word: str) -> None:
        commands = getattr(self.command, "commands", None)
        if commands is None:
            self.operands.append(word)
        elif word in commands:
            self.command = commands[word]
            self.path.append(word)
        else:
            self.is_unknown = True

    def _take_short(self, letters: str) -> None:
        """``-qv``, ``-n5``, ``-n 5``."""
        for index, letter in enumerate(letters):
            option = option_of(self.command, f"-{letter}")
            if option is not None and not option.is_flag:
                self._take_option(option, letters[index + 1 :] or None)
                return

    def _take_option(self, option: Any, value: str | None) -> None:
        if option is None or option.is_flag:
            return
        if value is None:
            self.pending = option
        else:
            self._give(option, value)

    def _give(self, option: Any, value: str) -> None:
        self.given.setdefault(option.name, []).append(value)


def option_of(command: Any, name: str) -> Any:
    """The option of a command that is given as ``name``; None if it has none."""
    for one in command.params:
        if one.param_type_name == "option" and name in (*one.opts, *one.secondary_opts):
            return one
    return None


def question(root: Any, words: Sequence[str], last: str) -> Question:
    """What may stand in the place of ``last``, behind ``words`` (without the program's name)."""
    line = _Line(root)
    for word in words:
        line.take(word)
    if line.is_unknown:
        return Question(Kind.NOTHING)
    if line.pending is not None:
        return _of_parameter(line, line.pending, last, "")
    if last.startswith("-") and not line.only_operands:
        name, equals, value = last.partition("=")
        if equals:
            option = option_of(line.command, name)
            is_valued = option is not None and not option.is_flag
            found = _of_parameter(line, option, value, f"{name}=") if is_valued else None
            return found or Question(Kind.NOTHING)
        return Question(Kind.WORDS, last, words=_options(line.command))
    commands = getattr(line.command, "commands", None)
    if commands is not None:
        about = {name: _first_line(one.help) for name, one in commands.items() if not one.hidden}
        return Question(Kind.WORDS, last, words=about)
    parameter = _operand(line)
    return Question(Kind.NOTHING) if parameter is None else _of_parameter(line, parameter, last, "")


def _options(command: Any) -> dict[str, str]:
    return {
        name: _first_line(one.help)
        for one in command.params
        if one.param_type_name == "option" and not one.hidden
        for name in (*one.opts, *one.secondary_opts)
    } | {"--help": "Show what the command does."}


def _operand(line: _Line) -> Any:
    """The argument that the next operand belongs to."""
    at = len(line.operands)
    for one in line.command.params:
        if one.param_type_name != "argument":
            continue
        if one.nargs == -1 or at < one.nargs:
            return one
        at -= one.nargs
    return None


def _of_parameter(line: _Line, parameter: Any, last: str, before: str) -> Question:
    choices = getattr(parameter.type, "choices", None)
    path = " ".join(line.path)
    metavar = str(parameter.metavar or "")
    bare = _BARE.match(metavar)
    kind, words = Kind.NOTHING, choices or _WORDS_OF_COMMANDS.get((path, parameter.name), ())
    if not words and bare is not None:
        kind = _OF_METAVARS.get(bare[1], Kind.NOTHING)
        words = _WORDS_OF_METAVARS.get(bare[1], ())
    if words:
        about = {str(getattr(one, "value", one)): "" for one in words}
        return Question(Kind.WORDS, last, before, about, line.given)
    if parameter.name in ("profile", "profile_name", "confirmed") or (
        path in _PROFILE_COMMANDS and parameter.param_type_name == "argument"
    ):
        kind = Kind.PROFILES
    elif metavar in _NAMES_AN_OPTION:
        kind = _kind_of_option(line, parameter) if "=" not in last else Kind.NOTHING
    elif path.startswith("config ") and parameter.name == "names":
        kind = Kind.TOPICS if line.operands[:1] == ["topic"] else Kind.NOTHING
    if metavar in _SEVERAL and "," in last:
        kind = Kind.NOTHING
    return Question(kind, last, before, given=line.given)


def _kind_of_option(line: _Line, parameter: Any) -> Kind:
    """Options of topics or brokers, where the command takes such."""
    path = " ".join(line.path)
    if parameter.name in ("properties", "asked", "headers"):
        return Kind.NOTHING
    if path.startswith("topic "):
        return Kind.TOPIC_OPTIONS
    if path == "config explain":
        return Kind.BROKER_OPTIONS
    if path.startswith("config ") and line.operands:
        kinds = {"topic": Kind.TOPIC_OPTIONS, "broker": Kind.BROKER_OPTIONS}
        return kinds.get(line.operands[0], Kind.NOTHING)
    return Kind.BROKER_OPTIONS if path == "serve" else Kind.NOTHING


def _first_line(text: str | None) -> str:
    return (text or "").strip().split("\n")[0]
