"""Look texts up in datasketch's MinHashLSH on Redis, and insert those that are new.

`datasketch_on_redis.py PORT FILE` reads texts, a JSON object with `key` and `text` a line.
"""

import json
import sys
import time
from pathlib import Path

from texts_with import peers, shingles

port, path = sys.argv[1:]
redis = {"type": "redis", "basename": b"bench", "redis": {"host": "127.0.0.1", "port": int(port)}}
index, took = peers.Datasketch(0.8, storage_config=redis), []
for document in map(json.loads, Path(path).read_bytes().splitlines()):
    begun = time.perf_counter()
    sketch = index.sketch(shingles(document["text"], "en"))
    if not index.find(sketch):
        index.add(document["key"], sketch)
    took.append(time.perf_counter() - begun)
took.sort()
p50, p99 = took[len(took) // 2], took[len(took) * 99 // 100]
print(json.dumps({"documents": len(took), "seconds": sum(took), "p50": p50, "p99": p99}))
