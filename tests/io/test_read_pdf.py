"""PDF: the text of its pages and its dates, by a child process with limits."""

import importlib.util
import zlib

import pytest
from tiers import of_gate

import fpdb
from fpdb.io.files import read_records
from fpdb.io.records import BadRecord, Reading

pytestmark = pytest.mark.process
(pypdfium2,) = of_gate("pypdfium2")


def pdf_of(*pages, info=""):
    """Return a PDF with lines of text on pages; a font without glyphs says which sign is which."""
    signs = sorted({sign for page in pages for line in page for sign in line})
    codes = {sign: number for number, sign in enumerate(signs, 1)}
    mapped = "".join(
        f"<{code:04x}> <{sign.encode('utf-16-be').hex()}>\n" for sign, code in codes.items()
    )
    unicode = (
        "begincmap 1 begincodespacerange <0000> <ffff> endcodespacerange\n"
        f"{len(codes)} beginbfchar\n{mapped}endbfchar endcmap"
    )
    numbers = [f"{6 + 2 * place} 0 R" for place in range(len(pages))]
    parts = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{' '.join(numbers)}] /Count {len(pages)} >>",
        """<< /Type /Font /Subtype /Type0 /BaseFont /F /Encoding /Identity-H
        /DescendantFonts [4 0 R] /ToUnicode 5 0 R >>""",
        """<< /Type /Font /Subtype /CIDFontType2 /BaseFont /F /CIDSystemInfo
        << /Registry (Adobe) /Ordering (Identity) /Supplement 0 >> /DW 500 >>""",
        f"<< /Length {len(unicode)} >>\nstream\n{unicode}\nendstream",
    ]
    for place, page in enumerate(pages):
        shown = "".join(
            f"<{''.join(f'{codes[sign]:04x}' for sign in line)}> Tj T*\n" for line in page
        )
        content = f"BT /F 12 Tf 14 TL 50 700 Td\n{shown}ET"
        parts.append(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Resources "
            f"<< /Font << /F 3 0 R >> >> /Contents {7 + 2 * place} 0 R >>"
        )
        parts.append(f"<< /Length {len(content)} >>\nstream\n{content}\nendstream")
    parts.append(f"<< {info} >>")
    data, places = b"%PDF-1.7\n", []
    for number, part in enumerate(parts, 1):
        places.append(len(data))
        data += f"{number} 0 obj\n{part}\nendobj\n".encode()
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    head = f"xref\n0 {len(parts) + 1}\n0000000000 65535 f \n{table}"
    trailer = f"trailer << /Size {len(parts) + 1} /Root 1 0 R /Info {len(parts)} 0 R >>"
    return data + f"{head}{trailer}\nstartxref\n{len(data)}\n%%EOF\n".encode()


def refused(path, reading=None):
    [found] = read_records(str(path), reading or Reading())
    assert isinstance(found, BadRecord)
    return found.reason


PAGES = ["The ferry at Carrow began", "as a raft on a chain."], ["甲乙丙丁。", "戊己庚辛"]


def test_the_text_of_pages_and_the_dates(tmp_path):
    path = tmp_path / "a.pdf"
    path.write_bytes(pdf_of(*PAGES, info="/CreationDate (D:20240301080000+08'00')"))
    [found] = read_records(str(path), Reading(meta_field="*"))
    assert found.text.splitlines() == [*PAGES[0], *PAGES[1]]
    assert (found.key, found.meta) == (str(path), {"file_created": "2024-03-01"})
    path.write_bytes(b"junk before it\n" + path.read_bytes())
    [found] = read_records(str(path))
    assert found.text.splitlines() == [*PAGES[0], *PAGES[1]]


def test_what_has_no_text_is_said(tmp_path):
    path = tmp_path / "scanned.pdf"
    document = pypdfium2.PdfDocument.new()
    document.new_page(200, 200)
    document.save(path)
    assert "has no text" in refused(path)
    whole = pdf_of(*PAGES)
    path.write_bytes(whole[:200])
    assert "can't be read" in refused(path)
    path.write_bytes(b"%PDF-1.7")
    assert "can't be read" in refused(path)
    path.write_bytes(pdf_of(["word " * 40]))
    assert "holds more than 100 bytes" in refused(path, Reading(max_bytes=100))
    for data in (b"", b"no PDF"):
        path.write_bytes(data)
        assert "is neither a PDF nor a ZIP" in refused(path)


def test_what_unpacks_to_too_much_is_refused(tmp_path):
    path, content = tmp_path / "bomb.pdf", zlib.compress(b" " * (1 << 28), 9)
    whole = pdf_of(["word"])
    start = whole.rindex(b"<< /Length")
    end = whole.index(b"endstream", start)
    head = f"<< /Filter /FlateDecode /Length {len(content)} >>\nstream\n".encode()
    path.write_bytes(whole[:start] + head + content + b"\n" + whole[end:])
    assert refused(path)
    path.write_bytes(whole)
    assert [record.text.strip() for record in read_records(str(path))] == ["word"]


@pytest.mark.parametrize("damage", range(40))
def test_damaged_files_end_no_reader(tmp_path, damage):
    """Each is read or refused, and the next one is read."""
    whole = bytearray(pdf_of(*PAGES))
    for place in range(damage * 7, len(whole), 131):
        whole[place] = (whole[place] * 31 + damage) % 256
    (tmp_path / "a.pdf").write_bytes(whole)
    (tmp_path / "b.pdf").write_bytes(pdf_of(*PAGES))
    first, second = read_records(str(tmp_path))
    assert isinstance(first, BadRecord) or isinstance(first.text, str)
    assert second.text.splitlines() == [*PAGES[0], *PAGES[1]]


def test_without_the_package_it_is_named(tmp_path, monkeypatch):
    (tmp_path / "a.pdf").write_bytes(pdf_of(*PAGES))
    (tmp_path / "b.txt").write_text("text")
    find = importlib.util.find_spec
    hidden = {"pypdfium2"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n in hidden else find(n))
    with pytest.raises(fpdb.MissingExtraError, match="pypdfium2") as caught:
        next(read_records(str(tmp_path / "a.pdf")))
    with fpdb.create(tmp_path.with_suffix(".fpdb")) as database:
        counts = fpdb.ingest(database, tmp_path)
    assert (counts.read, counts.refused) == (1, 1)
    [(names, reason)] = counts.left_out.named()
    assert names == str(tmp_path / "a.pdf")
    assert reason == f"isn't text: {caught.value.hint}"


def test_a_report_shows_copied_passages_of_pdf(tmp_path):
    copied = "The ferry at Carrow began as a raft on a chain, which the miller pulled by hand."
    lines = [copied[start : start + 40] for start in range(0, len(copied), 40)]
    for name, own in (("one", "甲"), ("two", "乙")):
        (tmp_path / f"{name}.pdf").write_bytes(pdf_of([*lines, own * 9]))
    output = tmp_path.with_suffix(".html")
    found = fpdb.report(tmp_path, output, passages=True)
    assert (found.documents, found.pairs) == (2, 1)
