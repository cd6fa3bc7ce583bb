"""Help fits on a screen and a half, and a summary on its line."""

import cli_reference

from fpdb.cli.app import program


def test_help_fits_on_a_screen_and_a_half():
    for path, _, text in cli_reference.commands(program()):
        lines = text.splitlines()
        assert len(lines) <= 60, path
        assert max(map(len, lines)) <= 100, path


def test_the_summary_is_never_cut():
    for path, command, _ in cli_reference.commands(program()):
        summary = command.help.split("\n\n")[0].strip()
        assert len(summary) <= 45 or path == "fpdb"
        assert summary.endswith(".")


def test_the_example_comes_first():
    for path, _, text in cli_reference.commands(program()):
        assert "Example" in text.split("╭")[0].split("\n\n")[2], path


def test_help_knows_no_markup(run):
    done = run("ingest", "--help")
    assert done.code == 0
    assert "\x1b" not in done.out
    assert "[FILE|DIR|-]..." in done.out
