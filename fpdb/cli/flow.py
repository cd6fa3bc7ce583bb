"""Parts of the input: read, worked on by as many processes as wished, and used in their order."""

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from fpdb.io import Part
from fpdb.processes import Workers

Result = TypeVar("Result")

_LOOK_SECONDS = 0.02


class Flow(Generic[Result]):
    """Brings each part to the workers, and what they make of it to its use, in order."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._workers: Workers[Part, Result] | None = None
        self._use: Callable[[Result], None] = lambda _: None
        self._using = False

    def run(
        self,
        parts: Iterable[Part],
        work: Callable[[Part], Result],
        use: Callable[[Result], None],
    ) -> None:
        """Work through all parts; what was read before an error is used before it is raised."""
        self._use = use
        with Workers(work, self._jobs) as self._workers:
            try:
                for part in parts:
                    self._workers.put(part)
                    self._settle(self._workers.ready())
            except Exception:
                if not self._using:
                    self._settle(self._workers.rest())
                raise
            self._settle(self._workers.rest())

    def idle(self, number: int) -> None:
        """Use what the workers have done, until a file has something to read."""
        from multiprocessing.connection import wait

        workers = self._workers
        while workers and workers.busy and not wait([number], _LOOK_SECONDS):
            self._settle(workers.ready())

    def _settle(self, results: Iterator[tuple[Part, Result]]) -> None:
        self._using = True
        for _, result in results:
            self._use(result)
        self._using = False
