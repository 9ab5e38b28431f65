from dataclasses import replace

import typer

from pyrklog.cli import serve
from pyrklog.cli.failures import ending, guarded
from pyrklog.cli.lazy_commands import LazyGroup
from pyrklog.cli.options import (
    AdoptZooKeeper,
    Bootstrap,
    BrokerId,
    Properties,
    Quiet,
    Timeout,
    Verbose,
    ZooKeeper,
    given,
    option,
)
from pyrklog.cli.usage import Commands

HELP = """A distributed log broker that speaks Kafka's protocol, and tools for any Kafka.

Exit codes: 0 ok, 1 failed, 2 usage, 3 unreachable, 4 not found, 5 exists, 6 denied, 7 timed out,
8 unhealthy or differs, 9 partly done, 130 interrupted, 143 terminated; of serve: 78 configuration,
75 try again, 74 disk. Errors have numbers: `pyrklog explain PK07` tells more about one.
"""

app = Commands(
    cls=LazyGroup,
    help=HELP,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from pyrklog import __version__

        typer.echo(f"pyrklog {__version__}")
        raise typer.Exit


@app.callback()
@guarded
def root(
    context: typer.Context,
    bootstrap: Bootstrap = None,
    profile_name: str | None = option(
        "-p, --profile NAME",
        "Profile to use (see `pyrklog profile`), or none; environment PYRKLOG_PROFILE.",
        None,
    ),
    confirmed: str | None = option(
        "--confirm NAME", "The profile's name, where it asks for it before a change.", None
    ),
    properties: Properties = None,
    timeout: Timeout = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
    _version: bool = option(
        "--version", "Print the version.", False, callback=_print_version, is_eager=True
    ),
) -> None:
    """Keeps the options before the command for it."""
    found = given(context, bootstrap, profile_name, properties, timeout, verbose, quiet)
    context.obj = replace(found, confirmed=confirmed)


@app.command("serve")
def serve_command(
    data: str | None = option(
        "--data DIR",
        "Where the data lies. Default: pyrklog/default below $XDG_DATA_HOME, or ~/.local/share.",
        None,
    ),
    listen: str | None = option(
        "--listen HOST:PORT",
        "Where to listen; port 0 picks a free one. Default: 127.0.0.1:9092.",
        None,
    ),
    http: str | None = option(
        "--http HOST:PORT",
        "Where metrics and health are served, or none. Default: 127.0.0.1, the Kafka port + 100.",
        None,
    ),
    config: str | None = option(
        "--config FILE", "A server.properties of Kafka, unchanged, or TOML with its names.", None
    ),
    sets: list[str] | None = option(
        "--set K=V",
        "One option; wins over file and environment, but not over changes at run time; may be "
        "repeated.",
        None,
    ),
    zookeeper: ZooKeeper = None,
    broker_id: BrokerId = None,
    adopt_zookeeper: AdoptZooKeeper = None,
    check: bool = option("--check", "Check the configuration and end (0 good, 78 not).", False),
    print_config: bool = option(
        "--print-config", "Print every option with its source and end.", False
    ),
    tmp: bool = option("--tmp", "Keep data in a temporary directory, removed at the end.", False),
    drop_cache: bool = option(
        "--drop-cache", "Start without the block cache that the last end left in memory.", False
    ),
    log_level: str = option("--log-level LEVEL", "debug, info, warning or error.", "info"),
    log_format: str = option(
        "--log-format FORMAT", "json, text, or auto: text on a terminal only.", "auto"
    ),
) -> None:
    """Run a broker until Ctrl-C."""
    options = serve.ServeOptions(
        data=data,
        listen=listen,
        http=http,
        config=config,
        sets=sets or [],
        check=check,
        print_config=print_config,
        tmp=tmp,
        drop_cache=drop_cache,
        adopt_zookeeper=adopt_zookeeper,
        zookeeper=zookeeper,
        broker_id=broker_id,
        log_level=log_level,
        log_format=log_format,
    )
    raise typer.Exit(ending(serve.serve, options))
