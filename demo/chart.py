"""The result as a picture, and as a table for the terminal."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from rich.table import Table

from demo.delays import Delays, Key, combine

NEW_YORK = ZoneInfo("America/New_York")
_HOURS = range(5, 24)  # in the whole year one flight was scheduled before five, and never left
_BARS = "▁▂▃▄▅▆▇█"
_BAR_MINUTES = 5


@dataclass(frozen=True)
class Carrier:
    """One carrier over the whole time, and by the hour of the day in New York."""

    code: str
    name: str
    total: Delays
    by_hour: dict[int, Delays]


def roll_up(result: Mapping[Key, Delays], names: Mapping[str, str]) -> list[Carrier]:
    """Groups by carrier and hour of the day; the busiest carrier first."""
    groups: dict[str, dict[int, list[Delays]]] = {}
    for (code, hour), delays in result.items():
        local = datetime.fromisoformat(hour.replace("Z", "+00:00")).astimezone(NEW_YORK)
        groups.setdefault(code, {}).setdefault(local.hour, []).append(delays)
    carriers = []
    for code, hours in groups.items():
        by_hour = {hour: combine(parts) for hour, parts in hours.items()}
        name = names.get(code, code)
        carriers.append(Carrier(code, name, combine(by_hour.values()), by_hour))
    return sorted(carriers, key=lambda carrier: -carrier.total.flights)


def table(carriers: list[Carrier]) -> Table:
    """For the terminal: one row a carrier, with a bar for each hour of the day."""
    out = Table(title="Departure delays from New York")
    out.add_column("carrier")
    for heading in ("flights", "never left", "late ≥ 15 min", "mean delay"):
        out.add_column(heading, justify="right")
    out.add_column(f"mean delay by hour, {_HOURS[0]}h to {_HOURS[-1]}h", no_wrap=True)
    for carrier in carriers:
        total = carrier.total
        mean = total.delay_mean
        out.add_row(
            carrier.name,
            f"{total.flights:,}",
            f"{total.flights - total.departed:,}",
            f"{total.late / total.departed:.0%}" if total.departed else "–",
            "–" if mean is None else f"{mean:.1f} min",
            "".join(_bar(carrier.by_hour.get(hour)) for hour in _HOURS),
        )
    return out


def _bar(delays: Delays | None) -> str:
    mean = delays.delay_mean if delays else None
    if mean is None:
        return " "
    return _BARS[min(max(int(mean / _BAR_MINUTES), 0), len(_BARS) - 1)]


def draw(path: Path, carriers: list[Carrier], title: str) -> None:
    """Writes a PNG: the mean delay of each carrier by the hour of the day."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    means = [
        [
            mean
            if (hour := carrier.by_hour.get(h)) and (mean := hour.delay_mean) is not None
            else float("nan")
            for h in _HOURS
        ]
        for carrier in carriers
    ]
    figure, axis = pyplot.subplots(figsize=(10, 0.36 * len(carriers) + 2), layout="constrained")
    image = axis.imshow(means, aspect="auto", cmap="YlOrRd", vmin=0, vmax=45)
    axis.set_yticks(range(len(carriers)), [carrier.name for carrier in carriers])
    axis.set_xticks(range(len(_HOURS)), [f"{hour}h" for hour in _HOURS])
    axis.set_xlabel("scheduled departure, New York time (blank: no flights)")
    axis.set_title(title)
    figure.colorbar(image, label="mean departure delay, minutes", extend="both")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
