"""Answers to the words of other tools: kcat's, rpk's and those of Kafka's own."""

import re
from collections.abc import Collection
from typing import Any

from typer.core import TyperGroup

from pyrklog.cli.config_kinds import ALL_BROKERS
from pyrklog.cli.failures import ARGUMENTS
from pyrklog.cli.number_errors import plain_sentence
from pyrklog.cli.usage_errors import advise, number

_TOPICS_STAND_ALONE = "topics stand behind the command without an option"
_ANY_COMMAND = {
    "--topic": _TOPICS_STAND_ALONE,
    "--topics": _TOPICS_STAND_ALONE,
    "--list": "it is a command: `pyrklog topic list`, `pyrklog group list`",
    "--describe": "it is a command: `pyrklog topic describe TOPIC`, `pyrklog group describe GROUP`",
    "--create": "it is a command: `pyrklog topic create TOPIC`",
    "--alter": "it is a command: `pyrklog topic alter TOPIC`",
    "--delete": "it is a command: `pyrklog topic delete TOPIC`, `pyrklog group delete GROUP`",
    "--reset-offsets": "it is a command: `pyrklog group seek GROUP --to WHERE`",
    "--bootstrap-servers": "give the broker with --bootstrap-server HOST:PORT, or -b",
    "--broker-list": "give the broker with --bootstrap-server HOST:PORT, or -b",
    "--command-config": "give properties with -X NAME=VALUE",
    "--consumer.config": "give properties with -X NAME=VALUE",
    "--consumer-property": "give properties with -X NAME=VALUE",
    "--producer.config": "give properties with -X NAME=VALUE",
    "--producer-property": "give properties with -X NAME=VALUE",
    "--port": "give the broker with -b HOST:PORT",
    "-p": "-p PROFILE stands before the command, --profile NAME behind it, too",
    "--install-completion": "`pyrklog completion bash|zsh|fish` prints it",
    "--show-completion": "`pyrklog completion bash|zsh|fish` prints it",
    "--json": "`-o json` prints JSON, `-o jsonl` an item a line",
}
_OF_COMMANDS = {
    "mirror run": {"--topic": "mirror run takes --topics REGEX"},
    "mirror verify": {"--topic": "mirror verify takes --topics REGEX"},
    "serve": {
        "--port": "serve takes --listen HOST:PORT, and :PORT for every interface",
        "--host": "serve takes --listen HOST:PORT",
        "--data-dir": "serve takes --data DIR",
        "--override": "serve takes --set NAME=VALUE",
    },
    "produce": {
        "--json": "produce takes -f jsonl",
    },
    "topic create": {
        "--set": "topic create takes --config NAME=VALUE",
        "--partition": "topic create takes --partitions N",
    },
    "topic alter": {
        "--config": "topic alter takes --set NAME=VALUE",
        "-c": "topic alter takes --set NAME=VALUE",
        "--add-config": "topic alter takes --set NAME=VALUE",
        "--delete-config": "topic alter takes --unset NAME",
    },
    "topic add-partitions": {
        "--partitions": "topic add-partitions takes --to N",
        "-p": "topic add-partitions takes --to N",
    },
    "topic trim": {
        "--offset": "topic trim takes --before N",
        "--offset-json-file": "topic trim takes TOPIC:P --before N",
        "--partition": "topic trim takes TOPIC:P",
        "-p": "topic trim takes TOPIC:P",
    },
    "config describe": {
        "--entity-type": "config describe takes topic NAME or broker N",
        "--entity-name": "config describe takes topic NAME or broker N",
        "--entity-default": "config describe takes broker default",
        "--all": "config describe shows all options unless --changed is given",
    },
    "config alter": {
        "--entity-type": "config alter takes topic NAME or broker N",
        "--entity-name": "config alter takes topic NAME or broker N",
        "--entity-default": "config alter takes broker default",
        "--add-config": "config alter takes --set NAME=VALUE",
        "--delete-config": "config alter takes --unset NAME",
    },
    "cluster txns list": {
        "--broker-id": "cluster txns list takes --broker N",
        "--max-transaction-timeout": "cluster txns list --hanging takes --longer-than 15m",
        "--duration-filter": "cluster txns list takes --longer-than TIME",
        "--partition": "cluster txns list --hanging takes -t TOPIC:P",
    },
    "cluster txns describe": {
        "--transactional-id": "transactional ids stand behind the command without an option",
    },
    "cluster txns abort": {
        "--transactional-id": "the transactional id stands behind the command without an option",
        "--topic": "cluster txns abort takes --partition TOPIC:P",
    },
    "consume": {
        "--from-beginning": "consume begins there unless -o says otherwise",
        "--max-messages": "consume takes --count N",
        "--timeout-ms": "consume takes --exit, to stop at the end",
        "--json": "consume takes -f jsonl",
    },
    "group list": {
        "--all-groups": "group list lists all groups",
    },
    "group describe": {
        "--all-groups": "groups stand behind the command; `pyrklog group list --lag` tells of all",
    },
    "group seek": {
        "--all-topics": "group seek moves all topics unless --topic is given",
        "--to-earliest": "group seek takes --to start",
        "--to-latest": "group seek takes --to end",
        "--to-current": "group seek takes --to current",
        "--to-offset": "group seek takes --to N",
        "--to-datetime": "group seek takes --to @TIME",
        "--by-duration": "group seek takes --to @-90m",
        "--shift-by": "group seek takes --to +N or --to -N",
        "--from-file": "group seek takes --to FILE",
        "--execute": "group seek does it, unless --dry-run is given",
    },
    **{
        f"mirror {name}": {
            **dict.fromkeys(
                ("-X", "--property"), "each cluster has its own: --from-property, --to-property"
            ),
            **dict.fromkeys(
                ("--command-config", "--consumer.config", "--producer.config"),
                "each cluster has its own: --from-config FILE, --to-config FILE",
            ),
            **dict.fromkeys(
                ("-b", "--bootstrap-server"), "mirror takes --from HOST:PORT and --to HOST:PORT"
            ),
        }
        for name in ("run", "status", "verify")
    },
}


