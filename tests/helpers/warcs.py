"""Write small archives for tests: WARC, intact and broken."""

import gzip

WORDS = (
    "Red kites nest above the quarry again: wardens counted {} pairs in April, which is more than "
    "in any other year since the mill was closed and the old road to the village was given up."
)


def page(number="eleven", title="Kites"):
    text = WORDS.format(number)
    return f"<html><head><title>{title}</title></head><body><p>{text}</p></body></html>"


def http(body=None, *, status="200 OK", media="text/html; charset=utf-8", headers=()):
    body = page() if body is None else body
    body = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status}", *([f"Content-Type: {media}"] if media else []), *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def chunked(body, size=50):
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def record(uri="http://a.example/", block=None, *, kind="response", length=None, headers=()):
    block = http() if block is None else block
    media = "application/http; msgtype=response" if kind == "response" else "text/plain"
    lines = ["WARC/1.0", f"WARC-Type: {kind}"]
    lines += [f"WARC-Target-URI: {uri}"] if uri else []
    lines += ["WARC-Date: 2026-03-01T12:00:00Z"]
    if not any(line.startswith("Content-Type:") for line in headers):
        lines.append(f"Content-Type: {media}")
    lines += [f"Content-Length: {len(block) if length is None else length}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + block + b"\r\n\r\n"


def packed(*records):
    return b"".join(map(gzip.compress, records))
