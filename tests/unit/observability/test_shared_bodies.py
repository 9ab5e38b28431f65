from pyrklog.observability.exposition import Exposition
from pyrklog.observability.shared_bodies import ALIVE_MAX, SharedBodies, SharedBody


def body(number: int) -> SharedBody:
    return SharedBody(Exposition(b"%d" % number, "text/plain"))


def test_slow_readers_share_the_newest_body() -> None:
    bodies = SharedBodies()
    readers = []
    for number in range(ALIVE_MAX):
        assert bodies.reused(is_openmetrics=False) is None
        readers.append(bodies.add(body(number), is_openmetrics=False))
    for _ in range(3):
        assert bodies.reused(is_openmetrics=False) is readers[-1]
    assert bodies.reused(is_openmetrics=True) is None, "formats are apart"


def test_a_body_that_all_have_taken_makes_room() -> None:
    bodies = SharedBodies()
    readers = [bodies.add(body(number), is_openmetrics=True) for number in range(ALIVE_MAX)]
    readers.append(readers[-1])
    del readers[-1]
    assert bodies.reused(is_openmetrics=True) is readers[-1], "one reader is left"
    del readers[0]
    assert bodies.reused(is_openmetrics=True) is None
