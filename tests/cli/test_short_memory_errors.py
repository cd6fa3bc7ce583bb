"""Memory that runs short in a command is an error with a hint."""

import errno

import pytest

import fpdb

LINES = [
    "error: there isn't enough memory for this",
    (
        "hint: raise the limit (ulimit -v, or that of the container), or use fewer jobs; "
        "what was acknowledged is stored"
    ),
]


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 1 GiB"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        RuntimeError("can't start new thread"),
        ImportError("libx.so.1: failed to map segment from shared object"),
    ],
)
def test_each_form_of_short_memory_is_one_error(run, monkeypatch, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(fpdb, "open", fail)
    done = run("get", "x.fpdb", "key")
    assert (done.code, done.out, done.err.splitlines()) == (3, "", LINES)


def test_other_errors_stay_what_they_are(run, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("a defect")

    monkeypatch.setattr(fpdb, "open", fail)
    with pytest.raises(RuntimeError, match="a defect"):
        run("get", "x.fpdb", "key")
