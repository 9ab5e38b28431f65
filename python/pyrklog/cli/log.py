"""``pyrklog log``: looks into a broker's files, or hands them to Kafka, without a broker."""

from pathlib import Path
from typing import Annotated

import typer

from pyrklog.cli.failures import CliError, Exit, guarded
from pyrklog.cli.options import Output, OutputFormat

app = typer.Typer(help="Look into log files.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def log() -> None:
    """Look into log files."""


@app.command("dump")
@guarded
def dump(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", show_default=False)],
    records: Annotated[
        bool, typer.Option("--records", help="Each record of each batch too.")
    ] = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify/--no-verify", help="Check every checksum, and indexes against their segment."
        ),
    ] = True,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Print segments, indexes, snapshots and checkpoints; PATH is a file or a partition folder.

    Where something is damaged, says at which byte and ends with exit code 8.
    """
    from pyrklog.cli.dumping import Printer, files, rows

    printer = Printer(output, lines=records)
    for path in files(paths):
        printer.begin(path)
        for row in rows(path, records=records, verify=verify):
            printer.add(row)
        printer.end()
    printer.finish()
    if printer.damages:
        what = "damage" if printer.damages == 1 else "damages"
        raise CliError(Exit.DIFFERS, f"{printer.damages} {what} found")


@app.command("export-kraft")
@guarded
def export_kraft(
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="As given to pyrklog serve.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="As given to pyrklog serve.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="K=V", help="As given to pyrklog serve.")
    ] = None,
) -> None:
    """Make the log directories of a stopped broker ready for Apache Kafka 3.9 (KRaft).

    Writes bootstrap.checkpoint and meta.properties, so that Kafka starts with our topics, options,
    epochs and producer ids on log.dirs as they are. No record is copied, nothing is deleted.
    """
    import os

    from pyrklog.adoption.export import export_kraft as export
    from pyrklog.config import load_config
    from pyrklog.errors import StartError

    flags = {"pyrklog.data.dir": str(data)} if data is not None else {}
    if data is None and config is None and not set_:
        # It changes what it finds: never the default directory, of which nobody has thought.
        raise CliError(Exit.USAGE, "whose directories?", "give --data or --config, as to serve")
    try:
        settings = load_config(file=config, overrides=set_ or (), environ=os.environ, flags=flags)
        done = export(settings)
    except StartError as error:
        raise CliError(Exit.FAILED, error.what.rstrip("."), error.fix) from None
    typer.echo(f"{done.topics} topics, {done.partitions} partitions, for Kafka 3.9 in KRaft mode")
    typer.echo(f"node.id={done.node_id}")
    typer.echo(f"log.dirs={','.join(map(str, settings.log_dirs))}")
    typer.echo(f"cluster id: {done.cluster_id} (kept in meta.properties; do not format again)")
    typer.echo(f"our metadata, and any older one of Kafka's, was put aside: {done.put_aside}")
