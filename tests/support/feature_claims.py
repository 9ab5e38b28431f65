"""What the tests of the feature table try others with, and how they claim what they saw."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping

from tests.support.feature_table import BY_SLUG
from tests.support.kafka_tools import CLASSES, KafkaTools

Claim = Callable[..., None]
_KCAT_S = 60
_UNASKED = ("transactions", "verifiable-consumer", "verifiable-producer")
"""They would end the virtual machine; the last two are for Kafka's own tests."""


class Claims:
    """Of one row: what its test found must be what the page says."""

    def __init__(self, slug: str) -> None:
        self._row = BY_SLUG[slug]
        self.is_made = False

    def __call__(self, *, pyrklog: str, kafka: str, kcat: str) -> None:
        told = (self._row.pyrklog, self._row.kafka, self._row.kcat)
        assert (pyrklog, kafka, kcat) == told, f"the page says otherwise of {self._row.name}"
        self.is_made = True


def kcat(*arguments: str, stdin: str | bytes = b"", code: int = 0) -> bytes:
    """Standard output; with another ``code`` standard error."""
    given = stdin.encode() if isinstance(stdin, str) else stdin
    done = subprocess.run(
        ["kcat", *arguments], input=given, capture_output=True, timeout=_KCAT_S, check=False
    )
    assert done.returncode == code, (arguments, done.stdout, done.stderr)
    return done.stdout if code == 0 else done.stderr


class OtherTools:
    """What the others say of themselves."""

    def __init__(self, tools: KafkaTools) -> None:
        self.kafka: Mapping[str, str] = {
            name: tools.help(name) for name in CLASSES if name not in _UNASKED
        }
        self.kcat = kcat("-h").decode()

    def lack(self, *words: str) -> None:
        """None of Apache's tools, and not kcat, has an option or a sentence about it."""
        self.kafka_lacks(*words)
        self.kcat_lacks(*words)

    def kafka_lacks(self, *words: str) -> None:
        for name, text in self.kafka.items():
            found = [word for word in words if word in text.lower()]
            assert not found, f"kafka-{name} says {found}"

    def kcat_lacks(self, *words: str) -> None:
        found = [word for word in words if word in self.kcat.lower()]
        assert not found, f"kcat says {found}"

    def kcat_has_only_its_modes(self) -> None:
        """It consumes, produces, lists and queries, and changes no cluster."""
        assert "-C | -P | -L | -Q  Mode: Consume, Produce, Metadata List, Query mode" in self.kcat
        self.kcat_lacks("alter", "delete", "reassign")
