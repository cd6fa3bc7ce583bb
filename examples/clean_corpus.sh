#!/usr/bin/env bash
# Clean a corpus, and show what was copied: clean_corpus.sh pages.jsonl clean.jsonl
set -euo pipefail
fpdb dedupe "$1" --output "$2" --removed "$2.removed.jsonl" --keep longest --report "$2.html" ||
    [ $? = 4 ] # all is done, but some records couldn't be compared
