"""Who gets in: the Host and the Origin of requests, tokens, and sessions of a browser."""

import hashlib
import logging
import os
import re
import secrets
import stat
import time
from base64 import b64decode
from collections.abc import Iterable, Mapping
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

import fpdb
from fpdb.integrations.server.messages import HttpReply, ProblemError

Role = Literal["read", "write"]

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
# Paths that load balancers and browsers request without a token.
OPEN_TO_ALL = frozenset({"/healthz", "/favicon.ico"})
_READING = frozenset({"GET", "HEAD"})
_TOKEN_LINE = re.compile(r"(read|write)\s+(\S{16,})")
_LARGEST_SECRET = 1 << 20
_LOG_SECONDS = 10
logger = logging.getLogger(__name__)


class Visitor(NamedTuple):
    """Who sent a request: what it may do, and the session of a browser, if there is one."""

    role: Role
    session: str = ""


_ANYBODY = Visitor("write")


class Access:
    """Decides who may do what.

    Without `tokens` and with `required` false, everybody who reaches the server may do everything:
    so it is for loopback and Unix sockets. `hosts` are the names by which a server without tokens
    may be called, so that a web page that lets its own name lead to loopback doesn't get in; None
    is any name. If sessions of a browser alone get in, everything is below the path `base`, which
    nobody can guess: cookies know no ports, so others in the same browser have other paths.
    """

    def __init__(
        self,
        tokens: Iterable[tuple[Role, str]] = (),
        *,
        required: bool = False,
        hosts: Iterable[str] | None = LOOPBACK,
    ) -> None:
        self.replace_tokens(tokens)
        # Without tokens, sessions alone get in, and no password would.
        self._by_session = required and not self._tokens
        self.required = required or bool(self._tokens)
        self._sessions: dict[bytes, Role] = {}
        self.hosts = None if hosts is None or self.required else frozenset(hosts)
        self._invitations: dict[bytes, Role] = {}
        name = secrets.token_urlsafe(16) if self._by_session else ""
        self.base = f"/{name}" if name else ""
        self._cookie = f"fpdb_{name}" if name else "fpdb_session"
        self._session_in = re.compile(rf"(?:^|;\s*){self._cookie}=([\w-]+)".encode())
        self._log_from = 0.0

    def replace_tokens(self, tokens: Iterable[tuple[Role, str]]) -> None:
        """Let in who has these tokens, from now on; sessions of browsers go on."""
        self._tokens: dict[bytes, Role] = {_digest(token): role for role, token in tokens}

    def invite(self, role: Role) -> str:
        """Return a token that begins the session of a browser, once, as `?token=…` of a page."""
        token = secrets.token_urlsafe(32)
        self._invitations[_digest(token)] = role
        return token

    def welcome(self, scope: Mapping[str, Any]) -> HttpReply | None:
        """Begin the session of a browser that comes with an invitation, or return None."""
        if not self._invitations:
            return None
        query = parse_qsl(scope["query_string"].decode("latin-1"))
        role = self._invitations.get(_digest(dict(query).get("token", "")))
        if role is None:
            return None
        self._invitations.clear()
        session = secrets.token_urlsafe(32)
        self._sessions[_digest(session)] = role
        fields = urlencode([pair for pair in query if pair[0] != "token"])
        cookie = f"{self._cookie}={session}; HttpOnly; Path={self.base}/; SameSite=strict"
        headers = {
            "Location": scope["path"] + (f"?{fields}" if fields else ""),
            "Set-Cookie": cookie + ("; Secure" if scope["scheme"] == "https" else ""),
        }
        return HttpReply(status=HTTPStatus.SEE_OTHER, headers=headers)

    def admit(
        self, method: str, path: str, headers: Mapping[bytes, bytes], address: str = ""
    ) -> Visitor:
        """Return who sent a request; raise ProblemError if nobody who may."""
        host = headers.get(b"host", b"").decode("latin-1")
        if self.hosts is not None and _name_of(host) not in self.hosts:
            raise ProblemError(
                HTTPStatus.FORBIDDEN,
                f"found the Host {host[:80]!r}, expected one of {', '.join(sorted(self.hosts))}",
                hint="call the server by its address, or let it require tokens",
            )
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin and method not in _READING and origin.partition("://")[2] != host:
            raise ProblemError(
                HTTPStatus.FORBIDDEN,
                f"found the Origin {origin[:80]!r}, expected none or that of this server",
                hint="pages of other sites may not use the server; a proxy has to pass on Host",
            )
        if not self.required or path in OPEN_TO_ALL:
            return _ANYBODY
        token, session = self._token_in(headers)
        digest = _digest(token)
        role = self._tokens.get(digest) or self._sessions.get(digest)
        if role is not None:
            return Visitor(role, session)
        if token:
            self._log_refusal(address)
        detail = "found an unknown token" if token else "found no token"
        hint = "send a token of the token file, as `Authorization: Bearer TOKEN`"
        ways = 'Basic realm="fpdb", charset="UTF-8", Bearer'
        if self._by_session:
            detail, hint = "This address works once", "end the explorer and start it again"
            ways = "Bearer"
        raise ProblemError(
            HTTPStatus.UNAUTHORIZED, detail, hint=hint, headers={"WWW-Authenticate": ways}
        )

    def _token_in(self, headers: Mapping[bytes, bytes]) -> tuple[str, str]:
        """Return the token of a request, and whether it is that of a browser's session."""
        scheme, _, value = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() == b"bearer":
            return value.strip().decode("latin-1"), ""
        if scheme.lower() == b"basic":  # what a browser sends, with the token as the password
            try:
                return b64decode(value).partition(b":")[2].decode("latin-1"), ""
            except ValueError:
                return "", ""
        cookie = self._session_in.search(headers.get(b"cookie", b""))
        session = cookie[1].decode() if cookie else ""
        return session, session

    def _log_refusal(self, address: str) -> None:
        """Log that a token was refused; of many within seconds only the first."""
        if (now := time.monotonic()) >= self._log_from:
            self._log_from = now + _LOG_SECONDS
            logger.warning("refused an unknown token from %s", address or "a Unix socket")


