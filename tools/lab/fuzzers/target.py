"""Fuzz one target in this process: `target.py TARGET SECONDS FOLDER [DEFECT]`."""

import logging
import shutil
import sys
import warnings
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["fpdb"]):
    import checks

_LONGEST = 4096


def main(target, seconds, folder, defect=""):
    """Write the seeds, and let atheris change them until the time is up or a check fails."""
    warnings.simplefilter("ignore")
    logging.disable()
    # Crashes are kept from run to run, what was found interesting is not.
    kept, corpus = Path(folder), Path(folder) / "corpus"
    shutil.rmtree(corpus, ignore_errors=True)
    corpus.mkdir(parents=True)
    for number, seed in enumerate(checks.SEEDS[target]):
        (corpus / f"seed-{number}").write_bytes(seed)
    for seed in checks.SEEDS[target]:
        checks.CHECKS[target](seed)  # loads dictionaries, which takes longer than an input may
    if defect:
        checks.plant(defect)
    options = [
        f"-max_total_time={seconds}",
        f"-max_len={_LONGEST}",
        "-timeout=10",
        "-rss_limit_mb=1024",
        f"-artifact_prefix={kept}/",
        "-print_final_stats=1",
    ]
    atheris.Setup([target, *options, str(corpus)], checks.CHECKS[target])
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
