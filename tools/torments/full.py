"""Disks without room, three ways, under all acts: what is read goes on, and so does all with room.

A small file system is filled but for some room, or files may only grow by that.
"""

import contextlib
import os
import random
import resource
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import disks
from acts import Act, Place, acts
from calls import Torment
from disks import Disk
from frame import Figures, caught, going
from worker import Worker, Workers

# The file systems and their mebibytes: in memory, and in a file.
SMALL = {"tmpfs": 48, "ext4": 64}
LIMITED = "file size limit"
_CHUNK = 1 << 12


def run(figures: Figures, rounds: int, seed: int, work: Path) -> None:
    """Do each act in each way with no room, and with some."""
    with Workers() as workers:
        figures.control = _control(seed, work / "control", workers)
        for way in (*SMALL, LIMITED):
            if way in SMALL and (lack := disks.missing(way)):
                figures.notes[way] = f"left out: {lack}"
                continue
            with _place(way, work / way.replace(" ", "-"), seed) as place:
                torment, chance = Torment(place, workers), random.Random(seed)
                for act in acts(seed):
                    most = _needed(place, act)
                    for number in going(rounds):
                        room = chance.randrange(most) if number else 0
                        strain = partial(_limited if way == LIMITED else _filled, place, act, room)
                        ended, lost, problems = torment.strained(
                            act, "ENOSPC", strain, reading=True
                        )
                        figures.add(
                            f"{way}, {act.name}, {room:,} bytes", problems, lost=lost,
                            acknowledged=ended == "done",
                        )  # fmt: skip
                        figures.count(way, ended)


@contextlib.contextmanager
def _place(way: str, work: Path, seed: int) -> Iterator[Place]:
    work.mkdir()
    if way == LIMITED:
        yield Place(work, seed)
        return
    with Disk(work, way, SMALL[way]) as disk:
        yield Place(disk.place, seed)


def _needed(place: Place, act: Act) -> int:
    """Return about how many bytes an act makes files grow by."""
    place.renew(act)
    place.do(act)
    size = sum(path.stat().st_size for path in place.folder.rglob("data.mdb"))
    return 2 * _CHUNK + size


@contextlib.contextmanager
def _filled(place: Place, _: Act, room: int, __: Worker) -> Iterator[None]:
    ballast = place.folder.with_name("ballast")
    size = 0
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            size += file.write(bytes(_CHUNK))
    os.truncate(ballast, max(size - room, 0))
    yield
    ballast.unlink()


@contextlib.contextmanager
def _limited(place: Place, act: Act, room: int, worker: Worker) -> Iterator[None]:
    stored = 0 if act.makes else (place.path / "data.mdb").stat().st_size
    before = resource.prlimit(worker.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (stored + room, before[1]))
    yield
    resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, before)


def _control(seed: int, work: Path, workers: Workers) -> str:
    """Do an act without room in a process that doesn't notice errors, until it is caught."""
    work.mkdir()
    place = Place(work, seed)
    [act] = [act for act in acts(seed) if act.name == "load into a filled database"]

    def attempt(_: int) -> str:
        strain = partial(_limited, place, act, 0)
        lost = Torment(place, workers).strained(act, "ENOSPC", strain, flaw="deaf").lost
        return f"{lost} documents lost" if lost else ""

    return caught("a writer that is deaf to errors", 1, attempt)
