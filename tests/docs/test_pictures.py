"""The pictures of the documentation: the script that takes them finds its way on the pages."""

import subprocess
import sys

import pytest
from _environment import ROOT, environ, shared_path

pytestmark = [pytest.mark.browser, pytest.mark.full, pytest.mark.process]

SCRIPT = ROOT / "docs" / "take_pictures.py"


def test_pictures_are_taken(tmp_path):
    command = [sys.executable, str(SCRIPT), "--folder", str(tmp_path)]
    subprocess.run(command, check=True, timeout=300, env=environ(PYTHONPATH=shared_path()))
    for name in ("report.png", "explore.png"):
        taken = (tmp_path / name).read_bytes()
        assert taken.startswith(b"\x89PNG")
        width, height = (int.from_bytes(taken[at : at + 4]) for at in (16, 20))
        assert width == 1200
        assert 600 < height < 1600
