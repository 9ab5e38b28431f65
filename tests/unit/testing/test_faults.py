from pyrklog.testing.faults import TOOLS_CLIENT_ID, Fault, Faults, Verdict

PRODUCE, FETCH = 0, 1


def faults() -> tuple[Faults, list[tuple[str, int, str]]]:
    """Faults, and what they tell."""
    told: list[tuple[str, int, str]] = []
    return Faults(lambda fault, key, client: told.append((fault.kind, key, client))), told


def test_a_fault_meets_so_many_requests_of_its_api_and_client() -> None:
    some, told = faults()
    fault = Fault("fail", PRODUCE, times_left=2, client_id="app", error_code=6)
    some.add(7, fault)
    assert some.take(FETCH, "app") is None
    assert some.take(PRODUCE, "other") is None
    assert some.take(PRODUCE, "app") == Verdict(0, fault)
    assert some.take(PRODUCE, "app") == Verdict(0, fault)
    assert some.take(PRODUCE, "app") is None
    assert some.fired(7) == 2
    assert told == [("fail", PRODUCE, "app")] * 2


def test_all_delays_add_up_before_the_first_fault_that_ends_a_request() -> None:
    some, _ = faults()
    some.add(11, Fault("delay", None, times_left=None, delay_ms=20))
    some.add(12, Fault("delay", PRODUCE, times_left=1, delay_ms=3))
    first = Fault("disconnect", PRODUCE, times_left=1, after=True)
    second = Fault("fail", PRODUCE, times_left=1, error_code=7)
    some.add(13, first)
    some.add(14, second)
    assert some.take(PRODUCE, "app") == Verdict(23, first)
    assert some.take(PRODUCE, "app") == Verdict(20, second)
    assert some.take(PRODUCE, "app") == Verdict(20, None)


def test_no_fault_meets_the_tools_of_the_test_itself() -> None:
    some, told = faults()
    some.add(15, Fault("delay", None, times_left=None, delay_ms=20))
    assert some.take(FETCH, TOOLS_CLIENT_ID) is None
    assert told == []


def test_what_is_taken_back_meets_nothing_and_tells_how_often_it_did() -> None:
    some, _ = faults()
    some.add(7, Fault("delay", FETCH, times_left=None, delay_ms=20))
    some.add(16, Fault("fail", FETCH, times_left=1, error_code=6))
    some.take(FETCH, "app")
    assert some.remove(7) == 1
    assert some.remove(7) == 0
    some.clear()
    assert some.take(FETCH, "app") is None


def test_a_fault_that_is_given_back_meets_another_request() -> None:
    some, _ = faults()
    fault = Fault("fail", FETCH, times_left=1, error_code=6)
    some.add(7, fault)
    assert some.take(FETCH, "app") is not None
    some.give_back(fault)
    assert some.fired(7) == 0
    assert some.take(FETCH, "app") == Verdict(0, fault)
