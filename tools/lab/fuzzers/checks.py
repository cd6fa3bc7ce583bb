"""What must hold for any bytes at all, one function for each fuzz target, and their seeds."""

import dataclasses
import gzip
import os
import random
import re
import struct
import tempfile
import time
from functools import cache, partial
from io import BytesIO
from pathlib import Path

import edges
import msgpack
import numpy as np
import pyarrow as pa
import xxhash
import zstandard
from _environment import ROOT
from pyarrow import parquet

import fpdb
from fpdb import kernels
from fpdb.fingerprint import hashing, presets, segmentation, to_int
from fpdb.fingerprint.hashing import utf8
from fpdb.io import extraction
from fpdb.io.files import FORMATS, read_parts, read_records
from fpdb.io.main_content import main_content
from fpdb.io.records import BadRecord, Reading, Record
from fpdb.maintenance import portable
from fpdb.storage.format import (
    Stored,
    pack_header,
    pack_record,
    require_supported,
    seed_of,
    unpack,
    unpack_header,
    unpack_record,
)
from fpdb.storage.number_pages import pack_rows, summed, unpack_rows

FOLDER = Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
LARGEST = 1000
FORMS = tuple(FORMATS)
FIELDS = (
    Reading(),
    Reading(keyed=False, meta_field="*"),
    Reading(key_field="1", text_field=("2", "1"), meta_field="3"),
    Reading(key_field="key", fingerprint_field="f", base="decimal"),
)


def require(condition, *found):
    if not condition:
        raise AssertionError(*found)


def steady(record):
    """Leave out the words of an unpacker, which depend on what it unpacked before."""
    if isinstance(record, BadRecord):
        reason = re.sub(r"(is no complete \w+ file: ).*", r"\1", record.reason, flags=re.DOTALL)
        return dataclasses.replace(record, reason=reason)
    return record


def read(path, reading=FIELDS[0], **options):
    """Read all records in both ways, which must give the same."""
    reading = dataclasses.replace(reading, **options)
    whole = list(read_records(path, reading))
    parts = read_parts(path, reading, size=3)
    again = [record for part in parts for record in part()]
    require(list(map(steady, whole)) == list(map(steady, again)), whole)
    for record in whole:
        require(isinstance(record, Record | BadRecord), record)
        if isinstance(record, BadRecord):
            require(record.reason, record)
        elif record.text is not None:
            require(len(record.text) <= 3 * LARGEST, len(record.text))


def check_readers(data):
    """Any bytes are records and bad records, in every format."""
    if len(data) < 2:
        return
    path = FOLDER / "input.bin"
    path.write_bytes(data[2:])
    chosen = FORMS[data[0] % len(FORMS)]
    try:
        read(str(path), FIELDS[data[1] % len(FIELDS)], format=chosen, max_bytes=LARGEST)
    except fpdb.InputError as error:  # the fields don't fit the format
        require(error.hint or str(error), error)


def check_packed(data):
    """The same holds for bytes that claim to be compressed."""
    if not data:
        return
    path = FOLDER / f"input.jsonl.{('gz', 'zst')[data[0] % 2]}"
    path.write_bytes(data[1:])
    read(str(path), max_bytes=LARGEST)


def check_columns(data):
    """Parquet files with some changed bytes are records and bad records, too."""
    choices = edges.Choices(data)
    changed = bytearray(choices.one(_tables()))
    for _ in range(1 + choices.number(3)):
        place = choices.number(256) << 8 | choices.number(256)
        changed[place % len(changed)] = choices.number(256)
    path = FOLDER / "input.parquet"
    path.write_bytes(changed)
    found = read_records(str(path), Reading(meta_field="*"))
    require(all(isinstance(each, Record | BadRecord) for each in found))


_LABELS = ("", "gbk", "utf-16", "latin-1")


def check_pages(data):
    """Any bytes are a page with a text, soon; so is what claims to be the body of a parsed one."""
    start = time.process_time()
    page, encoding, _ = extraction.decode_page(data[1:], _LABELS[len(data) % len(_LABELS)])
    require(encoding, data)
    for main in (True, False):
        text, title = extraction.extract(page, main)
        require(len(text) <= 2 * len(page) and len(title) <= 200, page)
    require(len(main_content(page, "")) <= 2 * len(page), page)
    require(time.process_time() - start < extraction.SECONDS, page)


