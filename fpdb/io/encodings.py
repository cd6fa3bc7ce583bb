"""Which encoding a file of text has, by evidence, and its bytes as UTF-8, which readers take."""

import codecs
import contextlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from fpdb.errors import InputError

UTF8 = "utf-8"
# ISO-2022-JP has no bytes above ASCII; escapes begin its Japanese.
_JIS = "iso2022_jp_ext"
_ESCAPE = re.compile(rb"\x1b\$(?:[@B]|\(D)")
# Bytes by which an encoding is guessed, and the first of these, which a detector gets.
_SAMPLE, _DETECTED = 1 << 20, 1 << 18
# What is detected with certainty, of texts that have enough other letters than Latin ones.
_DETECTABLE = frozenset(
    """
    gb18030 big5hkscs cp932 euc_jp cp949 koi8-u cp1251 cp1253 cp1255 cp1256 cp1258 iso8859-5
    iso8859-7
    """.split()  # noqa: SIM905 - a line for each would hide the rest
)
# The letters beyond ASCII of the languages of each other encoding. In a wrong one, a text has
# letters that no language of it has together.
_ALPHABETS = {
    "cp1252": (
        *("àâæçéèêëîïôœùûüÿ", "äöüßé", "áéíñóúüºª", "àáâãçéêíóôõúüºª", "àèéìîòùºª"),
        *("åäöæøéèôà", "áéëèïíöóüúç", "àçéèíïòóúü", "áâäçéèêëíîïñóôöúü"),
    ),
    "cp1250": (
        *("ąćęłńóśźż", "áčďéěíňóřšťúůýž", "áäčďéíĺľňóôŕšťúýž", "áéíóöőúüű", "ăâîşţ", "ćčđšž"),
    ),
    "cp1254": ("çğıöşüâîû",),
    "cp1257": ("ąčęėįšųūž", "āčēģīķļņšūž", "äõöüšž"),
}
# The share of letters of other languages, in names; how many letters say anything of a language,
# and how many suffice for the detector where several encodings fit.
_FOREIGN, _FEWEST, _ENOUGH = 0.03, 2, 8
# Signs that stand after a letter only in a text that was decoded by a wrong encoding.
_AMID = re.compile(r"[^\W\d_][‚„†‡ˆ‰‹˜ˇ˙˛˝¡¢¤¦¨¬¯±µ¶¸¿×÷\x80-\x9f\u2500-\u25ff]")
# Encodings as browsers call them, and as texts of these were written.
WIDER = {
    "gbk": "gb18030",
    "gb2312": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "euc-kr": "cp949",
    "big5": "big5hkscs",
    "iso-8859-1": "cp1252",
    "latin-1": "cp1252",
    "ascii": "cp1252",
    "us-ascii": "cp1252",
    "iso-2022-jp": _JIS,
    "iso2022_jp": _JIS,
}
# Codecs of Python, but not character sets.
_NO_CHARACTERS = ("idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined")
# Bytes at the end of a sample that may be of no character.
_CUT = 8
# Signs that no text has.
_CONTROL = re.compile("[\0-\x08\x0e-\x1a\x1c-\x1f]")
_HIGH, _PLAIN = re.compile(rb"[\x80-\xff]+"), re.compile("[\0-\x7f]+")
_ASCII = bytes(range(0x80))
# UTF-8 of whose bytes above ASCII this share is bad is another encoding: of pages in UTF-8, .002 to
# .04 was, of others .5 or more.
_BAD = 0.1
# A file of UTF-8 may have records in another encoding, which are bad.
_BAD_IN_FILE = 0.25
# Encodings with characters of several bytes: bytes that fit one of them are hardly another.
_SEVERAL = frozenset(("gb18030", "big5hkscs", "cp932", "euc_jp", "cp949"))
# In UTF-8, this byte says that the next one was no part of a character, which no UTF-8 has.
_MARKED = "fpdb-marked"
_MARK = re.compile("\udcff([\udc80-\udcff])")


def checked_encoding(name: str) -> str:
    """Return Python's name of an encoding of texts, the wider one of several; or raise InputError.

    Of HTML and texts, GBK is GB18030, and Latin-1 is Windows-1252.
    """
    try:
        "".encode(name)  # this refuses codecs that are none of texts
        known = codecs.lookup(WIDER.get(name.lower(), name)).name
        codecs.getincrementaldecoder(known)
    except (LookupError, ValueError):
        known = ""
    if not known or known in _NO_CHARACTERS:
        raise InputError(
            f"found the encoding {name[:40]!r}, expected one that Python knows",
            hint="gb18030, big5, shift_jis, euc_kr, cp1252 or utf-16, for instance",
        )
    return UTF8 if known in ("utf-8-sig", "ascii") else known


