"""Explore a database in the browser."""

import os
import sys
import webbrowser
from pathlib import Path

import fpdb
from fpdb.cli import options, render
from fpdb.cli.options import option, takes
from fpdb.scratch import scratch_folder

_LEADING = "explore.html"


@takes(
    f"{options.READ} {options.SHOWN}",
    reading=fpdb.Reading,
    texts=options.TEXTS,
    write=option("--write", "Allow decisions: deletions and verdicts."),
)
def explore(
    path: Path,
    reading: fpdb.Reading,
    texts: list[str] | None = None,
    write: bool = False,
    port: int = 0,
) -> None:
    """Explore a database in the browser.

    Example:
      fpdb explore crawl.fpdb --texts pages.jsonl --write

    It listens on this host only; the address works once. Ctrl-C ends it. What
    is deleted is first written to a file that fpdb load takes.
    """
    from fpdb.integrations import server  # it takes long to import, and is an extra

    access = server.Access(required=True)

    def announce(url: str) -> None:
        token = access.invite("write" if write else "read")
        address = f"{url}{access.base}/explore/?token={token}"
        render.row(address)
        render.flush()
        # Without a desktop, a browser in the terminal would be opened.
        if sys.platform == "darwin" or os.environ.get("DISPLAY", os.environ.get("WAYLAND_DISPLAY")):
            # Arguments of a process are read by all users of the machine, this file by its owner.
            with folder.file(_LEADING) as page:
                page.write(f'<meta http-equiv="refresh" content="0; url={address}">\n'.encode())
            webbrowser.open((folder.path / _LEADING).as_uri())
        render.summarise(None, "Ctrl-C ends it")

    with (
        scratch_folder() as folder,
        fpdb.open(path, readonly=not write) as database,
        fpdb.Explorer(
            database,
            texts=texts or (),
            reading=reading,
            write=write,
        ) as pages,
    ):
        application = server.app(database, access=access, explorer=pages)
        render.show_log(server.__name__)
        server.serve(application, port=port, on_start=announce)
