"""Help fits on a screen, and a summary on its line."""

import os
import subprocess
import sys

import cli_reference
import pytest

from fpdb.cli.app import program


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


def test_help_of_a_command_may_be_asked_for_first(run):
    assert run("help", "pairs") == run("pairs", "--help")
    assert run("help").out == run("--help").out


@pytest.mark.process
def test_a_shell_completes_what_few_need_too():
    asked = {"_FPDB_COMPLETE": "complete_bash", "COMP_WORDS": "fpdb load --ba", "COMP_CWORD": "2"}
    script = "import sys; from fpdb.cli import main; sys.argv = ['fpdb']; main()"
    found = subprocess.check_output([sys.executable, "-c", script], env=os.environ | asked)
    assert found.split() == [b"--bad", b"--base"]
