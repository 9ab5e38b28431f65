"""Which records of a partition a group has redriven: what it commits. Pure.

The committed offset is that of the first record that is not redriven. Behind it there may be gaps:
records that a filter left, for instance. So the metadata of the commit names what is done there,
as ``redrive/1 GAP+COUNT,GAP+COUNT,...``: so many that are left, then so many that are done, from
the committed offset on; ``GAP`` alone stands for ``GAP+1``. Offsets without a record (markers of
transactions, what compaction removed) count as done between records that are.

The metadata is bounded, so a record is sent only if it can be remembered. Until brokers have
acknowledged a batch, any of its records may turn out to be done or left: each counts with the bytes
that it can cost at most (``_cost``).
"""

from bisect import bisect_right
from itertools import pairwise

PREFIX = "redrive/1 "
METADATA_BYTES_MAX = 4000
"""Below ``offset.metadata.max.bytes``, by default 4,096."""
RANGES_BYTES_MAX = 3000
"""No range is added beyond this. The rest is for records that lengthen a range, which cost next to
nothing once they are acknowledged: so they still go in batches."""
_OFFSET_MAX = 2**63 - 1


class Progress:
    """``next`` is the first offset that is not done. Ranges behind it are sorted, do not touch, and
    do not begin at it."""

    def __init__(self, next_: int, done: list[tuple[int, int]] | None = None) -> None:
        """``done``: such ranges; their ends are exclusive."""
        self.next = next_
        self._done = done or []
        self._bytes: int | None = None
        """Of the metadata, until a range is added."""
        self._expected_bytes = 0
        self._expected_last = -1
        starts = [next_, *(start for start, _ in self._done)]
        assert all(one < other for one, other in pairwise(starts))

    def covers(self, offset: int) -> bool:
        if offset < self.next:
            return True
        at = bisect_right(self._done, (offset, _OFFSET_MAX)) - 1
        return at >= 0 and offset < self._done[at][1]

    def add(self, start: int, stop: int) -> None:
        """Notes offsets from ``start`` to ``stop`` (exclusive) as done."""
        start = max(start, self.next)
        if start >= stop:
            return
        self._bytes = None
        first = bisect_right(self._done, (start, _OFFSET_MAX))
        if first and self._done[first - 1][1] >= start:
            first -= 1
            start = self._done[first][0]
        last = first
        while last < len(self._done) and self._done[last][0] <= stop:
            stop = max(stop, self._done[last][1])
            last += 1
        if start <= self.next:
            self.next = stop
            self._done[:last] = []
        else:
            self._done[first:last] = [(start, stop)]

    def bridge(self, start: int, stop: int) -> None:
        """Notes offsets without a record, if what is around them is done. Otherwise they are part
        of a gap, which costs nothing, while a range of their own would."""
        if self.covers(start - 1) and (start <= self.next or self.covers(stop)):
            self.add(start, stop)

    def expect(self, offset: int) -> None:
        """A record that may be done soon. Offsets ascend."""
        self._expected_bytes += self._cost(offset)
        self._expected_last = offset

    @property
    def is_expecting(self) -> bool:
        return self._expected_bytes > 0

    def settle(self) -> None:
        """What was expected is done by now, or is left."""
        self._expected_bytes = 0
        self._expected_last = -1

    def has_room(self, offset: int) -> bool:
        """Whether the metadata can hold this offset, too, whichever of the expected are done."""
        lengthens = self.covers(offset - 1) or offset - 1 == self._expected_last
        most = METADATA_BYTES_MAX if lengthens else RANGES_BYTES_MAX
        if self._size() + self._expected_bytes + self._cost(offset) <= most:
            return True
        if self.is_expecting or not lengthens:
            return False
        longer = Progress(self.next, list(self._done))
        longer.add(offset, offset + 1)
        return longer._size() <= max(METADATA_BYTES_MAX, self._size())

    def _cost(self, offset: int) -> int:
        """Bytes that an offset adds to the metadata at most: a gap before it, a comma and a plus
        sign; or, directly behind the last one, a larger count or a gap of one."""
        distance = offset - max(self._expected_last, self.next - 1)
        return 2 if distance <= 1 else len(str(distance)) + 2

    def _size(self) -> int:
        if self._bytes is None:
            self._bytes = max(len(PREFIX), len(self.metadata()))
        return self._bytes

    def metadata(self) -> str:
        """Empty without gaps."""
        parts: list[str] = []
        at = self.next
        for start, stop in self._done:
            count = stop - start
            parts.append(f"{start - at}" if count == 1 else f"{start - at}+{count}")
            at = stop
        return PREFIX + ",".join(parts) if parts else ""


def parse_progress(offset: int, metadata: str) -> Progress:
    """What was committed. Metadata of another program counts as none."""
    if not metadata.startswith(PREFIX):
        return Progress(offset)
    done: list[tuple[int, int]] = []
    at = offset
    for part in metadata.removeprefix(PREFIX).split(","):
        gap, plus, count = part.partition("+")
        numbers = [_positive(gap), _positive(count) if plus else 1]
        if None in numbers:
            return Progress(offset)
        start = at + (numbers[0] or 0)
        at = start + (numbers[1] or 0)
        if at > _OFFSET_MAX:
            return Progress(offset)
        done.append((start, at))
    return Progress(offset, done)


def _positive(text: str) -> int | None:
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(_OFFSET_MAX))
    return (int(text) or None) if is_number else None
