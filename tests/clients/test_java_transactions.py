"""Transactions of the Java clients: 3.9 has version 1, 4.0 version 2."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyrklog.testing import TestBroker
from tests.support import jvm

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(180)]

TRANSACTIONS = 11


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    """One that looks at time-outs more often."""
    option = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    with TestBroker(tmp_path_factory.mktemp("java") / "data", options={option: 200}) as running:
        yield running


@pytest.mark.parametrize(
    ("jars", "epochs"),
    [(jvm.KAFKA_JARS, 0), (jvm.KAFKA4_JARS, TRANSACTIONS)],
    ids=["java-3.9", "java-4.0"],
)
def test_transactions_of_java(broker: TestBroker, topic: str, jars: Path, epochs: int) -> None:
    """Transactions.java makes its own checks. Version 2 has an epoch for each transaction."""
    program = Path(__file__).with_name("Transactions.java")
    output = jvm.run(str(program), broker.bootstrap, f"{topic}-", timeout_s=120, jars=jars)
    checks = re.findall(r"^    static void (\w+)\(\) ", program.read_text(), re.MULTILINE)
    expected = [f"epochs {epochs}", *(f"ok {name}" for name in checks)]
    assert output.split("\n")[:-1] == expected
