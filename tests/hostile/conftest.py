"""What the tests of hostile input share with those of the command line."""

import importlib.util
from pathlib import Path

_path = Path(__file__).parents[1] / "cli" / "conftest.py"
_spec = importlib.util.spec_from_file_location("fpdb_cli_conftest", _path)
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
run = _module.run
