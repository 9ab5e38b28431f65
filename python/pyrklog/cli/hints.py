from typing import Any

from typer.core import TyperGroup

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
}
_OF_COMMANDS = {
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
    },
    "group seek": {
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
}


def hint(command: str, option: str) -> str | None:
    group = "groups stand behind the command without an option"
    if option == "--group" and command.startswith("group"):
        return group
    return _OF_COMMANDS.get(command, {}).get(option) or _ANY_COMMAND.get(option)


class HintingGroup(TyperGroup):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            _add_hint(error)
            raise

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            _add_hint(error)
            raise


def _add_hint(error: Any) -> None:
    """Adds a hint to typer's error about an option; its class has no public name."""
    option, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    if type(error).__name__ != "NoSuchOption" or option is None or context is None:
        return
    found = hint(" ".join(context.command_path.split()[1:]), option)
    if found is not None:
        error.message = f"{error.message}; {found}"
        error.possibilities = None
