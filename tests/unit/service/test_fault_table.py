"""`make test-alerts` has a fault for every alert."""

from collections import Counter

import pytest

from pyrklog.deploy.alert_table import ALERTS
from tests.service.fault_table import FAULTS
from tests.service.faults import Fault, alerts

NAMES = {one.name for one in ALERTS}


def test_every_alert_has_a_fault_that_raises_it() -> None:
    assert frozenset().union(*(one.fires for one in FAULTS)) == NAMES


def test_there_are_many_kinds_of_faults_each_once() -> None:
    for counted in (
        Counter(one.name for one in FAULTS),
        Counter(one.what for one in FAULTS),
        Counter(one.make for one in FAULTS),
    ):
        assert max(counted.values()) == 1
    assert len(FAULTS) >= 15


@pytest.mark.parametrize("fault", FAULTS, ids=[one.name for one in FAULTS])
def test_a_fault_names_alerts_that_there_are(fault: Fault) -> None:
    assert fault.fires
    assert fault.fires | fault.may <= NAMES
    assert not fault.fires & fault.may


def test_names_are_those_of_the_rules() -> None:
    assert alerts("BrokerDown") == {"PyrklogBrokerDown"}
