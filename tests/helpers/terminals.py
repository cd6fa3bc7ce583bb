"""Titles that would drive a terminal or a spreadsheet, and what may be printed of them."""

import unicodedata

CRAFTED = [
    "\x1b[31mred\x1b[0m",
    "\x1b]0;owned\x07",
    "\x1b]8;;https://evil.example\x1b\\bank\x1b]8;;\x1b\\",
    "\x1b]52;c;ZXZpbA==\x07",
    "\x1bP+q544e\x1b\\",
    "\x9b31m\x85\x90q\x9c",
    "\u202egpj.exe\u202c\u2066a\u2069",
    "a\u200bb\u2060\ufeffc\u2028d\u2029e",
    "fine\rforged\tcolumn\nline\x00\x08\x7f\x0c\x0b",
    "[/] [bold]x[/bold] [link=https://evil.example]y[/link] [red]",
    "=cmd|' /C calc'!A0",
    '=HYPERLINK("https://evil.example")',
    "+1+1",
    "-2+3+cmd|' /C calc'!A0",
    "@SUM(1+1)",
    "\t=1+1",
    "\r=1+1",
    "\n=1+1",
    "＝1+1",
    "＋1",
    "\x00=1+1",
    '"=1+1',
    "';=1+1",
    ",=1+1",
    "%s %n {0} $(reboot) `reboot` ../../etc/passwd",
    "\U000e0041\ue000\U0010ffff",
]
_FORBIDDEN = {"Cc", "Cf", "Co", "Cn", "Cs", "Zl", "Zp"}


def assert_harmless(text, allowed="\n\t"):
    """Assert that a text has none of the characters that a terminal may obey."""
    bad = {c for c in set(text) if unicodedata.category(c) in _FORBIDDEN} - set(allowed)
    assert not bad