def decode(data: bytes, said: Sequence[str] = ()) -> tuple[str, str, bool] | None:
    """Return a text, its encoding, and whether bytes were replaced; or None if none is certain.

    It is the first that decodes the bytes without an error, of the `said` ones, ISO-2022-JP if its
    escapes are there, and UTF-8; or UTF-8 with few errors; or the one that is detected, but not if
    one that is said has few errors too, and each byte of the detected one is a character. The last
    character may be cut.
    """
    escaped = [_JIS] if has_escapes(data) else []
    for name in (*said, *escaped, UTF8):
        with contextlib.suppress(ValueError):
            return codecs.getincrementaldecoder(name)().decode(data), name, False
    text = forced(data, UTF8)
    if few_replaced(text):
        return text, UTF8, True
    detected = likely(data)
    for name in (*_SEVERAL.intersection(detected), *said):
        text = forced(data, name)
        if few_replaced(text):
            return text, name, "\ufffd" in text
    return (forced(data, detected[0]), detected[0], False) if len(detected) == 1 else None


def forced(data: bytes, name: str) -> str:
    """Decode bytes, and make U+FFFD of those that don't fit; the last character may be cut."""
    return codecs.getincrementaldecoder(name)("replace").decode(data)


def few_replaced(text: str) -> bool:
    """Return whether few of the bytes above ASCII from which a text was decoded became U+FFFD."""
    return _bad_share(text) < _BAD


def _bad_share(text: str) -> float:
    bad = text.count("\ufffd")
    if not bad:
        return 0
    # Of each, UTF-8 has three bytes, where one was.
    high = len(text.encode(UTF8, "surrogatepass").translate(None, _ASCII)) - 2 * bad
    return bad / high


def has_escapes(data: bytes) -> bool:
    """Return whether bytes are ASCII with the escapes of ISO-2022-JP."""
    # A single byte is looked for many times as fast as the first sign of the expression.
    return b"\x1b" in data and data.isascii() and _ESCAPE.search(data) is not None


def as_utf8(
    chunks: Iterable[bytes], encoding: str | None, tell: Callable[[Sequence[str]], object]
) -> Iterator[bytes]:
    """Yield the bytes of a file as UTF-8; bytes of no character stay no UTF-8.

    If no encoding is given, it is UTF-8 if the first chunk is that has more than ASCII, or the one
    that is found in a sample from there on. Another one is reported to `tell`, and so are several
    that are likely: then the bytes stay as they are, no UTF-8. Half a character at the end is
    dropped: the file was cut.
    """
    source, begun, name = iter(chunks), False, encoding or ""
    while not name:
        chunk = next(source, None)
        if chunk is None:
            return
        if not begun and (name := is_utf16(chunk)):
            source = chain([chunk], source)
        elif not chunk.isascii():
            if not is_utf8(chunk):
                chunk += _sample(source, _SAMPLE - len(chunk))
            wide = "" if begun else is_utf16(chunk)
            names = [wide] if wide else _encodings_of(chunk)
            if len(names) > 1:
                tell(names)
            name = names[0] if len(names) == 1 else UTF8
            source = chain([chunk], source)
        elif has_escapes(chunk):
            name, source = _JIS, chain([chunk], source)
        else:
            begun = True
            yield chunk
    if name == UTF8:
        yield from source
        return
    if not encoding:
        tell([name])
    errors = "surrogatepass" if name.startswith("utf-16") else _MARKED
    back = errors if errors != _MARKED else "surrogateescape"
    decoder = codecs.getincrementaldecoder(name)(errors)
    for chunk in source:
        yield decoder.decode(chunk).encode(UTF8, back)


def restored(data: bytes, encoding: str) -> bytes:
    """Return bytes of `as_utf8` as they were, or raise UnicodeEncodeError if none were so."""
    if encoding == UTF8:
        return data
    if encoding.startswith("utf-16"):
        name = "utf-16-be" if encoding.endswith("be") else "utf-16-le"
        return data.decode(UTF8, "surrogatepass").encode(name, "surrogatepass")
    text = _MARK.sub(r"\1", data.decode(UTF8, "surrogateescape"))
    return text.encode(encoding, "surrogateescape")


