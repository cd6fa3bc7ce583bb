"""Check documents by a server, as if its database were here; while it is away, wait for it."""

import http.client
import json
import logging
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

import fpdb
from fpdb.integrations.batcher import Outcome

Answer = TypeVar("Answer")
logger = logging.getLogger(__name__)

# For the answer to one request.
_SECONDS = 60.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 30.0
_TRIES = 6
_ADDRESSES = "http://HOST:PORT, https://HOST:PORT or unix:PATH"


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class _AwayError(Exception):
    """The server can't answer now."""


class Remote:
    """The database of a server, for one thread at a time.

    What was sent and has no answer is sent again: stored twice, it is `unchanged`. A server that is
    away is tried again after pauses that grow, until it answers, or if `patient` is false for about
    eight seconds.
    """

    def __init__(self, address: str, token: str = "", *, patient: bool = True) -> None:
        """Ask the server what its keys are; raise OpenError if it doesn't answer."""
        parts = urlsplit(address)
        if parts.scheme == "unix":
            self._connection: http.client.HTTPConnection = _UnixConnection(parts.path, _SECONDS)
        elif parts.scheme in {"http", "https"} and parts.hostname and not parts.path.strip("/"):
            secure = parts.scheme == "https"
            kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
            self._connection = kind(parts.hostname, parts.port, timeout=_SECONDS)
        else:
            raise fpdb.InputError(
                f"found the address {address!r}, expected {_ADDRESSES}",
                hint="`fpdb serve` prints its address",
            )
        self._address = address
        self._patient = patient
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            stats = json.loads(self._call("GET", "/v1/stats").read())
        except (_AwayError, OSError, http.client.HTTPException, ValueError) as error:
            self._connection.close()
            raise fpdb.OpenError(
                f"the server {address} doesn't answer: {error}",
                hint="start `fpdb serve` first, or correct the address",
            ) from None
        self.key_type: str = stats["keys"]

    def add(self, documents: Sequence[fpdb.Document]) -> list[Outcome]:
        """Add documents, except near-duplicates; return the outcomes, or an error for each."""
        outcomes: list[Outcome] = []
        try:
            self._patiently(
                lambda: self._send(documents[len(outcomes) :], outcomes), lambda: len(outcomes)
            )
        except fpdb.FpdbError as error:  # it was refused, and so would it be again
            outcomes += [error] * (len(documents) - len(outcomes))
        return outcomes

    def passages(self, text: str, *, least: float, limit: int) -> fpdb.models.PartMatches:
        """Find the stored documents with passages of a text, as those of a database."""
        asked = {"text": text, "passages": True, "least": least, "limit": limit}
        body = json.dumps(asked).encode()
        answer = self._patiently(lambda: json.loads(self._call("POST", "/v1/query", body).read()))
        parts = fpdb.models.PartMatches(
            fpdb.models.PartMatch(
                row["key"], 0, row["words"], row["share"], row["other_share"], row.get("meta")
            )
            for row in answer["matches"]
        )
        parts.complete = answer.get("complete", True)
        parts.boilerplate = answer.get("boilerplate", 0)
        return parts

    def _patiently(self, ask: Callable[[], Answer], count: Callable[[], int] = int) -> Answer:
        """Ask until the whole answer has come; raise OpenError if the server is away too long.

        `count` returns how much of it has come.
        """
        tries, before, warned = 0, count(), False
        while True:
            try:
                answer = ask()
            except fpdb.FpdbError:
                raise
            except (_AwayError, OSError, http.client.HTTPException, ValueError) as error:
                self._connection.close()
                tries = 0 if count() > before else tries + 1
                before = count()
                away = fpdb.OpenError(
                    f"the server {self._address} doesn't answer: {error}",
                    hint="is `fpdb serve` running?",
                )
                if not self._patient and tries >= _TRIES:
                    raise away from None
                if tries == 1 and isinstance(error, ConnectionError):
                    continue  # a server ends connections that nothing is sent on
                if not warned:
                    logger.warning("Waiting for the server: %s", away)
                    warned = True
                time.sleep(min(_FIRST_PAUSE * 2**tries, _LONGEST_PAUSE))
            else:
                if warned:
                    logger.info("The server %s answers again", self._address)
                return answer

    def close(self) -> None:
        self._connection.close()

    def _send(self, documents: Sequence[fpdb.Document], outcomes: list[Outcome]) -> None:
        """Send documents, and append the outcomes of those that are answered."""
        body = b"\n".join(map(_line, documents))
        response = self._call("POST", "/v1/check", body, lines=True)
        for _ in documents:
            line = response.readline()
            if not line:
                raise _AwayError("the connection ended")
            answer: dict[str, Any] = json.loads(line)
            if answer["status"] == "failed":
                raise _AwayError(answer.get("error", ""))
            outcomes.append(_outcome(answer))
        response.read()

    def _call(
        self, method: str, path: str, body: bytes | None = None, *, lines: bool = False
    ) -> http.client.HTTPResponse:
        headers = {"Content-Type": "application/x-ndjson"} if lines else {}
        self._connection.request(method, path, body, self._headers | headers)
        response = self._connection.getresponse()
        if response.status == http.client.OK:
            return response
        problem = response.read().decode("utf-8", "replace")
        if response.status >= http.client.INTERNAL_SERVER_ERROR:
            raise _AwayError(problem)
        raise fpdb.AccessError(
            f"the server {self._address} refuses: {problem:.300}",
            hint="the address, the token and the versions of both sides should fit",
        )


def _line(document: fpdb.Document) -> bytes:
    """Return what asks the server to store a document: its ready fingerprint, or its text."""
    number = document.fingerprint
    content = {"text": document.text} if number is None else {"fingerprint": f"{number:x}"}
    return json.dumps({"key": document.key, "meta": document.meta, **content}).encode()


def _outcome(answer: dict[str, Any]) -> Outcome:
    """Return what became of a document, as the server's line says."""
    if answer["status"] == "error":
        return fpdb.InputError(answer["error"], hint=answer.get("hint", ""))
    matches = fpdb.Matches()
    matches.complete = answer.get("complete", True)
    if "duplicate_of" in answer:
        near = answer["duplicate_of"], 0, answer["distance"], answer.get("similarity"), None
        matches.append(fpdb.Match(*near))
    group = answer.get("group")
    return fpdb.Added(answer["key"], None, answer["status"], matches, group=group)
