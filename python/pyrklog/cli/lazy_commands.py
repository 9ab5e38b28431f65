"""Commands whose modules are imported when they are called: most of a short command's time would
otherwise go into importing the others."""

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from textwrap import shorten
from typing import Any, NamedTuple

import typer

from pyrklog.cli.hints import HintingGroup
from pyrklog.cli.usage import Commands


class Lazy(NamedTuple):
    """``attribute`` of ``module`` is a group (a :class:`typer.Typer`) or a command's function.
    ``about``: the first line of its help."""

    module: str
    attribute: str
    about: str


def _of_cli(module: str, about: str, attribute: str = "app") -> Lazy:
    return Lazy(f"pyrklog.cli.{module}", attribute, about)


LAZY: Mapping[str, Lazy] = {
    "produce": _of_cli(
        "produce",
        "Write records, one for each value or line. With -v, print where each one went.",
        "produce",
    ),
    "consume": _of_cli("consume", "Read records and print them.", "consume"),
    "redrive": _of_cli(
        "redrive",
        "Move records of a dead-letter topic back to where they came from.",
        "redrive",
    ),
    "completion": _of_cli(
        "completion",
        "Print what completes commands, options, topics and groups in a shell; `eval` it there.",
        "completion",
    ),
    "topic": _of_cli(
        "topic", "Create, list, describe, alter, delete, trim, copy and weigh topics."
    ),
    "group": _of_cli("group", "List, describe, move and delete consumer groups."),
    "config": _of_cli(
        "config",
        "Explain, describe, change, compare and convert options of brokers, topics and more.",
    ),
    "dev": _of_cli(
        "dev", "Run clusters on this machine: real brokers, a real ZooKeeper, faults at will."
    ),
    "log": _of_cli("log", "Look into log files, compare replicas, merge state-change logs."),
    "arena": _of_cli("arena", "Look after block caches that brokers left in shared memory."),
    "cluster": _of_cli(
        "cluster",
        "See how a cluster is, whether a broker may restart; elect leaders, move partitions, empty "
        "brokers, end transactions.",
    ),
    "mirror": _of_cli(
        "mirror", "Copy topics of one cluster to another, exactly once; show how far it is."
    ),
    "bench": _of_cli("bench", "Measure a Kafka: throughput, latency, processor time."),
    "doctor": _of_cli(
        "doctor.command",
        "Look for the mistakes that keep a cluster from working; say how to mend each.",
        "doctor",
    ),
    "explain": _of_cli(
        "explain",
        "Explain an error's number: what it means, usual causes, what to do; without it, list all.",
        "explain",
    ),
    "deploy": _of_cli(
        "deploy",
        "Print or write what runs a broker as a service; without KIND, list what there is.",
        "deploy",
    ),
    "profile": _of_cli(
        "profile", "Keep clusters' brokers, options and guards under names, and choose one."
    ),
}


class LazyCommands(MutableMapping[str, Any]):
    """The lazy commands by name, then those that are there already. Looking one up imports it."""

    def __init__(self, lazy: Mapping[str, Lazy], loaded: Mapping[str, Any]) -> None:
        self._lazy = lazy
        self._loaded = dict(loaded)

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded and name in self._lazy:
            self._loaded[name] = load(name, self._lazy[name])
        return self._loaded[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        raise TypeError("commands stay")

    def __contains__(self, name: object) -> bool:
        return name in self._lazy or name in self._loaded

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._lazy, *self._loaded)))

    def __len__(self) -> int:
        return len(set(self._lazy) | set(self._loaded))

    def about(self) -> dict[str, str]:
        """The first line of each visible command's help; imports none."""
        lazy = {name: one.about for name, one in self._lazy.items()}
        return lazy | {
            name: str(one.help or "").strip().split("\n")[0]
            for name, one in self._loaded.items()
            if not one.hidden and name not in lazy
        }


class LazyGroup(HintingGroup):
    """The outermost group."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands: LazyCommands = LazyCommands(LAZY, self.commands)

    def list_commands(self, _ctx: Any) -> list[str]:
        return list(self.commands)

    def format_commands(self, _ctx: Any, formatter: Any) -> None:
        about = self.commands.about()
        width = formatter.width - 6 - max(map(len, about))
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, shorten(one, width, placeholder="...")) for name, one in about.items()]
            )


def load(name: str, lazy: Lazy) -> Any:
    """The command, with its own commands if it is a group."""
    found = getattr(import_module(lazy.module), lazy.attribute)
    if isinstance(found, typer.Typer):
        command: Any = typer.main.get_group(found)
    else:
        single = Commands(add_completion=False, rich_markup_mode=None)
        single.command(name)(found)
        command = typer.main.get_command(single)
    command.name = name
    return command
