"""Clean a corpus by a script around rensa, as its users write: keep what is like no kept one."""

import sys

import pyarrow.parquet as pq
from rensa import RMinHash, RMinHashLSH

HASHES, BANDS, SIMILAR = 128, 16, 0.8

source, output = sys.argv[1:]
index = RMinHashLSH(threshold=SIMILAR, num_perm=HASHES, num_bands=BANDS)
kept = {}
file = pq.ParquetFile(source)
schema = file.schema_arrow
with pq.ParquetWriter(f"{output}.parquet", schema) as writer:
    for batch in file.iter_batches(10_000):
        marks = []
        for number, text in zip(batch["id"].to_pylist(), batch["text"].to_pylist(), strict=True):
            words = text.lower().split()
            own = RMinHash(num_perm=HASHES, seed=1)
            own.update([" ".join(words[at : at + 3]) for at in range(max(1, len(words) - 2))])
            near = index.query(own)
            fresh = all(own.jaccard(kept[other]) < SIMILAR for other in near)
            if fresh:
                index.insert(int(number), own)
                kept[int(number)] = own
            marks.append(fresh)
        writer.write_batch(batch.filter(marks))
with open(output, "w", encoding="ascii") as listed:
    print(*kept, sep="\n", file=listed)
