"""The rules of one transactional id, as tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pyrklog.errors import ErrorCode
from pyrklog.transactions.effects import Append, Effects, Notice, Reload, Reply, Retry, WriteMarkers
from pyrklog.transactions.machine import InvariantError, TransactionMachine
from pyrklog.transactions.messages import (
    EPOCH_GIVEN_MAX,
    EPOCH_MAX,
    AddRequest,
    EndRequest,
    InitRequest,
    ProducerEpoch,
    ProducerResult,
    TopicPartition,
)
from pyrklog.transactions.metadata import TransactionMetadata
from pyrklog.transactions.persistence import metadata_from, record
from pyrklog.transactions.states import TransactionState as State

NONE = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
INVALID = ErrorCode.INVALID_TXN_STATE
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
T0, T1 = ("t", 0), ("t", 1)
PID, OTHER, FRESH = 7, 8, 9
NOW = 1_000_000
TIMEOUT = 60_000
EXPIRATION = 7 * 24 * 3_600_000
TOKEN = 1


class Play:
    """A transactional id whose appends and markers succeed when told to."""

    def __init__(self, metadata: TransactionMetadata) -> None:
        self.machine = TransactionMachine("x", metadata, 3)
        self.now_ms = NOW
        self.log: list[TransactionMetadata | None] = []
        """Replicated records."""
        self.appending: TransactionMetadata | None = None
        self.is_appending = False
        self.markers: list[WriteMarkers] = []
        self.replies: dict[int, Any] = {}
        self.reloads = 0
        self.retries = 0
        self.notices: list[str] = []
        self._token = 0

    @property
    def state(self) -> State:
        return self.machine.metadata.state

    def take(self, effects: Effects) -> None:
        for effect in effects:
            match effect:
                case Reply(token, result):
                    assert token not in self.replies, "a request is answered once"
                    self.replies[token] = result
                case Append(metadata):
                    assert not self.is_appending, "one record at a time"
                    self.is_appending, self.appending = True, metadata
                case WriteMarkers():
                    assert self.log
                    assert self.log[-1] == self.machine.metadata, "decided before it is marked"
                    self.markers.append(effect)
                case Retry():
                    self.retries += 1
                case Reload():
                    self.reloads += 1
                case Notice(event, _, _):
                    self.notices.append(event)

    def appended(self, error: ErrorCode = NONE) -> None:
        assert self.is_appending
        self.is_appending = False
        if error is NONE:
            self.log.append(self.appending)
        self.take(self.machine.append_finished(error, self.now_ms))

    def marked(self) -> None:
        self.take(self.machine.markers_written(self.now_ms))

    def settle(self) -> None:
        """Everything succeeds until nothing is under way."""
        while self.is_appending or self.markers:
            if self.is_appending:
                self.appended()
            else:
                self.markers.clear()
                self.marked()

    def ask(self, event: Callable[[int], Effects]) -> int:
        self._token += 1
        self.take(event(self._token))
        return self._token

    def init(
        self,
        known: ProducerEpoch | None = None,
        fresh: int | None = None,
        timeout_ms: int = TIMEOUT,
    ) -> int:
        request = InitRequest("x", timeout_ms, known)
        return self.ask(lambda t: self.machine.init_producer_id(request, t, self.now_ms, fresh))

    def add(self, epoch: int, *partitions: TopicPartition, pid: int = PID, version: int = 0) -> int:
        request = AddRequest("x", ProducerEpoch(pid, epoch), frozenset(partitions), version)
        return self.ask(lambda t: self.machine.add_partitions(request, t, self.now_ms))

    def end(
        self,
        epoch: int,
        *,
        commit: bool = True,
        pid: int = PID,
        version: int = 0,
        fresh: int | None = None,
    ) -> int:
        request = EndRequest("x", ProducerEpoch(pid, epoch), commit, version)
        return self.ask(lambda t: self.machine.end(request, t, self.now_ms, fresh))

    def error(self, token: int) -> ErrorCode | None:
        """None: not answered yet."""
        result = self.replies.get(token)
        return result.error if isinstance(result, ProducerResult) else result

    def settled(self, token: int) -> Any:
        self.settle()
        return self.replies[token]


def new() -> Play:
    return Play(TransactionMetadata(PID, -1, TIMEOUT))


def at(state: State, epoch: int = 5, **more: Any) -> Play:
    """An id whose record has this state."""
    has_partitions = state in (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT)
    fields: dict[str, Any] = {
        "state": state,
        "partitions": frozenset({T0}) if has_partitions else frozenset(),
        "start_ms": NOW if has_partitions else -1,
        "updated_ms": NOW,
        **more,
    }
    play = Play(TransactionMetadata(PID, epoch, TIMEOUT, **fields))
    play.log.append(play.machine.metadata)
    return play


# --- a whole transaction -------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_of_the_first_protocol(commit: bool) -> None:
    play = new()
    assert play.settled(play.init()) == ProducerResult(NONE, PID, 0)
    assert play.settled(play.add(0, T0)) is NONE
    assert play.settled(play.add(0, T1, T0)) is NONE
    token = play.end(0, commit=commit)
    assert play.error(token) is None, "not before the decision is replicated"
    play.appended()
    assert play.replies[token] == ProducerResult(NONE, PID, 0)
    [markers] = play.markers
    assert markers == WriteMarkers(PID, 0, commit, 0, frozenset({T0, T1}))
    play.settle()
    assert play.state is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)
    assert play.machine.metadata.partitions == frozenset()
    states = [one.state for one in play.log if one is not None]
    prepared = State.PREPARE_COMMIT if commit else State.PREPARE_ABORT
    assert states == [State.EMPTY, State.ONGOING, State.ONGOING, prepared, play.state]
    assert play.settled(play.add(0, T0)) is NONE, "the next transaction"


def test_transactions_of_version_2_raise_the_epoch_with_each_end() -> None:
    play = new()
    play.settled(play.init())
    play.settled(play.add(0, T0, version=2))
    token = play.end(0, version=2)
    play.appended()
    assert play.replies[token] == ProducerResult(NONE, PID, 1)
    assert play.markers[0].epoch == 1, "above the records'"
    assert play.markers[0].client_version == 2
    play.settle()
    assert play.settled(play.add(0, T0, version=2)) is FENCED, "a late request of the first"
    assert play.settled(play.add(1, T0, version=2)) is NONE
    assert play.settled(play.end(1, commit=False, version=2)) == ProducerResult(NONE, PID, 2)


def test_a_partition_that_was_added_needs_no_record() -> None:
    play = at(State.ONGOING)
    assert play.error(play.add(5, T0)) is NONE
    assert not play.is_appending


# --- each request in each state ------------------------------------------------------------------

REST = [State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT]
PREPARED = [State.PREPARE_COMMIT, State.PREPARE_ABORT]


@pytest.mark.parametrize("state", REST)
def test_init_raises_the_epoch_of_an_id_at_rest(state: State) -> None:
    play = at(state)
    assert play.settled(play.init()) == ProducerResult(NONE, PID, 6)
    assert play.state is State.EMPTY


def test_init_aborts_an_open_transaction_and_fences_its_producer() -> None:
    play = at(State.ONGOING)
    token = play.init()
    play.appended()
    assert play.error(token) is CONCURRENT
    assert play.markers == [WriteMarkers(PID, 6, False, 0, frozenset({T0}))]
    assert play.error(play.init()) is CONCURRENT, "while it is being aborted"
    play.settle()
    assert play.state is State.COMPLETE_ABORT
    assert play.settled(play.end(5)).error is FENCED
    assert play.settled(play.init()) == ProducerResult(NONE, PID, 7)


@pytest.mark.parametrize("state", PREPARED)
def test_while_a_transaction_is_being_ended_clients_come_back(state: State) -> None:
    play = at(state)
    assert play.error(play.init()) is CONCURRENT
    assert play.error(play.add(5, T0)) is CONCURRENT
    assert play.error(play.end(5, commit=state is State.PREPARE_COMMIT)) is CONCURRENT
    assert play.error(play.end(4)) is FENCED
    assert play.error(play.add(4, T0)) is FENCED
    assert play.error(play.add(4, T0, pid=OTHER)) is CONCURRENT
    assert play.machine.verify(ProducerEpoch(PID, 5), [T0]) == {T0: CONCURRENT}
    assert play.machine.verify(ProducerEpoch(PID, 4), [T0]) == {T0: FENCED}
    play = at(state, client_version=2)
    assert play.error(play.add(4, T0)) is CONCURRENT, "its own end has raised the epoch"
    assert play.error(play.add(3, T0)) is FENCED


@pytest.mark.parametrize("state", [*REST, State.ONGOING])
def test_add_checks_the_producer(state: State) -> None:
    play = at(state)
    assert play.error(play.add(5, T1, pid=OTHER)) is MAPPING
    assert play.error(play.add(4, T1)) is FENCED
    assert play.error(play.add(6, T1)) is FENCED
    assert play.settled(play.add(5, T1)) is NONE
    assert play.state is State.ONGOING


@pytest.mark.parametrize(
    ("state", "commit", "error"),
    [
        (State.EMPTY, True, INVALID),
        (State.EMPTY, False, INVALID),
        (State.ONGOING, True, NONE),
        (State.ONGOING, False, NONE),
        (State.COMPLETE_COMMIT, True, NONE),
        (State.COMPLETE_COMMIT, False, INVALID),
        (State.COMPLETE_ABORT, True, INVALID),
        (State.COMPLETE_ABORT, False, NONE),
    ],
)
def test_end_of_the_first_protocol(state: State, commit: bool, error: ErrorCode) -> None:
    play = at(state)
    assert play.settled(play.end(5, commit=commit)).error is error
    assert play.error(play.end(5, commit=commit, pid=OTHER)) is MAPPING
    assert play.error(play.end(4, commit=commit)) is FENCED


@pytest.mark.parametrize(
    ("state", "epoch", "commit", "error"),
    [
        # The epoch of the id is 5: 4 is that of the ended transaction, a retry.
        (State.COMPLETE_COMMIT, 4, True, NONE),
        (State.COMPLETE_COMMIT, 4, False, INVALID),
        (State.COMPLETE_ABORT, 4, True, INVALID),
        (State.COMPLETE_ABORT, 4, False, NONE),
        (State.COMPLETE_COMMIT, 3, True, FENCED),
        (State.COMPLETE_COMMIT, 6, True, FENCED),
        # 5 is that of the next one, which has nothing: it may be aborted.
        (State.COMPLETE_COMMIT, 5, True, INVALID),
        (State.COMPLETE_COMMIT, 5, False, NONE),
        (State.COMPLETE_ABORT, 5, True, INVALID),
        (State.COMPLETE_ABORT, 5, False, NONE),
        (State.EMPTY, 5, False, NONE),
        (State.EMPTY, 5, True, INVALID),
        (State.EMPTY, 4, False, FENCED),
    ],
)
def test_end_of_version_2(state: State, epoch: int, commit: bool, error: ErrorCode) -> None:
    play = at(state, client_version=2)
    result = play.settled(play.end(epoch, commit=commit, version=2))
    assert result.error is error
    if error is NONE:
        assert (result.producer_id, result.epoch) == (PID, 5 if epoch == 4 else 6)


def test_an_empty_abort_of_version_2_writes_no_markers() -> None:
    play = at(State.EMPTY, client_version=2)
    token = play.end(5, commit=False, version=2)
    play.appended()
    assert play.markers == []
    assert play.replies[token].epoch == 6
    play.appended()
    assert play.state is State.COMPLETE_ABORT


def test_verification_tells_what_was_added() -> None:
    play = at(State.ONGOING)
    missing = ErrorCode.TRANSACTION_ABORTABLE
    verify = play.machine.verify
    assert verify(ProducerEpoch(PID, 5), [T0, T1]) == {T0: NONE, T1: missing}
    assert verify(ProducerEpoch(PID, 4), [T0]) == {T0: FENCED}
    assert verify(ProducerEpoch(OTHER, 5), [T0]) == {T0: MAPPING}
    for state in REST:
        assert at(state).machine.verify(ProducerEpoch(PID, 5), [T0]) == {T0: missing}


# --- epochs --------------------------------------------------------------------------------------


def test_a_producer_that_names_its_epoch_goes_on_with_the_next_one() -> None:
    play = at(State.COMPLETE_ABORT)
    assert play.settled(play.init(ProducerEpoch(PID, 5))) == ProducerResult(NONE, PID, 6)
    again = play.settled(play.init(ProducerEpoch(PID, 5)))
    assert again == ProducerResult(NONE, PID, 6), "a retry raises nothing"
    assert len(play.log) == 2
    assert play.settled(play.init(ProducerEpoch(PID, 4))).error is FENCED
    assert play.settled(play.init(ProducerEpoch(OTHER, 6))).error is FENCED
    play.settled(play.init())
    assert play.settled(play.init(ProducerEpoch(PID, 6))).error is FENCED, "another one began"


def test_a_retry_may_bring_another_time_out() -> None:
    play = at(State.COMPLETE_ABORT)
    play.settled(play.init(ProducerEpoch(PID, 5)))
    for _ in range(2):
        again = play.settled(play.init(ProducerEpoch(PID, 5), timeout_ms=TIMEOUT + 1))
        assert again == ProducerResult(NONE, PID, 6)
        assert play.machine.metadata.timeout_ms == TIMEOUT + 1
    assert len(play.log) == 3, "written once"
    assert play.settled(play.init(ProducerEpoch(PID, 6))).epoch == 7


@pytest.mark.parametrize("state", [State.COMPLETE_ABORT, State.COMPLETE_COMMIT])
def test_a_retry_after_a_whole_transaction_begins_anew(state: State) -> None:
    play = at(State.COMPLETE_ABORT)
    play.settled(play.init(ProducerEpoch(PID, 5)))
    whole = play.machine.metadata._replace(state=state)
    play.machine.metadata = whole
    assert play.settled(play.init(ProducerEpoch(PID, 5))) == ProducerResult(NONE, PID, 6)
    assert play.state is State.EMPTY


def test_a_zombie_aborts_nothing() -> None:
    play = at(State.ONGOING)
    assert play.error(play.init(ProducerEpoch(PID, 4))) is FENCED
    assert play.state is State.ONGOING


@pytest.mark.parametrize("known", [None, ProducerEpoch(PID, EPOCH_GIVEN_MAX)])
def test_used_up_epochs_bring_a_new_producer_id(known: ProducerEpoch | None) -> None:
    play = at(State.COMPLETE_COMMIT, EPOCH_GIVEN_MAX)
    assert play.machine.needs_producer_id(InitRequest("x", TIMEOUT, known))
    assert play.settled(play.init(known, FRESH)) == ProducerResult(NONE, FRESH, 0)
    assert play.machine.metadata.previous_producer_id == PID
    if known is not None:
        again = play.settled(play.init(known))
        assert again == ProducerResult(NONE, FRESH, 0), "a retry"


def test_without_a_fresh_id_the_client_comes_back() -> None:
    play = at(State.COMPLETE_COMMIT, EPOCH_GIVEN_MAX)
    assert play.error(play.init()) is CONCURRENT


@pytest.mark.parametrize("version", [0, 2])
def test_the_last_epoch_can_still_be_fenced(version: int) -> None:
    play = at(State.ONGOING, EPOCH_GIVEN_MAX, client_version=version)
    play.init()
    play.settle()
    assert play.machine.metadata.epoch == EPOCH_MAX
    for commit in (True, False):
        ended = play.settled(play.end(EPOCH_GIVEN_MAX, commit=commit, version=version))
        assert ended.error is FENCED
    assert play.error(play.init(ProducerEpoch(PID, EPOCH_GIVEN_MAX))) is FENCED
    assert play.error(play.add(EPOCH_MAX, T0, version=version)) is FENCED, "nobody was given it"
    assert play.error(play.end(EPOCH_MAX, commit=False, version=version)) is FENCED
    assert play.settled(play.init(None, FRESH)) == ProducerResult(NONE, FRESH, 0)


def test_an_end_of_version_2_with_used_up_epochs_goes_on_with_a_new_id() -> None:
    play = at(State.ONGOING, EPOCH_GIVEN_MAX, client_version=2)
    producer = ProducerEpoch(PID, EPOCH_GIVEN_MAX)
    assert play.machine.needs_producer_id(EndRequest("x", producer, True, 2))
    token = play.end(EPOCH_GIVEN_MAX, version=2, fresh=FRESH)
    play.appended()
    assert play.replies[token] == ProducerResult(NONE, FRESH, 0)
    assert (play.markers[0].producer_id, play.markers[0].epoch) == (PID, EPOCH_MAX)
    play.settle()
    retried = play.settled(play.end(EPOCH_GIVEN_MAX, version=2))
    assert retried == ProducerResult(NONE, FRESH, 0)
    assert play.settled(play.add(0, T0, pid=FRESH, version=2)) is NONE


# --- time ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 2])
def test_a_timed_out_transaction_is_aborted_and_its_producer_fenced(version: int) -> None:
    play = at(State.ONGOING, client_version=version)
    play.now_ms += TIMEOUT
    play.take(play.machine.time_out(play.now_ms))
    assert not play.is_appending, "not yet"
    play.now_ms += 1
    play.take(play.machine.time_out(play.now_ms))
    assert play.notices == ["transaction_timed_out"]
    play.take(play.machine.time_out(play.now_ms))
    play.appended()
    epoch = 7 if version == 2 else 6
    assert play.markers == [WriteMarkers(PID, epoch, False, version, frozenset({T0}))]
    play.settle()
    for commit in (True, False):
        assert play.settled(play.end(5, commit=commit, version=version)).error is FENCED
    assert play.settled(play.add(5, T0)) is FENCED


@pytest.mark.parametrize("state", REST)
def test_an_idle_id_expires(state: State) -> None:
    play = at(state)
    play.take(play.machine.expire(NOW + EXPIRATION - 1, EXPIRATION))
    assert not play.is_appending
    play.take(play.machine.expire(NOW + EXPIRATION, EXPIRATION))
    assert play.error(play.init()) is CONCURRENT
    play.appended()
    assert play.log[-1] is None
    assert play.machine.is_dead


@pytest.mark.parametrize("state", [State.ONGOING, *PREPARED])
def test_an_open_transaction_never_expires(state: State) -> None:
    play = at(state)
    play.take(play.machine.expire(NOW + 2 * EXPIRATION, EXPIRATION))
    assert not play.is_appending


# --- failures ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failure", "answer"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_a_record_that_is_in_no_log_changes_nothing(failure: ErrorCode, answer: ErrorCode) -> None:
    play = at(State.ONGOING)
    token = play.end(5)
    play.appended(failure)
    assert play.error(token) is answer
    assert play.state is State.ONGOING
    assert play.settled(play.end(5)).error is NONE


def test_a_new_id_whose_record_fails_is_forgotten() -> None:
    play = new()
    token = play.init()
    play.appended(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert play.error(token) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert play.machine.is_dead


@pytest.mark.parametrize("error", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_after_an_unknown_end_of_an_append_the_log_is_read_again(error: ErrorCode) -> None:
    """A replica may have the record: nothing may be decided otherwise meanwhile."""
    play = at(State.ONGOING)
    token = play.end(5)
    play.appended(error)
    assert play.error(token) in (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
    assert play.reloads == 1
    assert play.error(play.end(5, commit=False)) is ErrorCode.NOT_COORDINATOR
    assert play.error(play.add(5, T0)) is ErrorCode.NOT_COORDINATOR
    assert play.error(play.init()) is ErrorCode.NOT_COORDINATOR
    assert not play.is_appending


def test_the_last_record_is_tried_until_it_is_replicated() -> None:
    play = at(State.ONGOING)
    play.end(5)
    play.appended()
    play.markers.clear()
    play.marked()
    play.appended(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert play.retries == 1
    assert play.error(play.add(5, T0)) is CONCURRENT
    play.take(play.machine.retry(play.now_ms))
    play.appended()
    assert play.state is State.COMPLETE_COMMIT


def test_an_unloaded_id_answers_its_request_and_does_nothing_more() -> None:
    play = at(State.ONGOING)
    token = play.end(5)
    play.take(play.machine.unload())
    assert play.error(token) is ErrorCode.NOT_COORDINATOR
    play.take(play.machine.append_finished(NONE, NOW))
    play.marked()
    assert play.markers == []
    assert play.state is State.ONGOING


def test_two_changes_at_once_are_a_bug() -> None:
    play = at(State.ONGOING)
    play.end(5)
    with pytest.raises(InvariantError):
        play.machine._append(play.machine.metadata, None, lambda error: error)


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("steps", range(4))
def test_a_coordinator_that_moves_between_any_two_steps(
    steps: int, commit: bool, version: int
) -> None:
    """The next one finds in the log what was replicated, and carries out what was decided."""
    play = at(State.ONGOING, client_version=version)
    play.end(5, commit=commit, version=version)
    is_decided = steps >= 1
    for step in range(steps):
        if step == 1:
            play.markers.clear()
            play.marked()
        elif play.is_appending:
            play.appended()
    play.take(play.machine.unload())
    last = play.log[-1]
    assert last is not None
    value = record("x", last).value
    assert value is not None
    then = Play(metadata_from(value))
    then.log.append(then.machine.metadata)
    then.take(then.machine.loaded(NOW))
    assert bool(then.markers) is (1 <= steps <= 2), "again, if nobody knows that they are written"
    if not is_decided:
        assert then.state is State.ONGOING
        assert then.settled(then.end(5, commit=commit, version=version)).error is NONE
    then.settle()
    assert then.state is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)
    retried = then.settled(then.end(5, commit=commit, version=version))
    assert retried == ProducerResult(NONE, PID, 6 if version == 2 else 5)
