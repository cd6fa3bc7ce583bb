"""Measure the server: checks over loopback, beside the embedded calls and datasketch on Redis.

Each row has a new database, a server in a process of its own, and another process that sends. So
two cores do all the work, that of the crawlers included. Texts are those of `lab/bench texts`.
"""

import contextlib
import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import paired
import texts
from paired import answer_of

import fpdb

DOCUMENTS, TOGETHER = 10_000, 1_000
# Of what waits for the disk each time, and of a peer that is slow.
FEW, PEER = 1_000, 1_000
CONNECTIONS = (1, 64)
KINDS = ("texts", "fingerprints")
REDIS_PACKAGES = "datasketch==2.0.0 redis==7.0.1"
REDIS = "datasketch on Redis, connections: 1"


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


def over_http(folder, kind, connections, together):
    path = folder / f"{kind}{FEW if connections == 1 == together else ''}.jsonl"
    with server(folder, kind) as (port, _):
        return answer_of("load.py", port, connections, together, path)


def embedded(folder, kind, _, together):
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
    return {"documents": len(documents), **paired.waits(took)}


def peer(folder, *_):
    """Look texts up in datasketch on Redis, which writes its file only now and then."""
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
        path = folder / f"texts{PEER}.jsonl"
        return answer_of("datasketch_on_redis.py", port, path, package=REDIS_PACKAGES)
    finally:
        redis.terminate()
        redis.wait()
        (folder / "dump.rdb").unlink(missing_ok=True)


def write_documents(folder):
    mix = texts.Mixes("en", DOCUMENTS)
    recipe = fpdb.recipe("web")
    for kind in KINDS:
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
    """Yield what is measured: the name of its row, its kind, how, and with what."""
    for kind in KINDS:
        for connections in CONNECTIONS:
            row = f"one in a request, connections: {connections}"
            yield row, kind, over_http, (kind, connections, 1)
        row = f"{TOGETHER:,} lines in a request, connections: 1"
        yield row, kind, over_http, (kind, 1, TOGETHER)
        yield "embedded, one in a call", kind, embedded, (kind, None, 1)
        yield f"embedded, {TOGETHER:,} in a call", kind, embedded, (kind, None, TOGETHER)
    yield REDIS, "texts", peer, ("texts", 1, 1)


def run(options):
    with tempfile.TemporaryDirectory(prefix="fpdb-bench-") as name:
        folder = Path(name)
        sentences = write_documents(folder)
        measures = {
            (row, kind): partial(measure, folder, *arguments)
            for row, kind, measure, arguments in cases()
        }
        rows = rows_of(paired.in_turn(measures, options.rounds))
        note = (
            f"{DOCUMENTS:,} documents in a row, {FEW:,} where each waits for the disk; "
            f"{sentences}; medians of {paired.rounds_of(options.rounds)}."
        )
        if options.sizes:
            few, many = memory_after(folder, options.sizes[0])
            note += (
                f" Memory of the server's own: {few:,.0f} MiB after {10 * DOCUMENTS:,} "
                f"requests, {many:,.0f} MiB after {options.sizes[0]:,}."
            )
    return {"note": note, "tables": [rows]}


def rows_of(measured):
    found = {key: paired.median(results) for key, results in measured.items()}
    speeds = {key: each["documents"] / each["seconds"] for key, each in found.items()}
    rows = []
    for row in dict.fromkeys(row for row, _ in found):
        cells = {"documents": row}
        for kind in KINDS:
            each, speed = found.get((row, kind)), speeds.get((row, kind))
            cells[f"{kind} a second"] = f"{speed:,.0f}" if speed else ""
            shown = f"{1000 * each['p50']:.1f} / {1000 * each['p99']:.1f}" if each else ""
            cells[f"{kind}, p50 / p99, ms"] = shown
        rows.append(cells)
    return rows


def memory_after(folder, requests):
    """Return the megabytes that a server has of its own after few requests, and after many."""
    sizes = []
    with server(folder, "texts") as (port, process):
        for count in (10 * DOCUMENTS, requests - 10 * DOCUMENTS):
            for _ in range(count // DOCUMENTS):
                answer_of("load.py", port, 64, 1, folder / "texts.jsonl")
            status = Path(f"/proc/{process.pid}/status").read_text("ascii")
            sizes.append(int(re.search(r"RssAnon:\s+(\d+)", status)[1]) / 1024)
    return sizes
