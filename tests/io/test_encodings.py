"""Texts in other encodings than UTF-8: found by what the bytes are, or given; never mangled."""

import csv
import io
import json

import pytest

import fpdb
from fpdb.errors import InputError
from fpdb.io.encodings import as_utf8, likely, restored
from fpdb.io.files import read_records
from fpdb.io.records import BadRecord, Reading

ENGLISH = "The ferry to Lindow – “a disgrace”, says the mayor – didn’t sail on Friday.\n"
CHINESE = "周三下午，市政府宣布旧桥将在春天关闭，居民表示担忧。新的渡船每小时开行两次，票价不变。\n"
TEXTS = {
    "gb18030": CHINESE,
    "big5hkscs": "週三下午，市政府宣布舊橋將在春天關閉，居民表示擔憂。新的渡船每小時開行兩次。\n",
    "cp932": "市は水曜日の午後、古い橋を春に閉鎖すると発表した。住民は不安を感じている。\n",
    "euc_jp": "市は水曜日の午後、古い橋を春に閉鎖すると発表した。住民は不安を感じている。\n",
    "cp949": "시는 수요일 오후에 오래된 다리를 봄에 폐쇄한다고 발표했다. 주민들은 걱정하고 있다.\n",
    "cp1252": ENGLISH,
    "iso8859-5": "В среду город объявил, что старый мост закроют весной. Жители обеспокоены.\n",
    "cp1251": "В среду город объявил, что старый мост закроют весной. Жители обеспокоены этим.\n",
    "cp1253": "Την Τετάρτη ο δήμος ανακοίνωσε ότι η παλιά γέφυρα θα κλείσει την άνοιξη.\n",
    "utf-16-le": CHINESE + ENGLISH,
    "utf-16-be": ENGLISH + CHINESE,
    "utf-8": CHINESE + ENGLISH,
}
# The first chunk ends anywhere.
CUTS = (1 << 18, 100)


def found(data, encoding=None, cut=1 << 18):
    told = []
    chunks = [data[:cut], data[cut:]] if len(data) > cut else [data]
    return b"".join(as_utf8(chunks, encoding, told.append)), told


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("name", TEXTS)
def test_the_encoding_is_found(name, cut):
    text = TEXTS[name] * 20
    read, told = found(text.encode(name), cut=cut)
    assert (read.decode(), told) == (text, [[name]] if name != "utf-8" else [])
    # A file that was cut in the middle of a character.
    short, _ = found(text.encode(name)[:-5], cut=cut)
    assert text.startswith(short.decode(errors="ignore"))
    assert len(short.decode(errors="ignore")) >= len(text) - 5
    if not name.startswith("utf"):
        for end in (b"\xb5\n", b"\x81 \n"):  # and a line end was added
            read, told = found(text.encode(name) + end, cut=cut)
            assert told == [[name]]
            assert read.decode(errors="ignore").startswith(text)


@pytest.mark.parametrize("name", [name for name in TEXTS if name != "utf-8"])
@pytest.mark.parametrize("damage", [b"", b"\xff\xff\x80\n", b"\x81"])
def test_what_was_read_can_be_written_as_it_was(name, damage):
    data = TEXTS[name].encode(name) + damage * (not name.startswith("utf"))
    data += TEXTS[name].encode(name)
    read, _ = found(data, name)
    assert restored(read, name) == data
    try:
        fits = data.decode(name)
    except ValueError:
        with pytest.raises(ValueError, match="utf-8"):
            read.decode()
    else:
        assert read.decode() == fits


def test_what_may_be_several_encodings_is_no_guess():
    bad = "caffè".encode("cp1252")
    assert len(likely(bad)) != 1 or bad.decode(likely(bad)[0]) == "caffè"
    data = "Café crème, naïve.\n".encode("cp1252")
    read, [names] = found(data)
    assert read == data
    assert len(names) > 1
    assert "cp1252" in names
    broken = ("a " * 300 + "ключ ").encode() * 20 + b"\xff\xfe \x81"
    assert found(broken) == (broken, [])  # it is UTF-8 with a damaged end


FRENCH = (
    "Dès l’été, la traversée coûte trois francs, s’étonne Nuñez ; où ça ? À l’hôtel du maître.\n"
)
POLISH_TEXT = (
    "W środę miasto ogłosiło, że stary most zostanie zamknięty. Mieszkańcy są źli, już czas.\n"
)


def test_the_letters_of_languages_tell_encodings_of_latin_apart():
    assert likely(FRENCH.replace("Nuñez", "Luc").encode("cp1252")) == ["cp1252"]
    assert likely((FRENCH.replace("Nuñez", "Luc") * 5 + FRENCH).encode("cp1252")) == ["cp1252"]
    assert likely(POLISH_TEXT.encode("cp1250")) == ["cp1250"]
    # No language has signs after its letters, as these have in the only encodings that fit.
    for text, name in ((POLISH_TEXT, "iso8859-2"), (POLISH_TEXT, "cp852"), (FRENCH, "cp850")):
        assert likely(text.encode(name, "ignore")) == []
    # Chinese with a stray byte fits none but those of single bytes.
    assert likely(CHINESE.encode("gb18030") + b"\xff\xff" + CHINESE.encode("gb18030")) == []


def test_a_mark_of_utf16_and_a_stray_nul(tmp_path):
    (tmp_path / "a.txt").write_bytes(ENGLISH.encode("utf-16"))
    [record] = read_records(str(tmp_path / "a.txt"))
    assert record.text == ENGLISH
    for text in (b"id,text\n1,a\0b and more words\n", f"id,text\n1,{CHINESE}\0b\n".encode()):
        assert found(text) == (text, [])


