"""Serve a database to programs in any language and on any host."""

import contextlib
from pathlib import Path
from typing import Annotated

import typer

import fpdb
from fpdb.cli import render
from fpdb.cli.create import open_or_create
from fpdb.cli.explore import TextsOption
from fpdb.cli.options import (
    AnyRecipeOption,
    DatabaseArgument,
    QuietOption,
    SimilarityOption,
    choose_recipe,
    require,
)


def serve(
    path: DatabaseArgument,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="The address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option("--port", metavar="N", min=0, max=65535, help="The port; 0: any free one."),
    ] = 7373,
    unix: Annotated[
        Path | None, typer.Option("--unix", metavar="PATH", help="Listen on a Unix socket.")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="Tokens of clients: lines of `read TOKEN` or `write TOKEN`; mode 600.",
        ),
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="FILE", help="Certificate for HTTPS, PEM.")
    ] = None,
    private_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="The key of the certificate.")
    ] = None,
    readonly: Annotated[bool, typer.Option("--readonly", help="Only answer queries.")] = False,
    explorer: Annotated[
        bool, typer.Option("--explorer", help="Also serve pages to look at it, at /explore/.")
    ] = False,
    texts: TextsOption = None,
    similarity: SimilarityOption = None,
    recipe: AnyRecipeOption = None,
    quiet: QuietOption = False,
) -> None:
    """Serve crawlers over HTTP.

    Example:
      fpdb serve crawl.fpdb
      fpdb serve crawl.fpdb --host 0.0.0.0 --token-file tokens
      fpdb serve crawl.fpdb --unix /run/fpdb.sock

    Answers once a document is durable. /docs describes the calls. SIGTERM
    ends the server after what was accepted is answered.
    """
    require((certificate is None) == (private_key is None), "--tls-cert needs --tls-key")
    require(explorer or not texts, "--texts are for the pages of --explorer")
    from fpdb.integrations import server  # it takes long to import, and is an extra

    access = server.Access(server.read_tokens(token_file) if token_file else ())
    if readonly:
        chosen = None if recipe is None else choose_recipe(recipe)
        database = fpdb.open(path, readonly=True, recipe=chosen)
    else:
        database = open_or_create(path, recipe, quiet=quiet)

    def announce(url: str) -> None:
        if not quiet:
            render.note(f"serving {path} at {url}")

    render.leave_if_interrupted("answered documents are stored")
    pages = fpdb.Explorer(database, texts=texts or ()) if explorer else None
    with database, pages or contextlib.nullcontext():
        server.serve(
            server.app(database, access=access, similarity=similarity, explorer=pages),
            host=host,
            port=port,
            unix=unix,
            certificate=certificate,
            private_key=private_key,
            on_start=announce,
        )
