"""fpdb fingerprint: every option, and every kind of input."""

import json

import pytest

import fpdb

TEXT = "one two three four five six seven eight"
CHINESE = "国务院今天发布了关于放假的通知，全国各地放假三天，请大家注意安全"


def hexadecimal(text, name="web"):
    recipe = fpdb.recipe(name)
    return f"{recipe.fingerprint(text):0{recipe.bits // 4}x}"


def test_texts_give_a_fingerprint_and_their_source(run):
    done = run("fingerprint", "--text", TEXT, "-t", CHINESE)
    assert (done.code, done.err) == (0, "")
    assert done.rows == [[hexadecimal(TEXT), TEXT], [hexadecimal(CHINESE), CHINESE]]


def test_json_gives_one_object_for_each_text(run):
    done = run("fingerprint", "--json", "-t", TEXT, "-t", "short")
    first, second = map(json.loads, done.out.splitlines())
    assert first == {
        "source": TEXT,
        "fingerprint": hexadecimal(TEXT),
        "features": 6,
        "short": False,
    }
    assert second == {"source": "short", "fingerprint": None, "features": 0, "short": True}


def test_short_texts_are_marked_and_counted(run):
    done = run("fingerprint", "-t", "too short", "-t", TEXT, "-t", "")
    assert done.code == 0
    assert [row[0] for row in done.rows] == ["short", hexadecimal(TEXT), "short"]
    assert done.err == "short texts: 2 (fewer than 6 distinct features)\n"


def test_standard_input_is_read_where_nothing_is_named(run):
    data = (TEXT + "\n" + CHINESE + "\n").encode()
    whole = hexadecimal(data.decode())
    assert run("fingerprint", stdin=data).rows == [[whole, "-"]]
    assert run("fingerprint", "-", stdin=data).rows == [[whole, "-"]]
    assert run("fingerprint", "--format", "lines", stdin=data).rows == [
        [hexadecimal(TEXT), "-:1"],
        [hexadecimal(CHINESE), "-:2"],
    ]


def test_files_are_whole_texts_or_lines(run, tmp_path):
    path = tmp_path / "texts.txt"
    path.write_bytes(f"{TEXT}\r\n{CHINESE}\n\n{TEXT}".encode())
    whole = hexadecimal(f"{TEXT}\n{CHINESE}\n\n{TEXT}")
    assert run("fingerprint", path, path).rows == [[whole, str(path)]] * 2
    done = run("fingerprint", "--format", "lines", path)
    assert done.rows == [
        [hexadecimal(TEXT), f"{path}:1"],
        [hexadecimal(CHINESE), f"{path}:2"],
        [hexadecimal(TEXT), f"{path}:4"],
    ]
    assert run("fingerprint", "-t", CHINESE, path).rows[0] == [hexadecimal(CHINESE), CHINESE]


@pytest.mark.parametrize("name", ["bigram-32", "web", "web-128"])
def test_fingerprints_as_strings_of_0_and_1_and_signed(run, name):
    recipe = fpdb.recipe(name)
    number = recipe.fingerprint(CHINESE)
    ((binary, _),) = run("fingerprint", "-r", name, "--base", "binary", "-t", CHINESE).rows
    assert (int(binary, 2), len(binary)) == (number, recipe.bits)
    ((signed, _),) = run("fingerprint", "-r", name, "--base", "signed", "-t", CHINESE).rows
    assert int(signed) == number - (number >> recipe.bits - 1 << recipe.bits)
    done = run("fingerprint", "--json", "--base", "signed", "-r", name, "-t", CHINESE)
    assert json.loads(done.out)["fingerprint"] == int(signed)


def test_an_explanation_shows_features_hashes_votes_and_the_sign(run):
    text = "the cat sat on the mat"
    found = fpdb.recipe("bigram-32").explain(text)
    done = run("fingerprint", "--explain", "-r", "bigram-32", "-t", text, "--base", "binary")
    lines = done.out.splitlines()
    assert (done.code, done.err) == (0, "")
    assert lines[:3] == [
        f"text    {text}",
        f"recipe  bigram-32 ({fpdb.recipe('bigram-32').id})",
        "",
    ]
    start = lines.index("weight  " + "hash".ljust(32) + "  feature") + 1
    shown = [line.split(maxsplit=2) for line in lines[start : start + 15]]
    assert [[float(w), int(bits, 2), json.loads(name)] for w, bits, name in shown] == [
        [weight, number, feature] for feature, weight, number in found.features
    ]
    sign = f"{found.fingerprint:032b}"
    assert lines[start + 15] == f"sign    {sign}"
    rows = [line.split() for line in lines if line.lstrip()[:1].isdigit() and ".." in line]
    assert [float(vote) for row in rows for vote in row[1:9]] == list(found.votes[::-1])
    assert "".join(row[9] for row in rows) == sign
    assert lines[-2] == f"fingerprint   {sign}"
    first = found.weakest[0]
    assert lines[-1].startswith(f"weakest bits  {first} ({found.votes[first]:+g}), ")
    assert max(map(len, lines)) <= 100
