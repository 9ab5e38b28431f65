"""Exceptions of a scan, as tracebacks and other processes see them."""

import pickle

import pytest

from pyrklog import scanning

KINDS = sorted(
    name
    for name in scanning.__all__
    if isinstance(getattr(scanning, name), type) and issubclass(getattr(scanning, name), Exception)
)


@pytest.mark.parametrize("name", KINDS)
def test_an_exception_has_the_module_that_it_is_imported_from(name: str) -> None:
    kind = getattr(scanning, name)
    assert f"{kind.__module__}.{kind.__qualname__}" == f"pyrklog.scanning.{name}"
    sent = pickle.loads(pickle.dumps(kind("why")))
    assert type(sent) is kind
    assert sent.args == ("why",)


def test_there_are_such_exceptions() -> None:
    assert "UnknownTopicError" in KINDS
    assert len(KINDS) >= 14
