"""The checker gives up clients that do not return, not those that fail."""

import threading
from collections.abc import Callable
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, KafkaException

from tests.checker.clients import is_locked_up


class _Client:
    def __init__(self, answer: Callable[[], object]) -> None:
        self._answer = answer

    def list_topics(self, **_: Any) -> object:
        return self._answer()


def _client(answer: Callable[[], object]) -> Consumer:
    return cast(Consumer, _Client(answer))


def _fail() -> None:
    raise KafkaException(KafkaError(KafkaError._TRANSPORT))


def test_client_that_answers_or_fails_is_not_locked_up() -> None:
    assert not is_locked_up(_client(dict), 60)
    assert not is_locked_up(_client(_fail), 60)


def test_client_that_never_returns_is_locked_up() -> None:
    never = threading.Event()
    assert is_locked_up(_client(never.wait), 0.1)
    never.set()
