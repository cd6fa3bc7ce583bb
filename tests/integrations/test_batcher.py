"""The thread that adds the documents of an event loop."""

import asyncio
import math
import subprocess
import sys
import threading
import time

import pytest

import fpdb
from fpdb.integrations import batcher as batcher_module
from fpdb.integrations.batcher import Batcher, added_to


@pytest.fixture
def db(tmp_path):
    with fpdb.create(tmp_path / "crawl.fpdb") as database:
        yield database


@pytest.fixture
def storing(db):
    """What stores documents once an event is set, and how many at a time."""
    sizes, held, add = [], threading.Event(), added_to(db)

    def store(some):
        sizes.append(len(some))
        held.wait(60)
        return add(some)

    return store, sizes, held


def documents(count):
    return [
        fpdb.Document(str(n), " ".join(f"word{place}of{n}" for place in range(15)))
        for n in range(count)
    ]


def test_documents_that_wait_share_a_transaction(storing):
    store, sizes, held = storing

    async def run():
        batcher = Batcher(store)
        results = [batcher.add([document]) for document in documents(2500)]
        assert batcher.waiting == 2500
        held.set()
        found = await asyncio.gather(*results)
        assert batcher.waiting == 0
        await batcher.close()
        return [added.key for [added] in found]

    assert asyncio.run(run()) == [str(n) for n in range(2500)]
    assert len(sizes) <= 4
    assert max(sizes) == 1000


def test_a_transaction_waits_for_those_who_were_answered_last(storing, monkeypatch):
    monkeypatch.setattr(batcher_module, "_PATIENCE", 1e9)
    monkeypatch.setattr(batcher_module, "_MOST_SECONDS", 60)
    store, sizes, held = storing

    async def run():
        batcher = Batcher(store)
        first, *others, last = documents(10)
        alone = batcher.add([first])
        while not sizes:
            await asyncio.sleep(0.001)
        results = [batcher.add([document]) for document in others]
        held.set()
        await alone
        async with asyncio.timeout(30):
            await asyncio.gather(*results, batcher.add([last]))

    asyncio.run(run())
    assert sizes == [1, 9]


def test_long_texts_share_no_large_transaction(db):
    sizes = []

    def store(some):
        sizes.append(len(some))
        return some

    async def run():
        batcher = Batcher(store)
        long = fpdb.Document("a", "x" * (1 << 20))
        await asyncio.gather(*(batcher.add([long]) for _ in range(20)))

    asyncio.run(run())
    assert max(sizes) <= 8


def test_a_bad_document_costs_only_itself(db):
    async def run():
        batcher = Batcher(added_to(db))
        good, other = documents(2)
        bad = fpdb.Document("", "x")
        return await asyncio.gather(batcher.add([good, bad]), batcher.add([bad, other]))

    (first, second), (third, fourth) = asyncio.run(run())
    assert (first.status, fourth.status) == ("added", "added")
    assert isinstance(second, fpdb.InputError)
    assert isinstance(third, fpdb.InputError)


def test_an_error_that_nobody_expects_reaches_all(db):
    async def run():
        batcher = Batcher(lambda _: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            await batcher.add(documents(1))
        await batcher.close()

    asyncio.run(run())


def test_closing_comes_after_everything(db):
    async def run():
        batcher = Batcher(added_to(db))
        results = [batcher.add([document]) for document in documents(50)]
        await batcher.close()
        assert all(result.done() for result in results)
        with pytest.raises(fpdb.ClosedError):
            await batcher.add(documents(1))
        await batcher.close()

    asyncio.run(run())
    assert len(db) == 50


def test_what_nobody_waits_for_any_more_is_left_out(db, storing):
    store, _, held = storing

    async def run():
        batcher = Batcher(store)
        first, *others = documents(300)
        results = [batcher.add([first])]
        while not batcher._queue.empty():
            await asyncio.sleep(0.001)
        results += [batcher.add([document]) for document in others]
        for result in results[1:]:
            result.cancel()
        held.set()
        await batcher.close()
        assert batcher.waiting == 0

    asyncio.run(run())
    assert len(db) == 1


def test_a_database_that_is_replaced_is_opened_again(db):
    async def run():
        batcher = Batcher(added_to(db))
        found = []
        for document in documents(3):
            with fpdb.open(db.path) as other:
                other.compact()
            found += await batcher.add([document])
        with fpdb.open(db.path) as other:
            other.compact(capacity=10**9)
        [refused] = await batcher.add(documents(1))
        await batcher.close()
        return [added.status for added in found], refused

    statuses, refused = asyncio.run(run())
    assert statuses == ["added"] * 3
    assert isinstance(refused, fpdb.MovedError)
    assert "with other tables" in str(refused)
    with fpdb.open(db.path) as stored:
        assert set(stored) == {"0", "1", "2"}


@pytest.mark.process
def test_a_deadline_that_ends_a_wait_for_the_lock_reaches_only_its_own(db):
    script = (
        "import sys, time, fpdb\n"
        "with fpdb.open(sys.argv[1]) as db, db._environment.write():\n"
        "    print('held', flush=True)\n"
        "    time.sleep(1)\n"
    )
    command = [sys.executable, "-c", script, str(db.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()

        async def run():
            batcher = Batcher(added_to(db))
            now = time.monotonic()
            results = [
                batcher.add([document], latest)
                for document, latest in zip(
                    documents(3), (now + 60, now + 0.3, now + 60), strict=True
                )
            ]
            outcomes = await asyncio.gather(*results, return_exceptions=True)
            await batcher.close()
            return outcomes

        outcomes = asyncio.run(run())
    assert isinstance(outcomes[1], fpdb.DeadlineError)
    assert [outcomes[place][0].status for place in (0, 2)] == ["added"] * 2
    assert sorted(db) == ["0", "2"]


def test_a_deadline_reaches_only_those_whose_own_it_was(db):
    stored, late = [], threading.Event()

    def store(documents):
        if len(documents) > 1 and not late.is_set():
            late.set()
            time.sleep(0.4)  # longer than one of them may take
        outcomes = added_to(db)(documents)
        stored.extend(added.key for added in outcomes)
        return outcomes

    async def run():
        batcher = Batcher(store)
        latest = [math.inf, time.monotonic() + 0.2, time.monotonic() + 60, math.inf]
        results = [
            batcher.add([document], until)
            for document, until in zip(documents(4), latest, strict=True)
        ]
        outcomes = await asyncio.gather(*results, return_exceptions=True)
        await batcher.close()
        return outcomes

    outcomes = asyncio.run(run())
    assert isinstance(outcomes[1], fpdb.DeadlineError)
    assert [outcomes[place][0].status for place in (0, 2, 3)] == ["added"] * 3
    assert sorted(stored) == sorted(db) == ["0", "2", "3"]


def test_documents_of_one_transaction_are_compared_exactly(db):
    words = [f"word{place}" for place in range(100)]
    texts = [" ".join(words), " ".join([*words[:97], "other", "words", "here"])]
    texts += ["too " + texts[1]]
    near = [fpdb.Document(str(number), text) for number, text in enumerate(texts)]
    asked = []
    found = added_to(db, similarity=0.97, texts=asked.append)([near[0], 7, *near[1:]])
    assert isinstance(found.pop(1), fpdb.InputError)
    assert [each.status for each in found] == ["added", "added", "duplicate"]
    [match] = found[2].matches
    assert (match.key, match.exact) == ("1", True)
    assert match.similarity == pytest.approx(98 / 99)
    assert asked == []
