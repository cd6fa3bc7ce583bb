"""Who gets in: the Host and the Origin of requests, tokens, and sessions of a browser."""

import hashlib
import hmac
import os
import re
import secrets
import stat
from base64 import b64decode
from collections.abc import Iterable, Mapping
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

import fpdb
from fpdb.integrations.server.replies import HttpReply, ProblemError

Role = Literal["read", "write"]

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
# Paths that load balancers and browsers request without a token.
_OPEN_TO_ALL = frozenset({"/healthz", "/favicon.ico"})
_READING = frozenset({"GET", "HEAD"})
_TOKEN_LINE = re.compile(r"(read|write)\s+(\S{16,})")
_COOKIE = re.compile(rb"(?:^|;\s*)fpdb_session=([\w-]+)")


class Visitor(NamedTuple):
    """Who sent a request: what it may do, and the session of a browser, if there is one."""

    role: Role
    session: str = ""


class Access:
    """Decides who may do what.

    Without `tokens` and with `required` false, everybody who reaches the server may do everything:
    so it is for loopback and Unix sockets. `hosts` are the names by which a server without tokens
    may be called, so that a web page that lets its own name lead to loopback doesn't get in; None
    is any name.
    """

    def __init__(
        self,
        tokens: Iterable[tuple[Role, str]] = (),
        *,
        required: bool = False,
        hosts: Iterable[str] | None = LOOPBACK,
    ) -> None:
        self._roles: dict[bytes, Role] = {_digest(token): role for role, token in tokens}
        # Without tokens, sessions alone get in, and no password would.
        self._by_session = required and not self._roles
        self.required = required or bool(self._roles)
        self.hosts = None if hosts is None or self.required else frozenset(hosts)
        self._invitations: dict[bytes, Role] = {}

    def invite(self, role: Role) -> str:
        """Return a token that a browser may use once, as `/?token=…`, to begin a session."""
        token = secrets.token_urlsafe(32)
        self._invitations[_digest(token)] = role
        return token

    def welcome(self, scope: Mapping[str, Any]) -> HttpReply | None:
        """Begin the session of a browser that comes with an invitation, or return None."""
        if not self._invitations or scope["method"] != "GET":
            return None
        query = parse_qsl(scope["query_string"].decode("latin-1"))
        role = _role_of(self._invitations, dict(query).get("token", ""))
        if role is None:
            return None
        self._invitations.clear()
        session = secrets.token_urlsafe(32)
        self._roles[_digest(session)] = role
        rest = urlencode([each for each in query if each[0] != "token"])
        cookie = f"fpdb_session={session}; HttpOnly; Path=/; SameSite=strict"
        headers = {
            "Location": scope["path"] + (f"?{rest}" if rest else ""),
            "Set-Cookie": cookie + ("; Secure" if scope["scheme"] == "https" else ""),
        }
        return HttpReply(status=HTTPStatus.SEE_OTHER, headers=headers)

    def admit(self, method: str, path: str, headers: Mapping[bytes, bytes]) -> Visitor:
        """Return who sent a request; raise ProblemError if nobody who may."""
        host = headers.get(b"host", b"").decode("latin-1")
        if self.hosts is not None and _name_of(host) not in self.hosts:
            raise ProblemError(
                HTTPStatus.FORBIDDEN,
                f"found the Host {host[:80]!r}, expected one of {', '.join(sorted(self.hosts))}",
                hint="call the server by its address, or start it with --token-file",
            )
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin and method not in _READING and origin.partition("://")[2] != host:
            raise ProblemError(
                HTTPStatus.FORBIDDEN,
                f"found the Origin {origin[:80]!r}, expected none or that of this server",
                hint="pages of other sites may not use the server; a proxy has to pass on Host",
            )
        if not self.required or path in _OPEN_TO_ALL:
            return Visitor("write")
        token, session = _token_in(headers)
        role = _role_of(self._roles, token) if token else None
        if role is None and self._by_session:
            raise ProblemError(
                HTTPStatus.UNAUTHORIZED,
                "This address works once",
                hint="End fpdb explore and start it again",
                headers={"WWW-Authenticate": "Bearer"},
            )
        if role is None:
            raise ProblemError(
                HTTPStatus.UNAUTHORIZED,
                "found an unknown token" if token else "found no token",
                hint="send a token of the token file, as `Authorization: Bearer TOKEN`",
                headers={"WWW-Authenticate": 'Basic realm="fpdb", charset="UTF-8", Bearer'},
            )
        return Visitor(role, session)


def read_tokens(path: Path) -> list[tuple[Role, str]]:
    """Return the tokens in a file, which nobody else may read: lines of `read` or `write TOKEN`."""
    try:
        with path.open(encoding="utf-8") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise fpdb.InputError(
            f"the tokens in {path} can't be read: {error}", hint="name a file that you may read"
        ) from None
    if mode & 0o077:
        raise fpdb.InputError(
            f"found the mode {mode:o} of {path}, expected 600: others may read the tokens",
            hint=f"chmod 600 {path}",
        )
    tokens: list[tuple[Role, str]] = []
    hint = 'echo "write $(openssl rand -hex 32)" makes a line'
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.startswith("#"):
            found = _TOKEN_LINE.fullmatch(line.strip())
            if not found:
                raise fpdb.InputError(
                    f"{path}, line {number}: expected `read` or `write`, and a token of at least "
                    "16 characters",
                    hint=hint,
                )
            tokens.append(("write" if found[1] == "write" else "read", found[2]))
    if not tokens:
        raise fpdb.InputError(f"found no token in {path}", hint=hint)
    return tokens


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _role_of(roles: dict[bytes, Role], token: str) -> Role | None:
    """Return the role of a token, in a time that doesn't depend on how much of it is right."""
    digest = _digest(token)
    found = [role for known, role in roles.items() if hmac.compare_digest(known, digest)]
    return found[0] if found else None


@lru_cache
def _name_of(host: str) -> str:
    """Return the name in a Host header, without the port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _token_in(headers: Mapping[bytes, bytes]) -> tuple[str, str]:
    """Return the token of a request, and whether it is that of a browser's session."""
    scheme, _, value = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() == b"bearer":
        return value.strip().decode("latin-1"), ""
    if scheme.lower() == b"basic":  # what a browser sends, with the token as the password
        try:
            return b64decode(value).partition(b":")[2].decode("latin-1"), ""
        except ValueError:
            return "", ""
    cookie = _COOKIE.search(headers.get(b"cookie", b""))
    session = cookie[1].decode() if cookie else ""
    return session, session
