"""Checkpoints as MirrorMaker 2 writes them (``Checkpoint`` of Kafka's connect-mirror-client)."""

from pyrklog.mirror.checkpoints import Checkpoint


def test_bytes() -> None:
    one = Checkpoint("billing", "east.orders", 3, 1000, 1234, "note")
    assert one.key() == b"\x00\x07billing" + b"\x00\x0beast.orders" + b"\x00\x00\x00\x03"
    assert one.value() == (
        b"\x00\x00" + (1000).to_bytes(8, "big") + (1234).to_bytes(8, "big") + b"\x00\x04note"
    )


def test_a_name_that_is_not_ascii() -> None:
    key = Checkpoint("b\u00fcro", "t", 0, 0, 0).key()
    assert key[:7] == b"\x00\x05b\xc3\xbcro"
