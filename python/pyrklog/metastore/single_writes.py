"""Writes of one node, and single transactions: what every session makes of ``multis``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from pyrklog.metastore.interface import (
    ANY_VERSION,
    Create,
    Delete,
    MetastoreError,
    Operation,
    OperationResult,
    Set,
    Stat,
)

Outcome = list[OperationResult] | MetastoreError
"""Of one of several transactions."""


class SingleWrites(ABC):
    """See ``interface.Metastore`` for what the methods promise."""

    @abstractmethod
    async def multis(self, transactions: Sequence[Sequence[Operation]]) -> list[Outcome]:
        """Several independent transactions."""

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """One transaction."""
        (outcome,) = await self.multis([operations])
        if isinstance(outcome, MetastoreError):
            raise outcome
        return outcome

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> str:
        """A transaction of one Create."""
        (result,) = await self.multi([Create(path, data, ephemeral, sequence)])
        assert isinstance(result, str)
        return result

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """A transaction of one Set."""
        (result,) = await self.multi([Set(path, data, version)])
        assert isinstance(result, Stat)
        return result

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """A transaction of one Delete."""
        await self.multi([Delete(path, version)])