@cache
def preparer():
    with fpdb.create(FOLDER / "fuzzed.fpdb") as database:
        return database.preparer


def check_portable(data):
    """Any bytes after a valid first line, or without one, are documents or an FpdbError."""
    head = _PORTABLE.partition(b"\n")[0] + b"\n" if data[:1] == b"\0" else b""
    try:
        source = portable.PortableFile(BytesIO(head + data[1:]))
        for _, batch in source.batches(100):
            prepared, bad = preparer().sift(batch)
            require(len(prepared) + len(bad) == len(batch), batch)
    except fpdb.FpdbError as error:
        require(error.hint and len(str(error)) < 1000, error)


def check_recipes(data):
    """Any file is a recipe that works and comes back, or a RecipeError."""
    path = FOLDER / "recipe.toml"
    path.write_bytes(data)
    try:
        recipe = presets.read_recipe(path)
    except fpdb.RecipeError as error:
        require(error.hint and len(str(error)) < 10_000, error)
        return
    try:
        batch = recipe.batch(["some words 和中文 of a text", ""])
        require(
            recipe.batch(["some words 和中文 of a text", ""]).fingerprints.tolist()
            == (batch.fingerprints.tolist())
        )
    except fpdb.InputError:
        pass
    require(fpdb.Recipe.from_dict(recipe.to_dict(), secret=recipe.hash.secret).id == recipe.id)
    if recipe.idf_id in {None, "jieba"} and recipe.hash.secret is None:
        path.write_text(presets.write_recipe(recipe), "utf-8")
        require(presets.read_recipe(path).id == recipe.id, recipe)


def check_stored(data):
    """Any bytes of the store, even with a checksum that is right, are a value or an FpdbError."""
    if len(data) < 2:
        return
    body = data[2:]
    kind, columns = data[0] % 4, data[1] % 3 + 1
    try:
        if kind == 0:
            record = unpack_record(_digest("documents", bytes(8), body)[-4:] + body, 0, 64)
            require(isinstance(record, Stored), record)
        elif kind == 1:
            start = pack_header({})[:8]
            checksum = _digest("header", b"header", start + body)
            require_supported(unpack_header(start + checksum + body), readonly=bool(columns % 2))
            check_start(body)
        elif kind == 2:
            unpack(body)
        else:
            digest = _digest("table-00", b"", body)
            check_page(memoryview(digest[-4:][::-1] + body), columns)
    except fpdb.FpdbError as error:
        require(str(error) and error.hint, error)


def check_start(data):
    """Any bytes after the magic are a header, or an FpdbError that names a version or damage."""
    try:
        unpack_header(b"fpdb" + data)
    except fpdb.DamagedError as error:
        require("header" in str(error), error)
    except fpdb.FormatError as error:
        require("version" in str(error) or len(data) < 4, error)


def _digest(name, key, body):
    return xxhash.xxh3_64_digest(body, seed_of(name, key))


def check_page(page, columns):
    """All ways of reading a page say the same, and a page that was written comes back."""
    rows = unpack_rows(page, columns, _SEED)
    count = len(rows[0])
    require(all(len(each) == count for each in rows))
    if not count:
        return
    order = np.argsort(rows[0], kind="stable")
    rows = [each[order] for each in rows]
    page, after = pack_rows(rows)
    if after < count:
        return
    packed = memoryview(summed(page, _SEED))
    require(all(map(np.array_equal, unpack_rows(packed, columns, _SEED), rows)))


_SEED = seed_of("table-00")
WEB = fpdb.recipe("web")
RECIPES = [
    fpdb.recipe(name) for name in ("web", "words", "char-4", "simhash-py", "bigram-32", "charikar")
] + [WEB.replace(name="tags", clean=("tags", "unicode", "special"))]
ALONE = fpdb.recipe("char-4").replace(grams=fpdb.Grams(n=3, minimum=0), clean=())
# The same fingerprint by the definition: kernels have no stop words.
SLOW = ALONE.replace(grams=fpdb.Grams(n=3, minimum=0, stop_words=("never",)))