def read_tokens(path: Path) -> list[tuple[Role, str]]:
    """Return the tokens in a file, which nobody else may read: lines of `read` or `write TOKEN`."""
    lines = read_secret(path, "the tokens").splitlines()
    tokens: list[tuple[Role, str]] = []
    hint = 'echo "write $(openssl rand -hex 32)" makes a line'
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.startswith("#"):
            match = _TOKEN_LINE.fullmatch(line.strip())
            if not match:
                raise fpdb.InputError(
                    f"{path}, line {number}: expected `read` or `write`, and a token of at least "
                    "16 characters",
                    hint=hint,
                )
            tokens.append(("write" if match[1] == "write" else "read", match[2]))
    if not tokens:
        raise fpdb.InputError(f"found no token in {path}", hint=hint)
    return tokens


def read_secret(path: Path, what: str) -> str:
    """Return what is in a file that its owner alone may read, or a group that is trusted as well.

    Trusted are the group root and the groups of this process: credentials of systemd and secrets
    of Kubernetes have such a group.
    """
    try:
        # Opening a pipe must not wait for a writer that never comes.
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(number, encoding="utf-8") as file:
            about = os.fstat(number)
            regular = stat.S_ISREG(about.st_mode)
            content = file.read(_LARGEST_SECRET + 1) if regular else ""
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise fpdb.InputError(
            f"{what} in {path} can't be read: {why}", hint="name a file that you may read"
        ) from None
    if not regular or len(content) > _LARGEST_SECRET:
        raise fpdb.InputError(
            f"{path} isn't a regular file of up to {_LARGEST_SECRET:,} characters",
            hint=f"write {what} to a file",
        )
    mode = stat.S_IMODE(about.st_mode)
    trusted = about.st_gid in {0, os.getegid(), *os.getgroups()}
    if mode & (0o037 if trusted else 0o077):
        raise fpdb.InputError(
            f"found the mode {mode:o} of {path}, expected 600: others may read {what}",
            hint=f"chmod 600 {path}",
        )
    return content


def _digest(token: str) -> bytes:
    """Return by what a token is looked up, so that the time says nothing of the token itself."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


@lru_cache
def _name_of(host: str) -> str:
    """Return the name in a Host header, without the port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
