"""Help fits on a screen, and a summary on its line."""

import os
import re
import subprocess
import sys

import cli_reference
import pytest

from fpdb.cli.app import program
from fpdb.io.raw import COPIED


def test_help_fits_on_a_screen():
    for path, _, text in cli_reference.commands(program()):
        lines = text.splitlines()
        assert len(lines) <= 42, path  # 45 with the empty ones around them
        assert max(map(len, lines)) <= 100, path


@pytest.mark.parametrize(
    ("command", "rare"), [([], ["load", "plan"]), (["query"], ["-k", "--base", "--max-bytes"])]
)
def test_what_few_need_is_only_named_but_for_help_all(run, command, rare):
    short, whole = (run(*command, form) for form in ("--help", "--help-all"))
    assert (short.code, whole.code) == (0, 0)
    shown, _, folded = short.out.partition("More (--help-all): ")
    for name in rare:
        assert f" {name} " not in shown
        assert name in folded
        assert f" {name} " in whole.out
    assert "More (--help-all)" not in whole.out


def test_the_example_comes_first():
    for path, _, text in cli_reference.commands(program()):
        assert "Example" in text.split("╭")[0].split("\n\n")[2], path


def test_help_of_a_command_may_be_asked_for_first(run):
    assert run("help", "pairs") == run("pairs", "--help")
    assert run("help").out == run("--help").out


@pytest.mark.process
def test_a_shell_completes_what_few_need_too():
    asked = {"_FPDB_COMPLETE": "complete_bash", "COMP_WORDS": "fpdb load --ba", "COMP_CWORD": "2"}
    script = "import sys; from fpdb.cli import main; sys.argv = ['fpdb']; main()"
    found = subprocess.check_output([sys.executable, "-c", script], env=os.environ | asked)
    assert found.split() == [b"--bad", b"--base"]


def test_help_of_dedupe_names_the_formats_that_it_copies():
    [command] = [each for path, each, _ in cli_reference.commands(program()) if "dedupe" in path]
    [text] = [each.help for each in command.params if each.name == "format"]
    assert set(text.partition(";")[0].replace(" or", ",").split(", ")) == set(COPIED)


def test_help_names_no_type_of_python(run):
    for command in ([], *([name] for name in program().commands)):
        for form in ("--help", "--help-all"):
            assert not re.search(r"<(bool|str|path|int|float|list)", run(*command, form).out), (
                command
            )


@pytest.mark.parametrize("option", ["--install-completion", "--show-completion"])
def test_completion_is_for_the_shell_that_runs_it(run, tmp_path, monkeypatch, option):
    monkeypatch.setenv("HOME", str(tmp_path))
    done = run(option, "nosuchshell")
    assert (done.code, "found 'nosuchshell'" in done.err) == (2, True)
    assert list(tmp_path.iterdir()) == []
