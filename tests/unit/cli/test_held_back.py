from pyrklog.cli.held_back import HeldBack, sentence, where_seen


def test_a_few_partitions_are_named() -> None:
    held = {("t", number): HeldBack(number, 9) for number in range(5)}
    assert sentence(held) == (
        "t [0] stopped at 0 of 9, t [1] stopped at 1 of 9, t [2] stopped at 2 of 9, 2 more: "
        "open transactions begin there"
    )
    one = {("t", 0): HeldBack(4, 9)}
    assert sentence(one, "would stop") == (
        "t [0] would stop at 4 of 9: an open transaction begins there"
    )
    assert where_seen([("b", 0), ("a", 1), ("b", 1)]) == "see `pyrklog cluster txns producers a b`"
