"""Clean a corpus by the four steps of datatrove's MinHash pipeline, on all processors."""

import os
import sys
from pathlib import Path

from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.dedup import (
    MinhashDedupBuckets,
    MinhashDedupCluster,
    MinhashDedupFilter,
    MinhashDedupSignature,
)
from datatrove.pipeline.dedup.minhash import MinhashConfig
from datatrove.pipeline.readers import ParquetReader
from datatrove.pipeline.writers.jsonl import JsonlWriter

source, output = map(Path, sys.argv[1:])
work = output.parent / "steps"
config = MinhashConfig(n_grams=3)


def run(name, *steps, tasks=1):
    LocalPipelineExecutor(
        pipeline=list(steps),
        tasks=tasks,
        workers=os.cpu_count(),
        logging_dir=str(work / f"log-{name}"),
    ).run()


def reader():
    return ParquetReader(str(source.parent), glob_pattern=source.name, text_key="text", id_key="id")


if __name__ == "__main__":
    signatures, buckets, removed = (str(work / name) for name in ("sig", "buckets", "removed"))
    run("sig", reader(), MinhashDedupSignature(output_folder=signatures, config=config))
    run(
        "buckets",
        MinhashDedupBuckets(input_folder=signatures, output_folder=buckets, config=config),
        tasks=config.num_buckets,
    )
    run("cluster", MinhashDedupCluster(input_folder=buckets, output_folder=removed, config=config))
    run("filter", reader(), MinhashDedupFilter(input_folder=removed), JsonlWriter(str(output)))
