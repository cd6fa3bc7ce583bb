"""Documents of Word and LibreOffice: the text that a reader sees, and files that are hostile."""

import os
import zipfile

import pytest

from fpdb.io.files import read_parts, read_records, read_texts
from fpdb.io.paths import size_of
from fpdb.io.records import BadRecord, Reading
from fpdb.io.streams import Watch

pytestmark = pytest.mark.process

WORD = '<w:document xmlns:w="w" xmlns:mc="mc" xmlns:wp="wp"><w:body>{}</w:body></w:document>'
OPEN = (
    '<office:document-content xmlns:office="o" xmlns:text="t" xmlns:svg="s" xmlns:table="b">'
    "<office:body><office:text>{}</office:text></office:body></office:document-content>"
)


def packed(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "/") + ".xml", content)
    return str(path)


def word(path, body, **notes):
    return packed(path, word__document=WORD.format(body), **notes)


def paragraph(text):
    return f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"


def text_of(path):
    [found] = read_records(path)
    assert not isinstance(found, BadRecord), found.reason
    return found.text


def test_what_a_reader_of_word_sees(tmp_path):
    box = f"<w:txbxContent>{paragraph('in a box')}</w:txbxContent>"
    body = (
        '<w:p><w:pPr><w:tabs><w:tab/></w:tabs></w:pPr><w:r><w:t xml:space="preserve">One </w:t>'
        "</w:r><w:ins><w:r><w:t>new</w:t><w:tab/><w:t>word\n here</w:t></w:r></w:ins>"
        "<w:del><w:r><w:delText>deleted</w:delText><w:br/></w:r></w:del>"
        "<w:moveFrom><w:r><w:t>moved</w:t></w:r></w:moveFrom><w:r><w:instrText>PAGE</w:instrText>"
        f"<mc:AlternateContent><mc:Choice><wp:posOffset>12</wp:posOffset>{box}</mc:Choice>"
        f"<mc:Fallback>{box}</mc:Fallback></mc:AlternateContent></w:r><w:r><w:t>, &amp; on</w:t>"
        "</w:r></w:p><w:p/>"
        f"<w:tbl><w:tc>{paragraph('甲')}</w:tc><w:tc>{paragraph('　乙')}</w:tc></w:tbl>"
    )
    notes = {"word__footnotes": WORD.format(paragraph("a note"))}
    for encoding in ("utf-8", "utf-16"):
        head = f'<?xml version="1.0" encoding="{encoding}"?>'
        content = (head + WORD.format(body)).encode(encoding)
        path = packed(tmp_path / "a.docx", word__document=content, **notes)
        assert text_of(path) == "One new\tword here, & on\nin a box\n甲\n　乙\na note"


def test_what_a_reader_of_libreoffice_sees(tmp_path):
    body = (
        "<text:tracked-changes><text:p>deleted</text:p></text:tracked-changes>"
        "<text:h>Title</text:h><text:p>One<text:s text:c='3'/><text:span>two</text:span>\n  three"
        "<text:note><text:note-citation>1</text:note-citation><text:note-body><text:p>a note"
        "</text:p></text:note-body></text:note><office:annotation><text:p>a comment</text:p>"
        "</office:annotation><svg:desc>a picture</svg:desc><text:tab/>four<text:line-break/>end"
        "</text:p><table:table-cell><text:p>cell</text:p></table:table-cell>stray"
    )
    path = packed(tmp_path / "a.odt", content=OPEN.format(body))
    assert text_of(path) == "Title\nOne two three\tfour\nend\na note\ncell"
    assert list(read_texts(path)) == [text_of(path)]


def test_in_directories_and_by_their_names(tmp_path):
    word(tmp_path / "a.docx", paragraph("one"))
    packed(tmp_path / "b.ODT", content=OPEN.format("<text:p>two</text:p>"))
    (tmp_path / "c.txt").write_text("three")
    told = []
    found = list(read_records(str(tmp_path), watch=Watch(told.append)))
    assert [(each.key, each.text) for each in found] == [
        *(("a.docx", "one"), ("b.ODT", "two"), ("c.txt", "three"))
    ]
    assert [each for part in read_parts(str(tmp_path)) for each in part()] == found
    assert sum(told) == size_of(str(tmp_path))


