"""Single writes and transactions over ``multis``, for every session."""

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
    """See ``interface.Metastore``."""

    @abstractmethod
    async def multis(self, transactions: Sequence[Sequence[Operation]]) -> list[Outcome]:
        """Several independent transactions."""

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        (outcome,) = await self.multis([operations])
        if isinstance(outcome, MetastoreError):
            raise outcome
        return outcome

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> str:
        (result,) = await self.multi([Create(path, data, ephemeral, sequence)])
        assert isinstance(result, str)
        return result

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        (result,) = await self.multi([Set(path, data, version)])
        assert isinstance(result, Stat)
        return result

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path, version)])
