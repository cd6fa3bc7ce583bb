"""The demo: it runs, and its answers are those to questions of users."""

import importlib.util
import os
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "tools"


def test_the_demo_answers_what_users_ask(monkeypatch, capfd, warm_commands):
    monkeypatch.syspath_prepend(TOOLS)
    loader = SourceFileLoader("demo", str(TOOLS / "demo"))
    demo = importlib.util.module_from_spec(importlib.util.spec_from_loader("demo", loader))
    loader.exec_module(demo)
    path = f"{warm_commands}{os.pathsep}{os.environ['PATH']}"
    monkeypatch.setattr(demo._environment, "ensure", lambda: None)
    monkeypatch.setattr(demo._environment, "environ", lambda: {**os.environ, "PATH": path})
    assert demo.main() == 0
    shown = capfd.readouterr()
    assert "https://b.example/harbour-reprint\thttps://a.example/harbour\t0.95\n" in shown.out
    assert "no problems\n" in shown.err
    assert "read 6, kept 4, removed 2 (33.3%)" in shown.err
    assert "report.html: 2 groups" in shown.err.splitlines()[-1]
    questions = [line for line in shown.out.splitlines() if line.startswith("# ")]
    assert all("?" in line for line in questions)
    for measure in ("Jaccard", "cosine", "verdict", "bits"):
        assert measure not in shown.out
