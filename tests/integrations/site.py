"""A small web site on loopback, as crawlers meet them: mirrors, copies with session ids, noise."""

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

ARTICLES = 8


def article(number):
    words = " ".join(f"word{place}of{number}" for place in range(2000))
    return f"Article {number} says {words} and that is all."


def body(path, query):
    """Give the text of a page, or None if there is no such page."""
    match path.strip("/").split("/"):
        case ["article", number]:
            return article(int(number))
        case ["mirror", number]:  # the same, on another path
            return article(int(number))
        case ["print", number]:  # nearly the same
            return article(int(number)).replace("that is all", "that was all")
        case ["session", number]:
            session = parse_qs(query).get("sid", [""])[0]
            return f"{article(int(number))} Session {session}"
        case ["empty"]:
            return ""
        case ["tiny"] | ["wee"]:
            return "Not much here"
        case ["huge"]:
            return " ".join(f"huge{place}" for place in range(100_000))
    return None


def links(articles):
    numbers = range(articles)
    return [
        *(f"/article/{n}" for n in numbers),
        *(f"/mirror/{n}" for n in numbers),
        *(f"/print/{n}" for n in numbers),
        *(f"/session/{n}?sid={sid}" for n in (0, 1) for sid in ("a1f", "b2e", "c3d")),
        "/empty",
        "/tiny",
        "/wee",
        "/huge",
    ]


class Site:
    """The site, served for as long as a `with` block lasts."""

    def __init__(self, articles=ARTICLES, delay=0.0):
        self.links = links(articles)
        self.requests = 0
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                parts = urlsplit(self.path)
                if parts.path == "/":
                    text = "".join(f'<a href="{link}">x</a>' for link in site.links)
                else:
                    time.sleep(delay)
                    site.requests += 1
                    text = body(parts.path, parts.query)
                self.send_response(404 if text is None else 200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.end_headers()
                self.wfile.write(f"<html><body>{text or ''}</body></html>".encode())

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"

    def __enter__(self):
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
