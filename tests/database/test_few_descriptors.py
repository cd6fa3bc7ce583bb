"""At the limit of open files every call works or raises an error of fpdb, and nothing is lost."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = """
import json, resource
folder, names = argv[0], json.loads(argv[1])
text = "我们今天去北京大学学习和研究计算机科学技术 one two three four five six seven eight"
USES = {
    "add": lambda db, new: db.add("b", text + " nine"),
    "add to a readonly one": lambda db, new: fpdb.open(db.path, readonly=True).query(text),
    "backup": lambda db, new: db.backup(new),
    "compact": lambda db, new: db.compact(new),
    "create": lambda db, new: fpdb.create(new),
    "ingest": lambda db, new: fpdb.ingest(db, folder + "/a.jsonl"),
    "load": lambda db, new: db.add_fingerprints(map(str, range(2000)), range(2000)),
    "pairs": lambda db, new: list(db.pairs()),
}
with open(folder + "/a.jsonl", "w", encoding="utf-8") as file:
    file.write(json.dumps({"key": "c", "text": text}))
bare = []
for name in names:
    for free in (0, 2, 5):
        child = os.fork()
        if child:
            bare += [f"{name} with {free}"] * bool(os.waitpid(child, 0)[1])
            continue
        place = f"{folder}/{names.index(name)}-{free}"
        db = fpdb.create(place)
        used = max(map(int, os.listdir("/proc/self/fd")))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + free, used + free))
        code = 0
        try:
            USES[name](db, place + ".new")
        except fpdb.FpdbError as error:
            code = not error.hint
        except BaseException:
            code = 1
        os._exit(code)
print(json.dumps(bare))
"""
NAMES = ["add", "add to a readonly one", "backup", "compact", "create", "ingest", "load", "pairs"]


@pytest.mark.parametrize("some", [NAMES[:4], NAMES[4:]], ids=["first", "second"])
def test_too_few_descriptors(start: Callable[..., object], tmp_path: Path, some: list[str]) -> None:
    process = start(SCRIPT, tmp_path, json.dumps(some))
    out, problem = process.communicate(timeout=120)  # type: ignore[attr-defined]
    assert json.loads(out) == [], problem
