"""What a server has little of, shared out among its peers: bytes of memory, places, threads."""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, TypeVar

from fpdb.integrations.server.replies import ProblemError

Result = TypeVar("Result")


class Account:
    """An account of what is held, by whom, and what is free.

    Whoever asks may hold as much as is free for the others, and at most `largest`. So one alone
    gets half, the more there are the less each gets, and something is left for the next one.
    """

    def __init__(self, limit: int, lacking: str = "", largest: int | None = None) -> None:
        self.limit = self.free = limit
        self._lacking = lacking
        self._largest = limit if largest is None else largest
        self._held: dict[Hashable, int] = {}
        self._waiting: dict[Hashable, deque[tuple[int, asyncio.Future[None]]]] = {}

    def restrict(self, limit: int) -> None:
        """Lower the limit, unless it is lower already."""
        less = max(0, self.limit - limit)
        self.limit -= less
        self.free -= less

    def fits(self, who: Hashable, number: int = 1) -> bool:
        """Return whether somebody may hold as much more."""
        return self._held.get(who, 0) + number <= min(self.free - number, self._largest)

    def hold(self, who: Hashable, number: int = 1) -> None:
        """Count what somebody holds already."""
        self.free -= number
        self._held[who] = self._held.get(who, 0) + number

    def take(self, who: Hashable, number: int = 1) -> bool:
        """Let somebody hold more if it fits, and return whether it does."""
        if not self.fits(who, number):
            return False
        self.hold(who, number)
        return True

    async def wait(self, who: Hashable, number: int = 1) -> None:
        """Let somebody hold more once it fits; raise ProblemError if it never would."""
        if who not in self._waiting and self.take(who, number):
            return
        if number > min(self.limit // 2, self._largest):
            raise self.refusal()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = number, future
        self._waiting.setdefault(who, deque()).append(entry)
        try:
            await future
        except asyncio.CancelledError:
            if not future.cancelled():  # it was served meanwhile
                self.give(who, number)
            elif entry in (queue := self._waiting.get(who) or deque()):
                queue.remove(entry)
                if not queue:
                    del self._waiting[who]
            raise

    def give(self, who: Hashable, number: int = 1) -> None:
        """Count what somebody doesn't hold any more."""
        held = self._held.pop(who, 0)
        number = min(number, held)  # of a request that has ended, nothing is held
        self.free += number
        if number < held:
            self._held[who] = held - number
        if self._waiting:
            self._serve()

    def give_all(self, who: Hashable) -> None:
        """Count that somebody holds nothing any more."""
        self.give(who, self._held.get(who, 0))

    def refusal(self) -> ProblemError:
        """Return what is raised if there isn't enough."""
        return ProblemError(
            HTTPStatus.SERVICE_UNAVAILABLE,
            self._lacking,
            hint="send fewer at a time, or many documents in one request",
        )

    def _serve(self) -> None:
        """Let those who wait hold what fits now, by turns."""
        served = True
        while served:
            served = False
            for who, queue in list(self._waiting.items()):
                number, future = queue[0]
                if not future.cancelled():
                    if not self.take(who, number):
                        continue
                    future.set_result(None)
                served = True
                queue.popleft()
                del self._waiting[who]
                if queue:  # the next turn is that of others
                    self._waiting[who] = queue


class Crew:
    """Threads that peers share: one alone uses `threads`, all together less than twice as many."""

    def __init__(self, threads: int, name: str) -> None:
        self._places = Account(2 * threads)
        self._pool = ThreadPoolExecutor(2 * threads - 1, f"fpdb-{name}")

    async def run(self, peer: Hashable, function: Callable[[], Result]) -> Result:
        """Return what a function returns in one of the threads, once the peer has its turn."""
        await self._places.wait(peer)
        done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._pool.submit(self._work, peer, function, done)
        try:
            return await done
        finally:
            del done  # an error refers to this frame, and by it to all that it holds

    def _work(
        self, peer: Hashable, function: Callable[[], Result], done: "asyncio.Future[Result]"
    ) -> None:
        result: Result | None = None
        error: BaseException | None = None
        try:
            if not done.cancelled():
                result = function()
        except BaseException as raised:
            error = raised
        done.get_loop().call_soon_threadsafe(self._finish, peer, done, result, error)
        del error

    def _finish(
        self,
        peer: Hashable,
        done: "asyncio.Future[Result]",
        result: Any,
        error: BaseException | None,
    ) -> None:
        # Also of a request that is gone: until here it took the thread.
        self._places.give(peer)
        if not done.done():
            if error is None:
                done.set_result(result)
            else:
                done.set_exception(error)

    def close(self) -> None:
        """End the threads, once they have done what they do."""
        self._pool.shutdown(wait=False)
