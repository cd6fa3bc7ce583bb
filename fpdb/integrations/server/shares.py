"""What a server has little of, shared out among its peers: bytes of memory, places, threads."""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Hashable
from http import HTTPStatus
from queue import SimpleQueue
from typing import Any, TypeVar

from fpdb.integrations.server.messages import ProblemError

Result = TypeVar("Result")
# Who holds no more may use the reserve of an account.
_SMALL = 24 << 10
_PAUSE = 0.005
_GO, _END = True, False
_Job = tuple[Callable[[], Any], "asyncio.Future[Any]"]


class Account:
    """An account of what is held, by whom, and what is free.

    Whoever asks may hold as much as is free for the others, and at most `largest`. So one alone
    gets half, the more there are the less each gets, and something is left for the next one. The
    `reserve` is for those who hold little.
    """

    def __init__(
        self, limit: int, lacking: str = "", largest: int | None = None, reserve: int = 0
    ) -> None:
        self.limit = self.free = limit
        self._lacking, self._reserve = lacking, reserve
        self._largest = limit if largest is None else largest
        self._held: dict[Hashable, int] = {}
        self._serving: asyncio.TimerHandle | None = None
        self._waiting: dict[Hashable, deque[tuple[int, asyncio.Future[None]]]] = {}

    def restrict(self, limit: int) -> None:
        """Lower the limit, unless it is lower already."""
        less = max(0, self.limit - limit)
        self.limit -= less
        self.free -= less

    def fits(self, who: Hashable, number: int = 1) -> bool:
        """Return whether somebody may hold as much more."""
        held = self._held.get(who, 0) + number
        free = self.free - number - (self._reserve if held > _SMALL else 0)
        return held <= free and held <= self._largest

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
        reserve = self._reserve if number > _SMALL else 0
        if number > min((self.limit - reserve) // 2, self._largest):
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
        if self._waiting and self._serving is None:
            # Of hundreds of gives a millisecond, not each looks for who may hold more.
            self._serving = asyncio.get_running_loop().call_later(_PAUSE, self._serve)

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
        self._serving = None
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
    """Threads that peers share: one alone uses `threads`, all together less than twice as many.

    A thread does one job after the other: with a pool of the standard library, to which each job
    is handed by itself, a query takes twice the processor's time.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._places = Account(2 * threads)
        self._jobs: dict[Hashable, deque[_Job]] = {}
        # A thread takes one, and then does jobs until none of them may have a thread.
        self._signs: SimpleQueue[bool] = SimpleQueue()
        self._lock = threading.Lock()
        for _ in range(2 * threads - 1):
            threading.Thread(target=self._work, name=f"fpdb-{name}", daemon=True).start()

    def run(self, peer: Hashable, function: Callable[[], Result]) -> "asyncio.Future[Result]":
        """Let one of the threads call a function, once the peer has its turn."""
        done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        with self._lock:
            self._jobs.setdefault(peer, deque()).append((function, done))
        self._signs.put(_GO)
        return done

    def close(self) -> None:
        """End the threads, once they have done what they do."""
        self._signs.put(_END)

    def _work(self) -> None:
        while self._signs.get():
            while found := self._next():
                peer, (function, done) = found
                _do(function, done)
                del found, function, done  # which may hold much
                with self._lock:
                    self._places.give(peer)
        self._signs.put(_END)  # for the next thread

    def _next(self) -> "tuple[Hashable, _Job] | None":
        """Return a job whose peer has a turn, if there is one."""
        with self._lock:
            for peer, jobs in self._jobs.items():
                if self._places.take(peer):
                    job = jobs.popleft()
                    del self._jobs[peer]
                    if jobs:  # the next turn is that of others
                        self._jobs[peer] = jobs
                    return peer, job
        return None


def _do(function: Callable[[], Any], done: "asyncio.Future[Any]") -> None:
    """Set what a function returns, unless the request is gone."""
    result = error = None
    try:
        if not done.cancelled():
            result = function()
    except BaseException as raised:
        error = raised
    with contextlib.suppress(RuntimeError):  # the loop has ended, and so has who waited
        done.get_loop().call_soon_threadsafe(_deliver, done, result, error)
    del error


def _deliver(done: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if not done.done():
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)
