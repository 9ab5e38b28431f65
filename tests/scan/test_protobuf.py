"""``pyrklog.scan(decode="protobuf")`` on a broker of ours: messages as typed columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import pyrklog
from pyrklog.scanning import BadValueError, Scan
from tests.support.clients import Confluent, Record
from tests.support.protobuf import DESCRIPTORS, part
from tests.support.scanning import iterated, rows


def produce(bootstrap: str, topic: str, values: list[bytes | None]) -> None:
    records = [Record(b"key", value) for value in values]
    Confluent().produce(bootstrap, topic, records, codec="zstd")


def scan(bootstrap: str, topic: str, **options: Any) -> Scan:
    given: dict[str, Any] = {"decode": "protobuf", "schema": DESCRIPTORS, "message": "shop.Order"}
    columns = options.pop("columns", ["offset", "value"])
    given |= {"bootstrap_servers": bootstrap, **options}
    return pyrklog.scan(topic, columns=columns, **given)


def order(number: int) -> bytes:
    line = part(1, f"s{number}") + part(2, number / 2)
    return part(1, number) + part(3, line) + part(3, b"") + part(5, b"\1\2")


def expected(number: int) -> Any:
    lines = [{"sku": f"s{number}", "price": number / 2}, {"sku": "", "price": 0.0}]
    return {"id": number, "name": "", "lines": lines, "first": None, "counts": [1, 2]}


def test_messages_are_typed_columns_beside_the_others(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, [*(order(n) for n in range(2000)), None, b""])
    found = scan(bootstrap, topic, columns=["value", "key"])
    table = found.reader().read_all()
    table.validate(full=True)
    line = pa.struct([pa.field("sku", pa.string(), False), pa.field("price", pa.float64(), False)])
    assert table.schema.field("value").type == pa.struct(
        [
            pa.field("id", pa.int64(), False),
            pa.field("name", pa.string(), False),
            pa.field("lines", pa.list_(pa.field("item", line, False)), False),
            pa.field("first", line, True),
            pa.field("counts", pa.list_(pa.field("item", pa.int32(), False)), False),
        ]
    )
    zero = {"id": 0, "name": "", "lines": [], "first": None, "counts": []}
    values = [*(expected(n) for n in range(2000)), None, zero]
    assert table.to_pylist() == [{"value": value, "key": b"key"} for value in values]
    some = scan(bootstrap, topic, fields=["counts", "id"], columns=["value"], end=1)
    assert rows(some) == [{"value": {"counts": [1, 2], "id": 0}}]


@pytest.mark.parametrize("bad", [b"\x80", b"\x12\5ab", b"\x12\1\xff", b"\7"])
def test_a_bad_value_costs_its_own_row(bootstrap: str, topic: str, bad: bytes) -> None:
    values: list[bytes | None] = [order(n) for n in range(500)]
    values[77] = order(77) + bad
    produce(bootstrap, topic, values)
    cells = [{"offset": n, "value": expected(n)} for n in range(500)]
    nulls = scan(bootstrap, topic)
    assert rows(nulls) == [*cells[:77], {"offset": 77, "value": None}, *cells[78:]]
    assert nulls.progress()[0].bad == 1
    dropping = scan(bootstrap, topic, on_bad="drop")
    assert rows(dropping) == [*cells[:77], *cells[78:]]
    place = f"topic {topic} partition 0 offset 77: the value does not fit the schema: "
    with pytest.raises(BadValueError, match=place):
        iterated(scan(bootstrap, topic, on_bad="fail"))


def test_a_frame_names_the_message(bootstrap: str, topic: str) -> None:
    frame = b"\0\0\0\0\7"
    produce(bootstrap, topic, [frame + b"\2\2" + order(1), frame + b"\0" + order(2), order(3)])
    found = scan(bootstrap, topic, framed=True, columns=["value"])
    assert rows(found) == [{"value": expected(1)}, {"value": None}, {"value": None}]


def test_what_cannot_be_decoded_is_refused_at_once(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, [b""])
    with pytest.raises(ValueError, match='no message "Order"; it has shop'):
        scan(bootstrap, topic, message="Order")
    with pytest.raises(ValueError, match="no set of descriptors"):
        scan(bootstrap, topic, schema=b"\x80")
    with pytest.raises(ValueError, match='no field "idd"; it has id, name'):
        scan(bootstrap, topic, fields=["idd"])
