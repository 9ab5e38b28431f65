"""``pyrklog cluster``: what concerns all brokers."""

import typer

from pyrklog.cli import reassign

app = typer.Typer(
    help="Move partitions between brokers.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(reassign.app, name="reassign")
