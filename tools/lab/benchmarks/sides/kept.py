"""List the ids that a tool kept: in Parquet, JSON lines, lines of text, or a saved dataset."""

import gzip
import json
import sys
from pathlib import Path

output = Path(sys.argv[1])
if output.suffix == ".parquet":
    import pyarrow.parquet as pq

    ids = pq.read_table(output, columns=["id"])["id"].to_pylist()
elif (output / "dataset_info.json").exists():
    import datasets

    ids = datasets.load_from_disk(str(output))["id"]
elif output.is_dir():
    ids = []
    for path in sorted(output.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            ids += [json.loads(line)["id"] for line in file]
else:
    ids = output.read_text("ascii").split()
print(*ids, sep="\n")
