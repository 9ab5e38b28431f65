"""Both planes answer commits, with the same errors."""

from pyrklog import _core
from pyrklog.errors import ErrorCode
from pyrklog.groups.persistence import commit_error


def test_both_halves_answer_failed_commits_alike() -> None:
    told = {code: _core.commit_error(code) for code in ErrorCode}
    assert told == {code: int(commit_error(code)) for code in ErrorCode}
    assert len(set(told.items()) - {(code, int(code)) for code in ErrorCode}) >= 10
