"""The frame of a benchmark without a reference broker: space, scheduling, files, exit status."""

import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from benches import environment, figures, scheduling, spent
from benches.brokers import BenchError
from benches.figures import Figure

_WIDTH = 140
_SPARE_SHARE = 0.1


@dataclass(frozen=True)
class Benchmark:
    title: str
    settings: Mapping[str, object]
    disk_bytes: int
    """The most that it has on disk at the same time."""
    less: str
    """How it needs less space: ", or ...", or nothing."""
    measure: Callable[[Path, Console], Sequence[Figure]]

    @property
    def needed_bytes(self) -> float:
        return self.disk_bytes * (1 + _SPARE_SHARE)


def too_little_space(benchmark: Benchmark, folder: Path, free_bytes: int) -> str | None:
    """Why it does not begin, if the disk is too full."""
    needed = benchmark.needed_bytes
    if free_bytes >= needed:
        return None
    return (
        f"{folder} has {free_bytes / 1e9:.1f} GB free, {needed / 1e9:.1f} GB are needed: "
        f"choose another folder with --out{benchmark.less}"
    )


def run(benchmark: Benchmark, out: str, *, strict: bool) -> int:
    """Exit status: 0 measured, 1 a goal missed (with ``strict``), 3 could not measure."""
    # Wide enough for the table without a terminal, as in a log file.
    console = Console() if sys.stdout.isatty() else Console(width=_WIDTH)
    folder = Path(out).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    console.print(f"needs {benchmark.needed_bytes / 1e9:.1f} GB of free disk", highlight=False)
    try:
        refusal = too_little_space(benchmark, folder, shutil.disk_usage(folder).free)
        if refusal is not None:
            raise BenchError(refusal)
        with (
            scheduling.without_autogroups() as scheduled,
            tempfile.TemporaryDirectory(prefix="data-", dir=folder) as data,
        ):
            machine = {**environment.describe(folder), "scheduling": scheduled}
            found = benchmark.measure(Path(data), console)
            spent.sweep()
    except BenchError as error:
        console.print(f"error: {error}", style="red", highlight=False)
        return 3
    finally:
        spent.sweep()
    figures.write(folder, found, benchmark.settings, machine)
    console.print(figures.table(f"{benchmark.title} (medians)", found))
    console.print(f"results.json and table.md in {folder}")
    return 1 if strict and any(figure.is_missed for figure in found) else 0
