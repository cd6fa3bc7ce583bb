"""Measure the store beside its peers: the same fingerprints for all, answers checked, in turn."""

import shutil
import tempfile
from pathlib import Path

import numpy as np
import workloads
from contenders import CONTENDERS, Process, StoppedError, interpreter
from environments import MissingError
from group import BATCH, LARGE, PATIENCE, Group, Records, say

HOT = 1_000_000


def specials(records, folder, documents, rounds):
    """Measure random inserts, and a fingerprint that half of all documents have."""
    fpdb = CONTENDERS[0]
    patience = PATIENCE[True]
    for row, order in (
        ("random inserts", {"what": "random_inserts", "documents": documents, "size": BATCH}),
        ("hot bucket", {"what": "hot_bucket", "copies": documents, "rounds": rounds}),
    ):
        say(row)
        place = folder / row.replace(" ", "-")
        place.mkdir()
        process = Process(fpdb, folder, place, None)
        record = records.slot({"data": row, "documents": documents}, row, "fpdb")
        try:
            record["values"] = [process.ask(patience, "extra", **order)]
        except StoppedError as why:
            record["stopped"] = str(why)
        finally:
            process.close()
        shutil.rmtree(place)


def chosen(peers, records):
    """Return the sides that can be installed, and record why others can't."""
    sides = []
    for side in CONTENDERS:
        if side.name == "fpdb" or side.name in peers:
            try:
                interpreter(side)
            except MissingError as why:
                say(f"{side.name} is left out: {why}")
                records.slot({"data": "any", "documents": 0}, "install", side.name)["stopped"] = (
                    f"{side.package} could not be installed: {why}"
                )
            else:
                sides.append(side)
    return sides


def run(sizes, kinds, rounds, peers, progress):
    """Measure everything; give the records and versions; `progress` gets them so far."""
    records, versions = Records(), {}
    sides = chosen(peers, records)
    folder = Path(tempfile.mkdtemp(prefix="fpdb-bench-"))
    try:
        for documents in sizes:
            for data in kinds:
                say(f"{documents:,} documents, {data}")
                work = folder / "work"
                checks = 1_000 if documents <= LARGE else 200
                workload = workloads.make(work, data, documents, checks=checks)
                pairs = truth_of_join(work)
                taking = [side for side in sides if not side.cap or documents <= side.cap]
                for side in sides:
                    if side not in taking:
                        where = {"data": data, "documents": documents}
                        records.slot(where, "all", side.name)["stopped"] = side.why_cap
                group = Group(records, workload, taking, rounds, pairs)
                group.measure()
                versions.update(group.versions)
                progress(records)
                shutil.rmtree(work)
        specials(records, folder, min(HOT, max(sizes)), rounds)
    finally:
        shutil.rmtree(folder)
    return records, versions


def truth_of_join(work):
    """Find the exact pairs of a workload, keep them and the distinct fingerprints, and count."""
    column, counts = workloads.distinct(np.load(work / "stored.npy"))
    np.save(work / "distinct.npy", column)
    pairs = workloads.exact_pairs(column)
    np.save(work / "pairs.npy", pairs)
    documents = workloads.pairs_of_documents(column, counts, pairs)
    return {"distinct": len(pairs), "documents": documents}
