import json
import sys

from hypothesis import given
from hypothesis import strategies as st

from pyrklog.base.json_text import without_controls

DANGEROUS = [
    *range(0x20),
    *range(0x7F, 0xA0),
    0x061C,
    *range(0x200E, 0x2010),
    *range(0x2028, 0x202F),
    *range(0x2066, 0x206A),
]
"""Controls of C0 and C1, line separators, marks and overrides of the direction of text."""


@given(st.text(max_size=50))
def test_programs_read_the_same(text: str) -> None:
    told = json.dumps(text, ensure_ascii=False)
    assert json.loads(without_controls(told)) == text


def test_only_controls_are_escaped() -> None:
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    told = without_controls(json.dumps(every, ensure_ascii=False))
    assert set(every) - set(told) == set(map(chr, DANGEROUS))
    assert json.loads(told) == every