def table(rows, name):
    file = io.StringIO(newline="")
    csv.writer(file).writerows(rows)
    return file.getvalue().encode(name)


ROWS = [
    ["链接", "正文"],
    *([f"页{number}", f"{CHINESE.strip()[number:]}{number}"] for number in range(20)),
]
CHINESE_FIELDS = {"key_field": "链接", "text_field": "正文"}


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl"])
def test_tables_and_lines_are_the_same_in_any_encoding(tmp_path, form):
    rows = [[cell.strip() for cell in row] for row in ROWS]
    expected = [(key, text) for key, text in rows[1:]]
    for name in ("utf-8", "gb18030", "utf-16"):
        text = {
            "csv": table(rows, "utf-8").decode(),
            "tsv": "".join(f"{key}\t{text}\n" for key, text in rows),
            "jsonl": "".join(
                json.dumps(dict(zip(rows[0], row, strict=True)), ensure_ascii=False) + "\n"
                for row in rows[1:]
            ),
        }[form]
        path = tmp_path / f"{name}.{form}"
        path.write_bytes(text.encode(name))
        records = list(read_records(str(path), Reading(**CHINESE_FIELDS)))
        assert [(each.key, each.text) for each in records] == expected


def test_dedupe_gives_back_the_encoding(tmp_path):
    path, output = tmp_path / "a.csv", tmp_path / "b.csv"
    data = table([*ROWS, ["again", ROWS[1][1]]], "gb18030")
    path.write_bytes(data)
    counts = fpdb.dedupe(path, output, Reading(**CHINESE_FIELDS))
    assert counts.encodings == {"gb18030": 1}
    assert set(output.read_bytes().splitlines()) < set(data.splitlines())
    path.write_bytes(data + b"\x81,\xff\xff\n")
    counts = fpdb.dedupe(path, output, Reading(encoding="gbk", **CHINESE_FIELDS))
    assert (counts.read, counts.bad, counts.removed > 0) == (22, 1, True)
    lines = path.read_bytes().splitlines()
    written = output.read_bytes().splitlines()
    assert written[0] == lines[0]
    assert written[-1] == lines[-1]  # a bad record is kept as it was
    assert set(written) < set(lines)


POLISH = "sprzeciwiają się skandalicznym atakom "
# One byte of Latin-1 among 36 of UTF-8 above ASCII.
STRAY = POLISH.encode() * 9 + b"caf\xe9 noir"
FORMS = {
    "txt": lambda text: text,
    "csv": lambda text: b"id,text\nx," + text + b"\n",
    "tsv": lambda text: b"id\ttext\nx\t" + text + b"\n",
    "jsonl": lambda text: b'{"id": "x", "text": "' + text + b'"}\n',
}


@pytest.mark.parametrize("encoding", [None, "utf-8"])
@pytest.mark.parametrize("form", FORMS)
def test_few_bad_bytes_leave_utf8(tmp_path, form, encoding):
    path = tmp_path / f"a.{form}"
    path.write_bytes(FORMS[form](STRAY))
    [record] = read_records(str(path), Reading(encoding=encoding))
    assert not isinstance(record, BadRecord)
    assert (record.text, record.replaced) == (POLISH * 9 + "caf\ufffd noir", True)
    # A tenth of the bytes above ASCII is bad: one of ten.
    path.write_bytes(FORMS[form]("ąęłśż".encode()[:-1] + b"x"))
    [record] = read_records(str(path), Reading(encoding=encoding))
    assert isinstance(record, BadRecord)
    assert "don't fit its encoding" in record.reason


def test_records_with_bad_bytes_are_counted_and_kept_as_they_were(tmp_path):
    path, output = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    data = FORMS["jsonl"](STRAY) + b'{"id": "caf\xe9", "text": "' + STRAY + b'"}\n'
    path.write_bytes(data)
    counts = fpdb.dedupe(path, output)
    # Two keys may become one.
    assert (counts.read, counts.bad, counts.invalid_utf8) == (2, 1, 1)
    assert output.read_bytes() == data


@pytest.mark.parametrize("cut", CUTS)
def test_japanese_with_escapes(tmp_path, cut):
    text = f"Subject: {TEXTS['cp932']}" * 20
    data = text.encode("iso2022_jp")
    read, told = found(data, cut=cut)
    assert (read.decode(), told) == (text, [["iso2022_jp_ext"]])
    assert restored(read, "iso2022_jp_ext") == data
    (tmp_path / "a.txt").write_bytes(data)
    assert [each.text for each in read_records(str(tmp_path / "a.txt"))] == [text]
    # Colours of a terminal are none.
    log = b"\x1b[31mred\x1b(B\x1b[m 5 $\n"
    assert found(log) == (log, [])


def test_a_given_encoding_wins(tmp_path):
    (tmp_path / "a.txt").write_bytes("naïve café, déjà".encode("cp1250", "replace"))
    [record] = read_records(str(tmp_path / "a.txt"), Reading(encoding="koi8-r"))
    assert not isinstance(record, BadRecord)
    assert record.text != "naïve café, déjà"
    for name in ("base64", "none", "a" * 100, "idna", "punycode", "rot13", "unicode_escape"):
        with pytest.raises(InputError, match="found the encoding"):
            Reading(encoding=name)
