"""The command line as a process: streams, signals, pipes and locales."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import fpdb

pytestmark = pytest.mark.process

TEXT = "one two three four five six seven eight"
CHINESE = "国务院今天发布了关于放假的通知，全国各地放假三天，请大家注意安全"


def finished(process, stdin=None):
    out, err = process.communicate(stdin, timeout=60)
    return process.returncode, out, err


def test_the_installed_script_is_the_same_command():
    script = shutil.which("fpdb", path=str(Path(sys.executable).parent))
    if script is None:
        pytest.skip("fpdb's script isn't installed beside this Python")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"fpdb {fpdb.__version__}, with")


@pytest.mark.parametrize("command", [["fingerprint"], ["compare", "-", "-"]])
def test_an_interrupt_while_reading_exits_with_130(start, command):
    process = start(*command)
    process.stdin.write(b"x" * 200_000)  # more than a pipe holds, so it is being read
    process.stdin.flush()
    process.send_signal(signal.SIGINT)
    code, out, err = finished(process)
    assert (code, out) == (130, b"")
    assert b"Traceback" not in err


@pytest.mark.parametrize("form", [[], pytest.param(["--json"], marks=pytest.mark.full)])
def test_a_reader_that_goes_away_is_no_error(start, tmp_path, form):
    path = tmp_path / "lines.txt"
    path.write_text(f"{TEXT}\n" * 50_000, "utf-8")
    process = start("fingerprint", "--format", "lines", path, *form)
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(60) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_an_error(start):
    with open("/dev/full", "wb") as full:
        code, _, err = finished(start("fingerprint", "-t", TEXT, stdout=full))
    assert code == 3
    assert err.decode().splitlines() == [
        "error: standard output can't be written: No space left on device",
        "hint: is the disk full?",
    ]


@pytest.mark.parametrize(
    ("number", "arguments", "code", "said"),
    [
        (0, ["dedupe", "-", "-o", "o.jsonl"], 3, b"- can't be read: standard input is closed"),
        (0, ["follow", "a.fpdb"], 3, b"- can't be read: standard input is closed"),
        (1, ["recipes"], 3, b"standard output can't be written: Bad file descriptor"),
        (2, ["recipes", "no"], 3, b""),
    ],
)
def test_a_stream_that_is_closed_is_an_error_or_not_needed(
    start, tmp_path, number, arguments, code, said
):
    process = start(*arguments, cwd=tmp_path, preexec_fn=lambda: os.close(number))
    found, _, err = finished(process)
    assert found == code
    assert said in err
    assert b"Traceback" not in err


@pytest.mark.parametrize(
    "environment",
    [
        pytest.param({"LC_ALL": "C"}, marks=pytest.mark.full),
        {"LC_ALL": "POSIX", "PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
)
def test_chinese_is_printed_in_any_locale(start, tmp_path, environment):
    path = tmp_path / "lines.txt"
    path.write_text(f"{CHINESE}。\n", "utf-8")
    given = "fingerprint", "--format", "text", "--explain", path, "--json"
    code, out, _ = finished(start(*given, environment=environment))
    assert code == 0
    assert "国务院" in out.decode("utf-8")
