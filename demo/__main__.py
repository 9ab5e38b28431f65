"""``python -m demo``: starts a broker, streams the flights through it and Spark, checks, draws.

Exit status: 0 all figures agree, 1 they do not, 2 usage, 3 something needed is missing or failed.
"""

import argparse
import calendar
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from demo import chart, delays, flights, topics
from demo.pipeline import Pipeline, start_spark
from demo.topics import DemoError

ROOT = Path(__file__).parents[1]
_SOURCE_PARTITIONS = 6
_TARGET_PARTITIONS = 3
_SHOWN_DIFFERENCES = 10


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__.splitlines()[0])
    parser.add_argument(
        "-b", "--bootstrap", help="a running broker to use, pyrklog or any Kafka [starts its own]"
    )
    parser.add_argument(
        "--months", type=_months, default=flights.MONTHS, help="of 2013: 1, or 3-6 [1-12]"
    )
    parser.add_argument("--pieces", type=int, default=4, help="runs of the query [4]")
    parser.add_argument("--out", type=Path, default=ROOT / "demo-out", help="[demo-out]")
    options = parser.parse_args(arguments)
    if not 1 <= options.pieces <= 100:
        parser.error("--pieces is 1 to 100")
    return options


def _months(text: str) -> range:
    first, _, last = text.partition("-")
    try:
        months = range(int(first), int(last or first) + 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not like 1 or 3-6") from None
    if not months or months[0] < 1 or months[-1] > 12:
        raise argparse.ArgumentTypeError(f"{text!r} is not within 1-12")
    return months


@contextmanager
def broker(bootstrap: str | None, folder: Path, console: Console) -> Iterator[str]:
    """The given broker, or one of our own during the context."""
    if bootstrap:
        yield bootstrap
        return
    from pyrklog.testing import BrokerExited, TestBroker

    with ExitStack() as stack:
        try:
            own = stack.enter_context(TestBroker(folder / "broker", faults=False))
        except BrokerExited as error:
            raise DemoError(f"the broker did not start: {error}") from error
        console.print(f"pyrklog listens on {own.bootstrap}, data in {own.data}", highlight=False)
        yield own.bootstrap


class Steps:
    """Prints each step with its duration."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last = time.monotonic()

    def done(self, text: str) -> None:
        """Ends a step."""
        now = time.monotonic()
        self._console.print(f"{now - self._last:6.1f} s  {text}", highlight=False)
        self._last = now


Show = Callable[[int], None]
"""Takes how many more there are."""


@contextmanager
def bars(console: Console, total: int) -> Iterator[tuple[Show, Show]]:
    """On a terminal, two bars: flights that the broker has acknowledged, and that Spark has read.
    The steps are printed above them."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        sent = progress.add_task("flights to the broker", total=total)
        read = progress.add_task("flights through Spark", total=total)
        yield partial(progress.advance, sent), partial(progress.advance, read)


def run(options: argparse.Namespace, console: Console) -> int:
    """The whole demo; returns the exit status."""
    out: Path = options.out
    for name in ("broker", "checkpoint", "delays.parquet", "warehouse"):
        shutil.rmtree(out / name, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    steps = Steps(console)
    chosen = flights.read(options.months)
    expected = delays.compute(chosen)
    steps.done(f"read {len(chosen):,} flights: {len(expected):,} pairs of carrier and hour")
    with broker(options.bootstrap, out, console) as bootstrap:
        # A foreign broker may hold results of earlier runs.
        suffix = f"-{secrets.token_hex(3)}" if options.bootstrap else ""
        source, target = f"flights{suffix}", f"flight-delays{suffix}"
        topics.create(bootstrap, {source: _SOURCE_PARTITIONS, target: _TARGET_PARTITIONS})
        spark = start_spark(out)
        steps.done("started Spark")
        try:
            pipeline = Pipeline(spark, bootstrap, out, source, target)
            with bars(console, len(chosen)) as (show_sent, show_read):
                producer = topics.FlightProducer(bootstrap, source, show_sent)
                for piece in flights.pieces(chosen, options.pieces):
                    show_read(stream(piece, producer, pipeline, steps))
                producer.send_marker(flights.end_marker(chosen))
                pipeline.run()
            steps.done("end marker: the last windows are closed")
            in_parquet = list(pipeline.read_parquet())
        finally:
            spark.stop()
        in_topic = [delays.parse(value) for value in topics.read_all(bootstrap, target)]
        steps.done(f"read {len(in_parquet):,} rows of Parquet, {len(in_topic):,} of {target}")
    wrong = [f"Parquet: {text}" for text in delays.differences(expected, in_parquet)]
    wrong += [f"{target}: {text}" for text in delays.differences(expected, in_topic)]
    carriers = chart.roll_up(dict(in_topic), flights.airline_names())
    first, last = (calendar.month_name[options.months[end]] for end in (0, -1))
    period = first if first == last else f"{first} to {last}"
    chart.draw(out / "delays.png", carriers, f"Departure delays from New York, {period} 2013")
    console.print(chart.table(carriers))
    return conclude(wrong, len(expected), out, target, console)


def stream(
    piece: list[flights.Flight],
    producer: topics.FlightProducer,
    pipeline: Pipeline,
    steps: Steps,
) -> int:
    """Sends a piece of the flights and lets the query take it. Returns how many rows that were."""
    sent = producer.send(piece)
    steps.done(f"{sent:,} flights up to {piece[-1].time_hour[:10]} produced")
    rows, late = pipeline.run()
    if late:
        raise DemoError(f"Spark dropped {late} rows as too late, though none was")
    steps.done(f"{rows:,} rows through the query, from its checkpoint")
    return rows


def conclude(wrong: list[str], expected: int, out: Path, target: str, console: Console) -> int:
    """Says whether the figures agree, and what to look at."""
    if wrong:
        console.print(f"MISMATCH: {len(wrong)} of {expected:,} figures differ", style="bold red")
        for text in wrong[:_SHOWN_DIFFERENCES]:
            console.print(f"  {text}", highlight=False)
        return 1
    console.print(
        f"All {expected:,} pairs of carrier and hour agree with the same computation on the CSV, "
        f"in Parquet and in topic {target}.",
        style="green",
    )
    console.print(
        f"Look at:  {out / 'delays.png'}  (the chart)\n"
        f"          {out / 'delays.parquet'}  (the result, by batch)\n"
        f"          {out / 'checkpoint'}  (how Spark remembers its offsets)",
        highlight=False,
    )
    if (out / "broker").exists():
        console.print(
            f"          {out / 'broker'}  (what the broker stored; "
            f"`pyrklog serve --data {out / 'broker'}` serves it again)",
            highlight=False,
        )
    return 0


def main() -> int:
    options = parse(sys.argv[1:])
    console = Console() if sys.stdout.isatty() else Console(width=130)
    try:
        return run(options, console)
    except DemoError as error:
        console.print(f"error: {error}", style="red", highlight=False)
        return 3


if __name__ == "__main__":
    sys.exit(main())
