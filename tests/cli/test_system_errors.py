"""Errors of the system in a command say what was done, and to which file; so does short memory."""

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


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.EIO, "Input/output error", "/a/b"), "/a/b: Input/output error"),
        (FileExistsError(errno.EEXIST, "File exists", "a", None, "b"), "a: b: File exists"),
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files"),
        (TimeoutError("the read timed out"), "the read timed out"),
    ],
)
def test_errors_of_the_system_name_the_command_and_the_file(run, monkeypatch, error, said):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(fpdb, "open", fail)
    done = run("get", "x.fpdb", "key")
    first, hint = done.err.splitlines()
    assert (done.code, first) == (3, f"error: fpdb get can't go on: {said}")
    assert hint.startswith("hint: look at the rights")


def test_other_errors_stay_what_they_are(run, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("a defect")

    monkeypatch.setattr(fpdb, "open", fail)
    with pytest.raises(RuntimeError, match="a defect"):
        run("get", "x.fpdb", "key")