def check_texts(data):
    """Any text has one fingerprint: twice, alone or in a batch, by the fast or the plain path."""
    if not data:
        return
    text = data[1:].decode("utf-8", "surrogateescape" if data[0] & 8 else "replace")
    recipe = RECIPES[data[0] % len(RECIPES)]
    batch = recipe.batch([text, "words between", text])
    require(batch.fingerprints[0] == batch.fingerprints[2] if recipe.bits <= 64 else True)
    alone = recipe.batch([text])
    require(alone.fingerprints.tolist()[0] == batch.fingerprints.tolist()[0], text)
    require(alone.features[0] == len(recipe.features(text)), text)
    require(recipe.explain(text).fingerprint == to_int(alone.fingerprints[0]), text)
    require(ALONE.batch([text]).fingerprints.tolist() == SLOW.batch([text]).fingerprints.tolist())
    for step in segmentation.STEPS.values():
        step(text)
    cleaned = segmentation.normalise_unicode(text)
    require(segmentation.normalise_unicode(text) == cleaned)
    fast, slow = (
        segmentation.CUTS["jieba"](cleaned),
        segmentation._mixed_words(lambda: segmentation._jieba_cut(hmm=False), cleaned),
    )
    require(fast == slow, cleaned)


def plant(defect):
    """Put a defect into fpdb that its target must find."""
    if defect == "windows":
        right, parameters = hashing._HASHES["xxh3"]

        def wrong(choice, bits):
            digest = right(choice, bits)
            return lambda feature: digest(feature)[:: -1 if len(utf8(feature)) > 8 else 1]

        hashing._HASHES["xxh3"] = wrong, parameters
        SLOW.__dict__.pop("_digests", None)  # which the seeds made with the right hash
    elif defect == "reader":
        from fpdb.io import records

        right_key = records.check_key

        def check_key(name, key, **more):
            if isinstance(key, str) and "/" not in key and not key.isalnum():
                raise KeyError(key)
            right_key(name, key, **more)

        records.check_key = check_key
    else:
        raise ValueError(defect)


def check_kernels(data):
    """Kernels give what the definitions give, for one text and several."""
    recipe = _kernel_recipes()[(data or b"\0")[0] % len(_kernel_recipes())]
    text = data[1:].decode("utf-8", "surrogateescape")
    for texts in ([text], text.split("\n")):
        found = recipe.batch(texts, sketches=True, passages=True)
        kernels.enabled = False
        try:
            expected = recipe.batch(texts, sketches=True, passages=True)
        finally:
            kernels.enabled = kernels.available
        for name in ("fingerprints", "features", "sketches"):
            same = np.array_equal(getattr(found, name), getattr(expected, name))
            require(same, recipe.name, texts, name)
        require(found.passages == expected.passages, recipe.name, texts, "passages")


@cache
def _kernel_recipes():
    """Recipes whose parts reach all of the kernels of text."""
    words, keyed = fpdb.recipe("words"), fpdb.Hash(secret=fpdb.Secret(b"0123456789abcdef"))
    return [
        fpdb.recipe("web"),
        fpdb.recipe("web").with_bits(128),
        fpdb.recipe("char-4"),
        fpdb.recipe("title"),
        words,
        words.replace(grams=fpdb.Grams(n=2), bits=128, hash=keyed, weights=fpdb.Weights(by="sqrt")),
        words.replace(segment="words", bits=32, weights=fpdb.Weights(cap=3), hash=keyed, tie=1),
        words.replace(segment="whitespace", clean=(), grams=fpdb.Grams(n=3)),
    ]


_RECORD = pack_record(Stored(0, "key", 0, 1, bytes(16), msgpack.packb({"a": [1, None]}), 9), 64)
_ROWS = [np.arange(3, 40, dtype=np.uint64) << np.uint64(50), np.arange(37, dtype=np.uint64)]
_TEXTS = [
    "Plain words, and again plain words.",
    "中文的句子和 English words 混在一起。",
    "<p>tags &amp; <!-- comments --> <script>x</script> &#x4e2d;</p>",
    "e\u0301\u0316\u200b\u202e\ufdfa\u1100\u1161 \U0001f600\U00020000",
]
_PAGES = [
    "0<title>A boat</title><nav><a href='/'>Home</a></nav><main><h1>A boat</h1>"
    + "<p>Somebody repaired a wooden boat in winter, and it took long.</p>" * 3
    + "</main><div class='related'><a href=x>More</a></div><footer>Contact</footer>",
    "0<meta charset=gbk><table><tr><td>一条船，冬天修好了。<td><ul><li>甲<li>乙</ul></table>" * 3,
    "0<script type='text/x-handlebars-template'><div hidden><p>Later.</p></div></script>",
    "0<p a=\"<\" b='>'>&lt;&#x4e2d;&nbsp;<!-- x --><svg><text>t</svg><template><p>u</template>",
]
_LINES = [
    b'{"key": "k", "text": "t", "n": [1, 2.5, null, {"a": "\\u00e9"}]}\n{"id": 7, "body": ""}\n',
    b'key,text,f\nk,"a ""quoted""\nfield",12\nj,plain,0xff\n',
    b"key\ttext\tf\nk\tsome text\t77\n\n",
    b"a line\r\n\r\nanother \xff line\n",
]
_PORTABLE = (ROOT / "tests" / "format" / "portable-1.fpdb.jsonl").read_bytes()


