"""Write small archives for tests: WARC and ARC, sound and broken."""

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


def arc(uri, block=None, *, media="text/html", length=None):
    block = http() if block is None else block
    size = len(block) if length is None else length
    return f"{uri} 192.0.2.1 20260301120000 {media} {size}\n".encode() + block + b"\n"


ARC_HEAD = (
    b"filedesc://a.arc 0.0.0.0 20260301120000 text/plain 75\n"
    b"1 0 Made by tests\nURL IP-address Archive-date Content-type Archive-length\n\n\n"
)


def packed(*records):
    return b"".join(map(gzip.compress, records))
