"""What clients have pushed, as text that Prometheus reads."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as as_openmetrics
from prometheus_client.parser import text_string_to_metric_families as as_text

from pyrklog.observability.client_samples import client_families, own_samples
from pyrklog.observability.exposition import OPENMETRICS, render
from pyrklog.telemetry.client_metrics import Exposed, ExposedClient
from pyrklog.telemetry.otlp import LABELS_MAX, NAME_CHARS_MAX, TEXT_CHARS_MAX, Point, Reading
from pyrklog.telemetry.series import (
    TEXT_BYTES_MAX,
    Pushed,
    SeriesKey,
    SeriesTable,
    Value,
    shown_bytes,
)


def counter(value: float) -> Value:
    return Value(value, is_counter=True, is_delta=False)


def gauge(value: float) -> Value:
    return Value(value, is_counter=False, is_delta=False)


def client(number: int, series: dict[SeriesKey, Value], client_id: str = "c") -> ExposedClient:
    info = (("client_id", client_id), ("group_id", 'g"\\'))
    return ExposedClient(f"i{number}", client_id, info, series)


def read(clients: Sequence[ExposedClient]) -> dict[str, Any]:
    """Type, and values by labels in the order of their names, of each sample's name; the same in
    both formats, but for the name of the unknown type."""
    exposed = Exposed(clients, len(clients), 5, {"INVALID_RECORD": 2}, 3)
    found = []
    for accept, parse in (("", as_text), (OPENMETRICS, as_openmetrics)):
        families = client_families(exposed.clients)
        text = render(own_samples(exposed), accept, clients=families).body.decode()
        parsed = parse(text)
        names: dict[str, tuple[str, dict[tuple[str, ...], float]]] = {}
        for family in parsed:
            for one in family.samples:
                labels = tuple(value for _, value in sorted(one.labels.items()))
                names.setdefault(one.name, (family.type, {}))[1][labels] = one.value
        found.append(names)
    assert found[0] == found[1]
    return found[0]


def test_the_series_of_clients_name_them() -> None:
    found = read(
        [
            client(1, {("a", (("topic", "t"),)): gauge(1.5), ("b_total", ()): counter(7)}),
            client(2, {("a", (("topic", "t"),)): gauge(2)}, "d"),
        ]
    )
    assert found["a"] == ("gauge", {("c", "i1", "t"): 1.5, ("d", "i2", "t"): 2})
    assert found["b_total"] == ("counter", {("c", "i1"): 7})
    assert found["pyrklog_client_info"][1] == {("c", "i1", 'g"\\'): 1, ("d", "i2", 'g"\\'): 1}


def test_the_broker_tells_what_it_took_and_refused() -> None:
    found = read([])
    assert found["pyrklog_client_metrics_instances"][1] == {(): 0}
    assert found["pyrklog_client_metrics_pushes_total"] == ("counter", {(): 5})
    assert found["pyrklog_client_metrics_refused_total"][1] == {("INVALID_RECORD",): 2}
    assert found["pyrklog_metrics_left_out_series"][1] == {(): 3}
    assert "pyrklog_client_info" not in found


def test_a_counter_gets_its_ending() -> None:
    assert read([client(1, {("a", ()): counter(1)})])["a_total"][0] == "counter"


def test_a_name_of_two_types_has_none() -> None:
    found = read([client(1, {("a_total", ()): counter(1)}), client(2, {("a_total", ()): gauge(2)})])
    assert found["a_total"] == ("unknown", {("c", "i1"): 1, ("c", "i2"): 2})


def test_names_that_would_be_one_family_stay_apart() -> None:
    found = read([client(1, {("a_total", ()): counter(1), ("a", ()): gauge(2)})])
    assert found["a_total"] == ("unknown", {("c", "i1"): 1})
    assert found["a"] == ("gauge", {("c", "i1"): 2})
    assert read([client(1, {("_total", ()): counter(1)})])["_total"][0] == "unknown"
    found = read([client(1, {("a", ()): counter(1), ("a_created", ()): gauge(2)})])
    assert (found["a_total"][0], found["a_created"][0]) == ("unknown", "gauge")


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b"]),
            st.sampled_from(["", "_total", "_created", "_info", "_sum", "_bucket", "_total_total"]),
            st.booleans(),
        )
    )
)
def test_any_names_and_types_can_be_read(chosen: list[tuple[str, str, bool]]) -> None:
    series: dict[SeriesKey, Value] = {
        (name + ending, ()): Value(1, is_counter=is_counter, is_delta=False)
        for name, ending, is_counter in chosen
    }
    assert len(read([client(1, series)])) >= len({name for name, _, _ in chosen})


def test_a_client_is_named_by_the_broker() -> None:
    labels = (("client_id", "x"), ("client_instance_id", "x"), ("topic", "t"))
    assert read([client(1, {("a", labels): gauge(1)})])["a"][1] == {("c", "i1", "t"): 1}


def test_texts_of_clients_cannot_break_the_answer() -> None:
    labels = (("topic", 't"} 5\\n\nup 1'),)
    found = read([client(1, {("a", labels): gauge(1)}, 'c"\n\\')])
    assert found["a"][1] == {('c"\n\\', "i1", 't"} 5\\n\nup 1'): 1}
    assert "up" not in found


def test_what_is_counted_as_text_bounds_the_answer() -> None:
    """The answer of many clients with as much text as they may have."""
    table, clients = SeriesTable(), []
    client_id = chr(0x1F600) * TEXT_CHARS_MAX
    labels = tuple((f"l{number}", '"' * 40) for number in range(LABELS_MAX))
    info = (("group_id", chr(0x1F600) * TEXT_CHARS_MAX),)
    for number in range(2_000):
        pushed = Pushed()
        pushed.who_bytes += shown_bytes(client_id)
        name = f"{number:04}".rjust(NAME_CHARS_MAX, "n")
        points = [Point(f"{letter}{name}", labels, True, False, -1e-300) for letter in "abc"]
        points += [Point(letter, (), False, False, -1.2345678901234567e-300) for letter in "def"]
        table.take(pushed, f"10.0.0.{number % 5}", Reading(info, points, 0))
        if pushed.series:
            found = ExposedClient(f"i{number:021}", client_id, pushed.client, pushed.series)
            clients.append(found)
    assert TEXT_BYTES_MAX * 0.9 < table.text_bytes <= TEXT_BYTES_MAX
    exposed = Exposed(clients, len(clients), 0, {}, 0)
    for accept in ("", OPENMETRICS):
        body = render(own_samples(exposed), accept, clients=client_families(clients)).body
        assert len(body) < table.text_bytes
