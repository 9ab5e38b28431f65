"""Places for what waits; who a client is."""

from contextlib import ExitStack

import pytest

from pyrklog.base.client_places import ClientPlaces, NoPlaceError, client_of


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
    ],
)
def test_a_client_is_an_address_or_a_network_of_ipv6(address: str, client: str) -> None:
    assert client_of(address) == client


def test_a_client_has_a_quarter_of_the_places() -> None:
    places = ClientPlaces(8)
    with ExitStack() as held:
        for _ in range(2):
            held.enter_context(places.place("2001:db8::1"))
        with pytest.raises(NoPlaceError):
            held.enter_context(places.place("2001:db8::2"))
        for client in ("10.0.0.1", "10.0.0.2", "10.0.0.3"):
            for _ in range(2):
                held.enter_context(places.place(client))
        with pytest.raises(NoPlaceError):
            held.enter_context(places.place("10.0.0.4"))
        assert len(places) == 8
    assert len(places) == 0
    with places.place("2001:db8::1"):
        assert len(places) == 1
