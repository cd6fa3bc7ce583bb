"""Serve a database to programs in any language and on any host."""

import contextlib
from pathlib import Path

import fpdb
from fpdb.cli import options, render
from fpdb.cli.maintain import open_or_create
from fpdb.cli.options import option, require, takes


def _require_host(host: str) -> str:
    try:
        possible = host.isprintable() and bool(host.encode("idna"))
    except UnicodeError:
        possible = False
    require(possible, f"found the host {host!r:.80}, expected a name or an address")
    return host


@takes(
    host=option("--host ADDRESS", "The address to listen on.", callback=_require_host),
    unix=option("--unix PATH", "Listen on a Unix socket."),
    token_file=option("--token-file FILE", "Lines of `read TOKEN` or `write TOKEN`; mode 600."),
    certificate=option("--tls-cert FILE", "Certificate for HTTPS, PEM."),
    private_key=option("--tls-key FILE", "The key of the certificate."),
    readonly=option("--readonly", "Only answer queries."),
    explorer=option("--explorer", "Also serve pages to explore it, at /explore/."),
    access_log=option("--access-log", "Print a line of JSON for each request."),
    texts=options.TEXTS,
)
def serve(
    path: Path,
    host: str = "127.0.0.1",
    port: int = 7373,
    unix: Path | None = None,
    token_file: Path | None = None,
    certificate: Path | None = None,
    private_key: Path | None = None,
    readonly: bool = False,
    explorer: bool = False,
    access_log: bool = False,
    texts: list[str] | None = None,
    similarity: float | None = None,
    recipe: fpdb.Recipe | None = None,
) -> None:
    """Serve crawlers over HTTP.

    Example:
      fpdb serve crawl.fpdb --host 0.0.0.0 --token-file tokens

    Answers once a document is durable. /openapi.json describes the calls. SIGTERM
    ends the server once all requests are answered; SIGHUP reads the tokens
    again.
    """
    require((certificate is None) == (private_key is None), "--tls-cert needs --tls-key")
    require(explorer or not texts, "--texts are for the pages of --explorer")
    from fpdb.integrations import server  # it takes long to import, and is an extra

    access = server.Access(server.read_tokens(token_file) if token_file else ())

    def reload() -> None:
        if token_file:
            access.replace_tokens(server.read_tokens(token_file))
            render.summarise(None, f"read the tokens in {token_file} again")

    opened = (
        fpdb.open(path, readonly=True, recipe=recipe)
        if readonly
        else open_or_create(path, recipe, similarity)
    )
    with opened as database, contextlib.ExitStack() as stack:
        render.now.left = "answered documents are stored"
        pages = None
        if explorer:
            pages = stack.enter_context(fpdb.Explorer(database, texts=texts or ()))
        render.show_log(server.__name__)
        if access_log:
            render.print_log(server.access_log.name)
        server.serve(
            server.app(database, access=access, similarity=similarity, explorer=pages),
            host=host,
            port=port,
            unix=unix,
            certificate=certificate,
            private_key=private_key,
            on_start=lambda url: render.summarise(None, f"serving {path} at {url}"),
            on_error=render.fail,
            on_reload=reload,
        )
    render.summarise(None, "ended: answered documents are stored")
