"""A connection of a client, passed on to the data plane frame by frame, where faults meet it.

Answers keep the order of their requests, those that are made here too. Nothing is decoded unless a
fault meets it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import trio

from pyrklog.base.logs import get_logger
from pyrklog.errors import ErrorCode
from pyrklog.protocol.primitives import DecodeError, EncodeError
from pyrklog.testing import frames
from pyrklog.testing.faults import Fault, Faults
from pyrklog.testing.frames import RequestHead

CHUNK_BYTES = 256 << 10
_EVERYTHING = 1 << 62

log = get_logger("testing")


@dataclass
class _Expected:
    """An answer that the client waits for."""

    correlation_id: int
    delay_ms: int = 0
    made: bytes | None = None
    """The answer's frame, where it is made here."""
    change: Callable[[bytes], bytes] | None = None
    """Makes the frame to send of the broker's."""
    is_cut: bool = False
    """The connection ends instead."""

    @property
    def is_plain(self) -> bool:
        return not (self.delay_ms or self.change or self.is_cut)


class Relay:
    def __init__(
        self, client: trio.SocketStream, broker: trio.SocketStream, faults: Faults
    ) -> None:
        self._client = client
        self._broker = broker
        self._faults = faults
        self._expected: deque[_Expected] = deque()
        self._sending = trio.Lock()
        self._scope = trio.CancelScope()

    def cut(self) -> None:
        """Closes the connection soon."""
        self._scope.cancel()

    async def run(self) -> None:
        """Returns when either side has closed."""
        async with self._client, self._broker:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._until_closed, self._pass_requests)
                    await self._until_closed(self._pass_answers)

    async def _until_closed(self, pass_on: Callable[[], Awaitable[None]]) -> None:
        try:
            await pass_on()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # one side has gone; the other is closed with it
        self.cut()

    # --- requests --------------------------------------------------------------------------------

    async def _pass_requests(self) -> None:
        waiting = bytearray()
        left = 0  # of a frame that passes
        while data := await self._client.receive_some(CHUNK_BYTES):
            waiting += data
            done = 0
            while done < len(waiting):
                if left:
                    step = min(left, len(waiting) - done)
                    left -= step
                    done += step
                    continue
                try:
                    head = frames.read_head(waiting, done)
                except frames.UnreadableError:
                    left = _EVERYTHING  # the broker refuses it, and closes the connection
                    continue
                if head is None:
                    break
                verdict = self._faults.take(head.api_key, head.client_id)
                if verdict is None:
                    self._expect(head, 0)
                    left = head.frame_bytes
                    continue
                await self._send_to_broker(waiting, done)
                done = 0
                if verdict.end is None:
                    self._expect(head, verdict.delay_ms)
                    left = head.frame_bytes
                    continue
                if not await self._fill(waiting, head.frame_bytes):
                    return
                frame = bytes(waiting[: head.frame_bytes])
                del waiting[: head.frame_bytes]
                await self._end(head, frame, verdict.end, verdict.delay_ms)
            await self._send_to_broker(waiting, done)

    async def _send_to_broker(self, waiting: bytearray, count: int) -> None:
        """Sends and removes the first ``count`` bytes."""
        if count:
            await self._broker.send_all(bytes(waiting[:count]))
            del waiting[:count]

    async def _fill(self, waiting: bytearray, count: int) -> bool:
        """Receives until there are so many bytes; False if the client closes before."""
        while len(waiting) < count:
            data = await self._client.receive_some(CHUNK_BYTES)
            if not data:
                return False
            waiting += data
        return True

    def _expect(self, head: RequestHead, delay_ms: int) -> None:
        if head.is_answered:
            self._expected.append(_Expected(head.correlation_id, delay_ms))

    async def _end(self, head: RequestHead, frame: bytes, fault: Fault, delay_ms: int) -> None:
        if fault.kind == "fail":
            await self._fail(head, frame, fault, delay_ms)
            return
        if fault.after:
            if head.is_answered:
                self._expected.append(_Expected(head.correlation_id, delay_ms, is_cut=True))
                await self._broker.send_all(frame)
                return
            await self._broker.send_all(frame)
        self.cut()
        await trio.lowlevel.checkpoint()

    async def _fail(self, head: RequestHead, frame: bytes, fault: Fault, delay_ms: int) -> None:
        from pyrklog.testing.error_answers import error_answer

        expected = _Expected(head.correlation_id, delay_ms)
        code = ErrorCode(fault.error_code)
        try:
            answer = error_answer(head.api_key, head.api_version, frame[head.body_start :], code)
        except (DecodeError, EncodeError) as error:
            log.warning("fault_not_possible", api=frames.api_name(head.api_key), reason=str(error))
            self._faults.give_back(fault)
            self._expect(head, delay_ms)
            await self._broker.send_all(frame)
            return
        if not head.is_answered:
            self.cut()  # as by Kafka, whose client cannot know otherwise
            await trio.lowlevel.checkpoint()
            return
        self._expected.append(expected)
        if answer is None:
            expected.change = _change(head, code)
            await self._broker.send_all(frame)
            return
        if answer.is_put_off:
            self._faults.give_back(fault)
        expected.made = frames.answer_frame(head, answer.body)
        await self._send_made()

    # --- answers ---------------------------------------------------------------------------------

    async def _pass_answers(self) -> None:
        waiting = bytearray()
        left = 0
        while data := await self._broker.receive_some(CHUNK_BYTES):
            waiting += data
            done = 0
            while done < len(waiting):
                if left:
                    step = min(left, len(waiting) - done)
                    left -= step
                    done += step
                    if not left:
                        await self._finish_answer(waiting, done)
                        done = 0
                    continue
                head = frames.read_answer_head(waiting, done)
                if head is None:
                    break
                frame_bytes, correlation_id = head
                await self._send_made()
                expected = self._next_expected(correlation_id)
                if expected is None or expected.is_plain:
                    left = frame_bytes
                    continue
                if expected.is_cut:
                    return
                await trio.sleep(expected.delay_ms / 1000)
                if expected.change is None:
                    left = frame_bytes
                    continue
                if not await self._fill_answer(waiting, frame_bytes):
                    return
                waiting[:frame_bytes] = frame = expected.change(bytes(waiting[:frame_bytes]))
                left = len(frame)
            await self._send_to_client(waiting, done)

    def _next_expected(self, correlation_id: int) -> _Expected | None:
        """The broker answers in order."""
        first = self._expected[0] if self._expected else None
        return first if first is not None and first.correlation_id == correlation_id else None

    async def _fill_answer(self, waiting: bytearray, count: int) -> bool:
        while len(waiting) < count:
            data = await self._broker.receive_some(CHUNK_BYTES)
            if not data:
                return False
            waiting += data
        return True

    async def _finish_answer(self, waiting: bytearray, count: int) -> None:
        """Sends the end of an answer, and made ones that are due after it."""
        await self._send_to_client(waiting, count)
        if self._expected:
            self._expected.popleft()
        await self._send_made()

    async def _send_to_client(self, waiting: bytearray, count: int) -> None:
        if count:
            async with self._sending:
                await self._client.send_all(bytes(waiting[:count]))
            del waiting[:count]

    async def _send_made(self) -> None:
        """Sends the made answers at the head of the queue."""
        async with self._sending:
            while self._expected and (frame := self._expected[0].made) is not None:
                await trio.sleep(self._expected[0].delay_ms / 1000)
                await self._client.send_all(frame)
                self._expected.popleft()


def _change(head: RequestHead, code: ErrorCode) -> Callable[[bytes], bytes]:
    from pyrklog.testing.error_answers import with_error

    def change(frame: bytes) -> bytes:
        try:
            body = frames.answer_body(head, frame)
            changed = with_error(head.api_key, head.api_version, body, code)
        except (DecodeError, EncodeError, IndexError) as error:
            log.warning("fault_not_possible", api=frames.api_name(head.api_key), reason=str(error))
            return frame
        return frames.answer_frame(head, changed)

    return change
