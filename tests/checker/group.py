"""The consumer group of a round: members in their own processes that come and go."""

from __future__ import annotations

import random
import sys

from tests.checker.clients import Client
from tests.checker.history import History
from tests.checker.reporting import ReportingProcess

_MEMBERS_MIN = 2


class MemberProcess(ReportingProcess):
    """Runs ``tests.checker.member``."""

    def __init__(self, bootstrap: str, topic: str, group: str, name: str, history: History) -> None:
        command = [sys.executable, "-m", "tests.checker.member", bootstrap, topic, group, name]
        super().__init__(command, name, history)


class Group(Client):
    """Members that come and go; at least two, except while one is replaced."""

    def __init__(self, bootstrap: str, topic: str, group: str, history: History) -> None:
        super().__init__("group", history)
        self.members: list[MemberProcess] = []
        self._terms = (bootstrap, topic, group)
        self._left: list[MemberProcess] = []

    def step(self) -> None:
        while len(self.members) < _MEMBERS_MIN:
            self._join()
        if self._end.wait(random.uniform(0.4, 1.5)):
            return
        if random.random() < 0.5:
            self._join()
        else:
            leaving = self.members.pop(0)
            leaving.end()
            self._left.append(leaving)

    def _join(self) -> None:
        name = f"member-{len(self.members) + len(self._left) + 1}"
        self.members.append(MemberProcess(*self._terms, name, self.history))

    def finish(self) -> None:
        """The present members stay."""

    def everybody(self) -> list[MemberProcess]:
        return [*self._left, *self.members]