@cache
def _tables():
    """Write columns of the kinds that Parquet has."""
    rows = range(4)
    words = [f"word {row}" if row % 3 else None for row in rows]
    lists = [[f"item {place}" for place in range(row)] for row in rows]
    coded = pa.array(words).dictionary_encode()
    moments = pa.array([row * 10**9 for row in rows], pa.timestamp("ns"))
    kinds = [
        {"n": pa.array(rows, "int8"), "f": [0.5] * 4, "b": [True] * 4, "m": moments},
        {"large": pa.array(words, pa.large_string()), "fixed": [b"abcd"] * 4, "coded": coded},
        {"list": lists, "struct": [{"a": row, "b": {"c": f"{row}"}} for row in rows]},
        {"pair": pa.array([[row, row] for row in rows], pa.list_(pa.int64(), 2))},
        {"map": pa.array([[("a", row)] for row in rows], pa.map_(pa.string(), pa.int64()))},
        {"half": pa.array([1.5] * 4, "float16"), "nothing": pa.nulls(4)},
        {"nested": pa.ListArray.from_arrays([*rows, 4], coded)},
        {
            "view": pa.array(words, pa.string_view()),
            "views": pa.array(lists, pa.list_view(pa.string())),
        },
    ]
    files = []
    for kind in kinds:
        table = pa.table({"key": [f"k{n}" for n in rows], "text": ["some words"] * 4, **kind})
        sink = BytesIO()
        parquet.write_table(table, sink, row_group_size=2)
        files.append(sink.getvalue())
    return files


SEEDS = {
    "columns": [bytes([n, 2, *random.Random(n).randbytes(9)]) for n in range(len(_tables()))],
    "readers": [
        bytes([form, fields]) + lines
        for form in range(len(FORMATS))
        for fields in range(len(FIELDS))
        for lines in _LINES
    ],
    "pages": [page.encode() for page in _PAGES],
    "packed": [b"\0" + gzip.compress(line, mtime=0) for line in _LINES]
    + [b"\1" + zstandard.compress(line) for line in _LINES]
    + [b"\0" + gzip.compress(_LINES[0]) * 2 + bytes(9)],
    "portable": [b"\1" + _PORTABLE, b"\0" + _PORTABLE.partition(b"\n")[2]],
    "recipes": [
        presets.write_recipe(fpdb.recipe(recipe)).encode()
        for recipe in ("web", "char-4", "simhash-py", "tagged-title", "ascii-mt")
    ]
    + [b'base = "web"\nname = "x"\n[grams]\nstop_words = ["a"]\n[weights]\nidf = "jieba"\n'],
    "stored": [
        b"\0\0" + _RECORD[4:],
        b"\1\0" + pack_header({"uuid": "u", "recipe": {}})[16:],
        b"\2\0" + msgpack.packb({"a": [1, -2, 3.5, "x", None, True, {"b": []}]}),
        b"\3\1" + summed(pack_rows(_ROWS)[0], _SEED)[4:],
        b"\3\0" + struct.pack("<HHQ", 3, 2, 9) + bytes(range(6)),
    ],
    "texts": [bytes([kind]) + text.encode() for kind in range(16) for text in _TEXTS],
    "kernels": [
        bytes([kind]) + f"{text}\n{text * 40}".encode() for kind in range(8) for text in _TEXTS
    ],
    **edges.SEEDS,
}
CHECKS = {
    "readers": check_readers,
    "pages": check_pages,
    "packed": check_packed,
    "columns": check_columns,
    "portable": check_portable,
    "recipes": check_recipes,
    "stored": check_stored,
    "texts": check_texts,
    "kernels": check_kernels,
    "commands": partial(edges.check_commands, FOLDER),
    "visits": partial(edges.check_visits, FOLDER),
}
