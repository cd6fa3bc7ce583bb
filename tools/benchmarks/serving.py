"""Measure the server: checks over loopback, beside the embedded calls and datasketch on Redis.

Each row has a new database, a server in a process of its own, and another process that sends. So
two cores do all the work, that of the crawlers included. Texts are those of `tools/bench texts`.
"""

import contextlib
import json
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import environments
import texts

import fpdb

SIDES = Path(__file__).parent / "sides"
DOCUMENTS, TOGETHER = 10_000, 1_000
# Of what waits for the disk each time, and of a peer that is slow.
FEW, PEER = 1_000, 1_000
CONNECTIONS = (1, 16, 64, 256)
# (kind, connections, documents of a request) -> documents a second, and the seconds of 99%
GOALS = {("texts", 64, 1): (5_000, 0.050)}
NAMES = {"texts": "texts of 3,000 bytes", "fingerprints": "ready fingerprints"}


@contextlib.contextmanager
def server(folder, kind):
    """Serve a new database; yield the port and the process."""
    path = folder / "served.fpdb"
    shutil.rmtree(path, ignore_errors=True)
    create(path, kind).close()
    process = subprocess.Popen(
        [sys.executable, "-m", "fpdb", "serve", path, "--port", "0"], stderr=subprocess.PIPE
    )
    try:
        said = (re.search(rb"serving .*:(\d+)\n", line) for line in process.stderr)
        yield int(next(filter(None, said))[1]), process
    finally:
        process.terminate()
        process.wait()
        process.stderr.close()


def create(path, kind):
    settings = {"similarity": None, "k": 3} if kind == "fingerprints" else {}
    return fpdb.create(path, **settings)


def answer_of(script, *arguments, python=sys.executable):
    done = subprocess.run(
        [python, SIDES / script, *map(str, arguments)], check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout)


def over_http(folder, kind, connections, together):
    """Send documents to a server; return what the sender measured."""
    path = folder / f"{kind}{FEW if connections == 1 == together else ''}.jsonl"
    with server(folder, kind) as (port, _):
        return answer_of("load.py", port, connections, together, path)


def embedded(folder, kind, _, together):
    """Add documents in this process."""
    path = folder / f"{kind}{FEW if together == 1 else ''}.jsonl"
    documents = [json.loads(line) for line in path.read_bytes().splitlines()]
    for document in documents:
        if "fingerprint" in document:
            document["fingerprint"] = int(document["fingerprint"], 16)
    documents = [fpdb.Document(**document) for document in documents]
    shutil.rmtree(folder / "embedded.fpdb", ignore_errors=True)
    took = []
    with create(folder / "embedded.fpdb", kind) as db:
        for first in range(0, len(documents), together):
            begun = time.perf_counter()
            list(db.add_many(documents[first : first + together], skip_duplicates=True))
            took.append(time.perf_counter() - begun)
    took.sort()
    p50, p99 = took[len(took) // 2], took[len(took) * 99 // 100]
    return {"documents": len(documents), "seconds": sum(took), "p50": p50, "p99": p99}


def peer(folder, *_):
    """Look texts up in datasketch on Redis, which writes its file only now and then."""
    python = environments.python("datasketch on redis", "datasketch==2.0.0 redis==7.0.1")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    redis = subprocess.Popen(
        ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", folder],
        stdout=subprocess.DEVNULL,
    )
    try:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.05)
        return answer_of(
            "datasketch_on_redis.py", port, folder / f"texts{PEER}.jsonl", python=python
        )
    finally:
        redis.terminate()
        redis.wait()
        (folder / "dump.rdb").unlink(missing_ok=True)


