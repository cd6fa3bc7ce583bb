"""Look texts up in datasketch's MinHashLSH on Redis, and insert those that are new.

`datasketch_on_redis.py PORT FILE` reads texts, a JSON object with `key` and `text` a line.
"""

import json
import sys
import time
from pathlib import Path

from datasketch import MinHash, MinHashLSH
from texts_with import shingles


def main():
    port, path = sys.argv[1:]
    documents = [json.loads(line) for line in Path(path).read_bytes().splitlines()]
    index = MinHashLSH(
        threshold=0.8,
        num_perm=128,
        storage_config={
            "type": "redis",
            "basename": b"bench",
            "redis": {"host": "127.0.0.1", "port": int(port)},
        },
    )
    took = []
    for document in documents:
        begun = time.perf_counter()
        hashes = MinHash(128)
        hashes.update_batch([each.encode() for each in shingles(document["text"], "en")])
        if not index.query(hashes):
            index.insert(document["key"], hashes)
        took.append(time.perf_counter() - begun)
    took.sort()
    p50, p99 = took[len(took) // 2], took[len(took) * 99 // 100]
    print(json.dumps({"documents": len(took), "seconds": sum(took), "p50": p50, "p99": p99}))


if __name__ == "__main__":
    main()
