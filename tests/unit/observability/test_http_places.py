"""Which connections wait, are served and are ended; a connection is a name here."""

from collections import Counter
from dataclasses import dataclass

from pyrklog.observability.http_places import SERVED_MAX, WAITING_MAX, Places


@dataclass(eq=False)
class Fake:
    name: str
    is_idle: bool = True


def full(**clients: int) -> tuple[Places[str, Fake], list[Fake]]:
    """Each client with so many that are served, in this order."""
    places: Places[str, Fake] = Places()
    found = []
    for client, count in clients.items():
        for number in range(count):
            found.append(Fake(f"{client}{number}"))
            places.serve(client, found[-1])
    assert len(places.served) == SERVED_MAX
    return places, found


def ended(places: Places[str, Fake], client: str) -> str:
    one = places.surplus(client)
    assert one is not None
    return one.name


def test_there_is_nothing_to_end_while_there_is_a_place() -> None:
    places: Places[str, Fake] = Places()
    for number in range(SERVED_MAX):
        assert places.surplus("a") is None
        places.serve("a", Fake(str(number)))
    assert ended(places, "a") == "0"


def test_the_client_that_has_most_gives_up_its_oldest() -> None:
    places, _ = full(probe=1, scrape=2, flood=13)
    assert ended(places, "probe") == ended(places, "new") == ended(places, "flood") == "flood0"


def test_one_more_than_others_have_is_most() -> None:
    places, _ = full(a=8, b=8)
    assert ended(places, "b") == "b0"
    assert ended(places, "a") == "a0"
    assert ended(places, "new") == "a0"


def test_an_idle_connection_is_ended_before_one_with_a_request() -> None:
    places, all_of = full(probe=1, flood=15)
    all_of[1].is_idle = all_of[2].is_idle = False
    assert ended(places, "new") == "flood2"
    for one in all_of:
        one.is_idle = False
    assert ended(places, "new") == "flood0"


def test_with_one_each_the_oldest_idle_is_ended() -> None:
    places, all_of = full(**{f"c{number}_": 1 for number in range(SERVED_MAX)})
    assert ended(places, "new") == "c0_0"
    all_of[0].is_idle = False
    assert ended(places, "new") == "c1_0"


def test_who_has_left_has_no_place() -> None:
    places, all_of = full(flood=16)
    places.leave(all_of[3])
    places.leave(all_of[3])
    assert places.surplus("flood") is None
    assert len(places.served) == SERVED_MAX - 1


def test_clients_that_wait_take_turns() -> None:
    places: Places[str, Fake] = Places()
    for stream in ("a0", "a1", "a2", "b0", "a3", "c0", "b1"):
        assert places.arrive(stream[0], stream) is None
    turns = []
    while (found := places.next()) is not None:
        turns.append(found[1])
        assert found[0] == found[1][0]
    assert turns == ["a0", "b0", "c0", "a1", "b1", "a2", "a3"]


def test_a_client_that_comes_while_others_flood_is_next_but_one() -> None:
    places: Places[str, Fake] = Places()
    for number in range(40):
        places.arrive("flood", f"flood{number}")
    places.arrive("probe", "probe")
    assert [places.next(), places.next()] == [("flood", "flood0"), ("probe", "probe")]


def test_too_many_that_wait_cost_the_client_that_has_most() -> None:
    places: Places[str, Fake] = Places()
    places.arrive("probe", "probe")
    ends = Counter(places.arrive("flood", f"flood{number}") for number in range(1000))
    assert ends.pop(None) == WAITING_MAX - 1
    assert "probe" not in ends
    assert max(ends.values()) == 1
    left = []
    while (found := places.next()) is not None:
        left.append(found[1])
    assert left == ["probe", *(f"flood{number}" for number in range(1001 - WAITING_MAX, 1000))]


def test_as_many_clients_as_can_wait_and_one_more() -> None:
    places: Places[str, Fake] = Places()
    ends = [places.arrive(f"c{number}", f"c{number}") for number in range(WAITING_MAX + 1)]
    assert ends == [None] * WAITING_MAX + ["c0"]