_COMMANDS = {
    "rm": ("delete", "remove", "purge"),
    "remove": ("delete",),
    "del": ("delete",),
    "drop": ("delete",),
    "reset": ("seek",),
    "reset-offsets": ("seek",),
    "set": ("alter",),
    "edit": ("alter",),
    "update": ("alter",),
    "ls": ("list",),
    "show": ("describe", "list"),
    "get": ("describe",),
    "info": ("describe",),
    "delete-records": ("trim",),
    "trim-prefix": ("trim",),
    "add-partition": ("add-partitions",),
}
"""Words of other tools, and ours: the first that the group has."""
_ELSEWHERE = {
    "version": "`pyrklog --version` prints it",
    "topic consume": "it is `pyrklog consume TOPIC`",
    "topic produce": "it is `pyrklog produce TOPIC`",
    "cluster info": "`pyrklog cluster brokers` and `pyrklog cluster health` tell it",
    "cluster config": "it is `pyrklog config`",
}
_OF_PROPERTIES = {
    "parse.key": "`produce -K TEXT` takes lines as key, TEXT, value",
    "parse.headers": "`produce -H NAME=VALUE` adds headers, `produce -f jsonl` reads them",
    "key.separator": "`produce -K TEXT`, `consume -K TEXT`: TEXT is between key and value",
    "ignore.error": "lines without the text of `produce -K TEXT` need a key of -k",
    "null.marker": "`produce -Z` takes empty keys and values as null",
    "print.key": "`consume -K TEXT` prints the key, TEXT, and the value",
    "line.separator": r"`consume -f '%v\n'` ends records as it says",
    "headers.delimiter": "`produce -H NAME=VALUE` adds headers, `produce -f jsonl` reads them",
    "null.literal": "`consume -Z TEXT` prints null keys and values as TEXT",
}
"""``--property`` of Kafka's console clients; ours are librdkafka's."""
_VERBS = {
    "value": "%v",
    "offset": "%o",
    "partition": "%p",
    "epoch": "%e",
    "timestamp": "%T or %d{iso}",
    "headers": "%h",
}
_OF_PROPERTIES |= {
    f"print.{name}": f"`consume -f FORMAT` says what to print: {verb}"
    for name, verb in _VERBS.items()
}
_EXTRA_OF_SERVE = re.compile(r"Got unexpected extra argument")
_PLURAL = re.compile(r"'(topic|broker)s' is not one of")
_NO_KIND = re.compile(r"'([^']*)' is not one of 'topic', 'broker'")
_NO_COMMAND = re.compile(r"No such command '([^']*)'")


def property_hint(refusal: str) -> str | None:
    """About librdkafka's refusal of a property."""
    named = re.search(r'"([^"]*)"', refusal)
    return None if named is None else _OF_PROPERTIES.get(named[1])


def command_hint(group: str, word: str, known: Collection[str]) -> str | None:
    """About an unknown command of a group ("" is the outermost)."""
    path = f"{group} {word}".strip()
    if word == "help":
        return f"`pyrklog {group} --help` shows it".replace("  ", " ")
    if path in _ELSEWHERE:
        return _ELSEWHERE[path]
    ours = next((name for name in _COMMANDS.get(word, ()) if name in known), None)
    return None if ours is None else f"it is `pyrklog {group} {ours}`"


def hint(command: str, option: str) -> str | None:
    group = "groups stand behind the command without an option"
    if option == "--group" and command.startswith("group"):
        return group
    return _OF_COMMANDS.get(command, {}).get(option) or _ANY_COMMAND.get(option)


class HintingGroup(TyperGroup):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta.setdefault(ARGUMENTS, tuple(args))
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            _add_hint(error)
            number(error)
            raise

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            _add_hint(error)
            number(error)
            raise


def _add_hint(error: Any) -> None:
    """Adds a hint to typer's error about a command or an option; their classes have no public
    names."""
    context = getattr(error, "ctx", None)
    if context is None:
        return
    path = " ".join(context.command_path.split()[1:])
    option = getattr(error, "option_name", None)
    if type(error).__name__ == "NoSuchOption" and option is not None:
        found = hint(path, option)
        if found is not None:
            advise(error, found)
            error.possibilities = None
        return
    message = plain_sentence(error)
    if message is not None:
        error.message = message
        return
    message = str(getattr(error, "message", ""))
    plural, extra = _PLURAL.search(message), _EXTRA_OF_SERVE.match(message)
    if plural is not None and path.startswith("config"):
        advise(error, f"it is `pyrklog {path} {plural[1]} NAME`")
        return
    named = _NO_KIND.search(message)
    if named is not None and path.startswith("config"):
        kind = "broker" if named[1].isdecimal() or named[1] == ALL_BROKERS else "topic"
        advise(error, f"for example `pyrklog {path} {kind} {named[1]}`")
        return
    if extra is not None and path == "serve":
        advise(error, "serve takes --config FILE, and --data DIR")
        return
    if type(error).__name__ == "MissingParameter" and path == "config alter":
        advise(error, "a topic has its name, a broker its number: `pyrklog config alter broker 1`")
        return
    unknown = _NO_COMMAND.match(message)
    if unknown is not None:
        found = command_hint(path, unknown[1], getattr(context.command, "commands", {}))
        if found is not None:
            error.message = unknown[0]
            advise(error, found)