CORE = (
    '<cp:coreProperties xmlns:cp="c" xmlns:dcterms="d"><dcterms:created xsi:type="dcterms:W3CDTF">'
    "2024-03-01T08:00:00Z</dcterms:created><cp:lastPrinted>2024-02-01</cp:lastPrinted>"
    "<dcterms:modified>\n2024-03-09</dcterms:modified></cp:coreProperties>"
)
META = (
    '<office:meta><meta:template meta:date="2001-01-01"/><meta:print-date>2002-02-02'
    "</meta:print-date><dc:date>2024-03-09T10:11:12.123</dc:date><meta:creation-date>"
    "2024-03-01T08:00:00</meta:creation-date></office:meta>"
)


def test_dates_of_the_properties_are_fields(tmp_path):
    written = word(tmp_path / "a.docx", paragraph("one"), docProps__core=CORE)
    packed(tmp_path / "b.odt", content=OPEN.format("<text:p>two</text:p>"), meta=META)
    word(tmp_path / "c.docx", paragraph("three"), docProps__core="<damaged")
    dates = {"file_created": "2024-03-01", "file_modified": "2024-03-09"}
    for path in (tmp_path, written):
        found = list(read_records(str(path), Reading(meta_field="*")))
        assert [each.meta for each in found] == [dates, dates, None][: len(found)]
        # As of any record, fields are kept that are named.
        assert {each.meta for each in read_records(str(path))} == {None}
    [first, *_] = read_records(str(tmp_path), Reading(meta_field="file_created"))
    assert first.meta == {"file_created": "2024-03-01"}


def expected_of(tmp_path):
    """Return files that can't be read, by the reason."""
    entity = '<!DOCTYPE x [<!ENTITY a "aaaa">]>' + WORD.format("&a;")
    manifest = "<manifest><encryption-data/></manifest>"
    made = {
        "not a zip": b"PK\x03\x04 and no more",
        "without a password": b"\xd0\xcf\x11\xe0" + b"x" * 600,
    }
    for number, (reason, data) in enumerate(made.items()):
        path = tmp_path / f"{number}.docx"
        path.write_bytes(data)
        yield reason, str(path)
    yield "holds no text", packed(tmp_path / "sheet.docx", xl__workbook="<a/>")
    yield "DTD", packed(tmp_path / "entity.docx", word__document=entity)
    yield "no element found", packed(tmp_path / "empty.docx", word__document="")
    yield "mismatched tag", packed(tmp_path / "wrong.odt", content="<a><b></a>")
    yield (
        "without a password",
        packed(tmp_path / "secret.odt", content=b"\x8f\x01", **{"META-INF__manifest": manifest}),
    )
    path = word(tmp_path / "crc.docx", paragraph("text"))
    data = bytearray((tmp_path / "crc.docx").read_bytes())
    data[data.index(b"PK\x01\x02") + 16] ^= 1
    (tmp_path / "crc.docx").write_bytes(data)
    yield "Bad CRC-32", path
    yield "one text", word(tmp_path / "long.docx", paragraph("x" * 3000))
    for number, parts in enumerate((["document"], ["document", "footnotes"], ["document", "core"])):
        blank = WORD.format(" " * (6_000_000 // len(parts)))
        members = {
            f"docProps__{each}" if each == "core" else f"word__{each}": blank for each in parts
        }
        yield "unpacks to 6,0", packed(tmp_path / f"bomb{number}.docx", **members)
    for sign in ("<!--{}-->", "<w:p w:a='{}'/>"):
        body = sign.format("x" * 4_300_000)
        path = tmp_path / f"tag{len(sign)}.docx"
        yield "a tag or comment of more than 4,194,304", word(path, body, media__a=os.urandom(9000))
    deep, padding = b"<p>" * 3_000_000, os.urandom(100_000)
    yield "MiB of memory", packed(tmp_path / "deep.docx", word__document=deep, media__a=padding)


def test_what_is_refused_costs_its_own_record_alone(tmp_path):
    reading = Reading(max_bytes=2000)
    for reason, path in expected_of(tmp_path):
        [bad] = read_records(path, reading)
        assert isinstance(bad, BadRecord), path
        assert reason in bad.reason, path
    good = word(tmp_path / "good.docx", paragraph("text"))
    assert text_of(good) == "text"