def likely(data: bytes) -> list[str]:
    """Return the encodings that bytes with more than ASCII may have; one alone is certain.

    Texts in which all the likely ones make the same of these bytes have the first.
    """
    from chardetng_py import EncodingDetector  # which hardly any file needs

    first = _HIGH.search(data)
    data = data[max(0, first.start() - 200) if first else 0 :]
    # Half a character at the end, or bytes of none, would exclude the right encoding.
    start = data[: len(data) - min(_CUT, len(data) // 10)]
    seen = min(len(start), _DETECTED)
    detector = EncodingDetector()
    detector.feed(start[:seen], last=False)
    label = detector.guess(tld=None, allow_utf8=False).lower()
    detected = ""
    with contextlib.suppress(LookupError):
        detected = codecs.lookup(WIDER.get(label, label)).name
    names = [detected] if detected in _DETECTABLE else list(_ALPHABETS)
    fitting: dict[str, str] = {}
    for name in names:
        text = _decoded(data, name, len(start))
        if text and text not in fitting.values():
            fitting[name] = text
    written = [name for name, text in fitting.items() if _is_written(text[:seen], name)]
    letters = len(_letters(fitting[written[0]][:seen])) if written else 0
    if letters < _FEWEST and written and detected not in _DETECTABLE:
        return list(fitting)
    return [detected] if letters >= _ENOUGH and detected in written else written


def _decoded(data: bytes, name: str, least: int) -> str:
    """Decode bytes that fit an encoding up to a place; the text is empty if they don't."""
    try:
        text = codecs.getincrementaldecoder(name)().decode(data)
    except UnicodeDecodeError as error:
        if error.start < least:
            return ""
        text = codecs.getincrementaldecoder(name)().decode(data[: error.start])
    return "" if _CONTROL.search(text) else text


def _is_written(text: str, name: str) -> bool:
    """Return whether a text looks written by people, in a language of the encoding."""
    if name in _SEVERAL:
        return True
    if _AMID.search(text):
        return False
    letters = Counter(_letters(text))
    most = _FOREIGN * letters.total()
    return name not in _ALPHABETS or any(
        sum(count for letter, count in letters.items() if letter not in alphabet) <= most
        for alphabet in _ALPHABETS[name]
    )


def _letters(text: str) -> str:
    return "".join(filter(str.isalpha, _PLAIN.sub("", text.lower())))


def _encodings_of(sample: bytes) -> list[str]:
    """Return the encodings that a sample may have; none if it has bytes that no text has."""
    if b"\0" in sample or sample.startswith(codecs.BOM_UTF8) or is_utf8(sample):
        return [UTF8]
    return [UTF8] if _bad_share(forced(sample, UTF8)) < _BAD_IN_FILE else likely(sample)


def _sample(chunks: Iterator[bytes], size: int) -> bytes:
    held: list[bytes] = []
    while size > 0 and (chunk := next(chunks, None)) is not None:
        held.append(chunk)
        size -= len(chunk)
    return b"".join(held)


def is_utf8(data: bytes) -> bool:
    """Return whether bytes are UTF-8; they may end in half a character."""
    try:
        codecs.getincrementaldecoder(UTF8)().decode(data)
    except ValueError:
        return False
    return True


def is_utf16(first: bytes) -> str:
    """Return the kind of UTF-16 in which a file begins, by its mark or NULs; empty if in none."""
    for mark, name in ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")):
        if first.startswith(mark):
            return name
    head = first[:1024]
    # A stray NUL makes no UTF-16: of that, every second byte is one, or few are as in other texts.
    plain = sum(0x20 <= byte < 0x7F for byte in head)
    if head.count(0) * 4 < len(head) and (plain * 4 > len(head) * 3 or is_utf8(head)):
        return ""
    # In the wrong order, hardly any sign is one of ASCII, and few of Chinese are signs.
    signs: dict[str, int] = {}
    for name in ("utf-16-le", "utf-16-be") if b"\0" in head else ():
        with contextlib.suppress(ValueError):
            text = codecs.getincrementaldecoder(name)().decode(head)
            if "".join(text.split()).isprintable():
                signs[name] = sum(map(str.isascii, text))
    best = max(signs, key=signs.__getitem__, default="")
    return best if list(signs.values()).count(signs.get(best, 0)) == 1 else ""


def _mark(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    byte = error.object[error.start]
    return "\udcff" + (chr(0xDC00 + byte) if byte >= 0x80 else ""), error.start + 1


codecs.register_error(_MARKED, _mark)
