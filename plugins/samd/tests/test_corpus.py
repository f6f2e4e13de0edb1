"""FileCorpus: the forms of a corpus, its errors, and what is done once."""

import json
import re

import pytest
from specdec_samd import CorpusError, SuffixDrafter
from specdec_samd.corpus import FileCorpus, read_corpus

from specdec import EMPTY, Limit, Request
from specdec.testing import CharCodec

WIDE = Limit(64, 64)
TEXT = "the quick brown fox jumps"


class CountingCodec(CharCodec):
    """Counts how many texts it encodes."""

    def __init__(self):
        self.encoded = 0

    def encode(self, text, after=()):
        self.encoded += 1
        return super().encode(text, after)


def continued(path, text, codec, **options):
    """What is drafted behind a text, as text."""
    prompt = CharCodec().encode(text)
    request = Request(prompt=prompt, max_new_tokens=99, codec=codec)
    session = SuffixDrafter(static=path, **options).start(request)
    return CharCodec().decode(session.propose(prompt, WIDE).tokens)


def test_a_plain_text_is_one_text(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text(f"one\n\n{TEXT}\nover", encoding="utf-8")
    assert continued(path, "a quick brown", CharCodec(), scale=None) == " fox jumps\nover"
    assert continued(str(path), "a quick brown", CharCodec(), length=4) == " fox"


def test_json_lines_are_texts_and_lists_of_token_ids(tmp_path):
    path = tmp_path / "corpus.jsonl"
    ids = list(CharCodec().encode("sphinx of black quartz"))
    path.write_text(f"\ufeff{json.dumps(TEXT)}\n\n{ids}\r\n", encoding="utf-8")
    assert read_corpus(path) == (TEXT, tuple(ids))
    assert continued(path, "some quick brown", CharCodec()) == " fox jumps"
    assert continued(path, "a sphinx of black", CharCodec()) == " quartz"


def test_texts_need_a_codec_and_token_ids_do_not(tmp_path):
    path = tmp_path / "corpus.jsonl"
    ids = list(CharCodec().encode("sphinx of black quartz"))
    path.write_text(f"{json.dumps(TEXT)}\n{ids}\n")
    assert continued(path, "some quick brown", None) == ""
    assert continued(path, "a sphinx of black", None) == " quartz"


def test_texts_are_read_at_the_first_request_and_encoded_once_per_codec(tmp_path):
    path = tmp_path / "corpus.jsonl"
    corpus = FileCorpus(path)
    path.write_text(f"{json.dumps(TEXT)}\n" * 3)
    one, other = CountingCodec(), CountingCodec()
    first = corpus.automata(Request(prompt=(1,), max_new_tokens=9, codec=one))
    path.unlink()
    assert corpus.automata(Request(prompt=(2,), max_new_tokens=9, codec=one)) is first
    assert one.encoded == 3
    assert corpus.automata(Request(prompt=(2,), max_new_tokens=9, codec=other)) is not first
    assert other.encoded == 3
    assert repr(corpus) == repr(str(path))


@pytest.mark.parametrize(
    ("name", "content", "found", "expected"),
    [
        ("corpus.txt", b"", "is empty", "at least one text"),
        ("corpus.jsonl", b"\n \n", "is empty", "at least one text"),
        ("corpus.txt", b"ab\xff", "holds byte 0xff at offset 2", "UTF-8 text"),
        ("corpus.jsonl", b'"a"\nplain', ":2 is not JSON", "a text or a list of token ids"),
        ("corpus.jsonl", b'{"text": "a"}', ":1 holds a JSON dict", "a text or a list"),
        ("corpus.jsonl", b"[1, 2.5]", ":1 holds 2.5 in a list", "token ids from 0"),
        ("corpus.jsonl", b"[1, true]", ":1 holds True in a list", "token ids from 0"),
        ("corpus.jsonl", b"[-1]", ":1 holds -1 in a list", "token ids from 0"),
        ("corpus.jsonl", b"[2147483648]", ":1 holds 2147483648", "token ids from 0 to 2147483647"),
    ],
)
def test_an_error_names_the_file_what_was_found_and_what_is_expected(
    tmp_path, name, content, found, expected
):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(CorpusError, match=re.escape(str(path))) as caught:
        read_corpus(path)
    assert found in str(caught.value)
    assert f"expected {expected}" in str(caught.value)


def test_a_missing_file_is_an_error_at_the_first_request(tmp_path):
    drafter = SuffixDrafter(static=tmp_path / "none.txt")
    with pytest.raises(CorpusError, match=r"none.txt cannot be read: No such file"):
        drafter.start(Request(prompt=(1,), max_new_tokens=9))


def test_a_corpus_adds_nothing_to_requests_that_do_not_match(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text(TEXT)
    request = Request(prompt=(1, 2), max_new_tokens=9, codec=CharCodec())
    drafter = SuffixDrafter(static=path)
    assert drafter.start(request).propose((1, 2), WIDE) == EMPTY
    assert not drafter.remembers
    assert drafter.state() == {}