def write_documents(folder):
    """Write the documents of each kind, all and few, as lines of JSON."""
    mix = texts.Mixes("en", DOCUMENTS)
    recipe = fpdb.recipe("web")
    for kind in NAMES:
        lines = []
        for number, text in enumerate(mix.texts):
            content = {"text": text}
            if kind == "fingerprints":
                content = {"fingerprint": f"{recipe.fingerprint(text):016x}"}
            lines.append(json.dumps({"key": f"https://site.example/{number}", **content}) + "\n")
        for count in {DOCUMENTS, FEW, PEER}:
            name = f"{kind}{'' if count == DOCUMENTS else count}.jsonl"
            (folder / name).write_text("".join(lines[:count]), "utf-8")
    return mix.note


def cases():
    """Yield each row: its name, what measures it, and with what."""
    for kind, name in NAMES.items():
        for connections in CONNECTIONS:
            yield f"{name}, one in a request", over_http, (kind, connections, 1)
        for connections in (1, 8):
            yield (
                f"{name}, {TOGETHER:,} lines in a request",
                over_http,
                (kind, connections, TOGETHER),
            )
        yield f"{name}, embedded, one in a call", embedded, (kind, None, 1)
        yield f"{name}, embedded, {TOGETHER:,} in a call", embedded, (kind, None, TOGETHER)
    yield "texts of 3,000 bytes, datasketch on Redis", peer, ("texts", 1, 1)


def run(rounds):
    """Measure all rows in turn; return them, and a note."""
    with tempfile.TemporaryDirectory(prefix="fpdb-bench-") as name:
        folder = Path(name)
        note = write_documents(folder)
        measured = {}
        for _ in range(rounds):
            for row, measure, arguments in cases():
                try:
                    measured.setdefault((row, arguments), []).append(measure(folder, *arguments))
                except (environments.MissingError, FileNotFoundError) as error:
                    print(f"[bench] {row}: {error}", file=sys.stderr, flush=True)
    return rows_of(measured), note


def rows_of(measured):
    speeds = {
        key: statistics.median(one["documents"] / one["seconds"] for one in found)
        for key, found in measured.items()
    }
    by_case = {arguments: speed for (_, arguments), speed in speeds.items() if arguments}
    peers = [speed for (row, _), speed in speeds.items() if "Redis" in row]
    rows = []
    for (row, arguments), speed in speeds.items():
        kind, connections, together = arguments
        p50, p99 = (
            statistics.median(one[name] for one in measured[row, arguments])
            for name in ("p50", "p99")
        )
        target, reached = "-", "-"
        if (goal := GOALS.get(arguments)) and "Redis" not in row:
            target = f"{goal[0]:,}/s, p99 {goal[1] * 1000:.0f} ms"
            good = speed >= goal[0] and p99 <= goal[1]
            if peers:
                target += ", 10 times datasketch on Redis"
                good = good and speed >= 10 * peers[0]
            reached = "yes" if good else "**no**"
        elif connections and together == TOGETHER:
            target = "half of embedded"
            reached = "yes" if 2 * speed >= by_case[kind, None, TOGETHER] else "**no**"
        rows.append(
            {
                "documents": row,
                "connections": connections or "-",
                "a second": f"{speed:,.0f}",
                "p50": f"{p50 * 1000:.1f} ms",
                "p99": f"{p99 * 1000:.1f} ms",
                "target": target,
                "reached": reached,
            }
        )
    return rows


def memory_after(requests):
    """Return the megabytes that a server has of its own after few requests, and after many."""
    with tempfile.TemporaryDirectory(prefix="fpdb-bench-") as name:
        folder = Path(name)
        write_documents(folder)
        with server(folder, "texts") as (port, process):
            sizes = []
            for count in (10 * DOCUMENTS, requests - 10 * DOCUMENTS):
                for _ in range(count // DOCUMENTS):
                    answer_of("load.py", port, 64, 1, folder / "texts.jsonl")
                status = Path(f"/proc/{process.pid}/status").read_text("ascii")
                sizes.append(int(re.search(r"RssAnon:\s+(\d+)", status)[1]) / 1024)
    return sizes
