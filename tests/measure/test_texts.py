"""The document that long prompts are cut from, and cutting it to an exact number of tokens."""

import gzip
import hashlib
import os
import re
from pathlib import Path

import pytest

from common.errors import RigError
from common.measure import texts
from common.measure.texts import Tokenizer
from common.rig import ROOT, Rig, load


class Words(Tokenizer):
    """Every word and every blank is a token, without a server."""

    def count(self, text: str) -> int:
        return len(re.findall(r"\s+|\S+", text))


class Pairs(Tokenizer):
    """Only even counts, so that odd ones cannot be had."""

    def count(self, text: str) -> int:
        return len(text) // 2 * 2


def test_a_cut_has_exactly_so_many_tokens() -> None:
    text = texts.made(1, 5000)
    words = Words("")
    for tokens in (0, 1, 2, 17, 500):
        cut = words.cut(text, tokens)
        assert cut is not None
        assert text.startswith(cut)
        assert words.count(cut) == tokens


def test_a_text_that_is_too_short_is_none() -> None:
    assert Words("").cut("three short words", 6) is None
    assert Words("").cut("three short words", 5) == "three short words"[:13]


def test_a_count_that_cannot_be_had_is_an_error() -> None:
    with pytest.raises(RigError, match="exactly 7 tokens"):
        Pairs("").cut("x" * 500, 7)


def test_made_text_is_varied_and_the_same_each_time() -> None:
    text = texts.made(3, 100_000)
    assert text == texts.made(3, 100_000)
    assert len(text) == 100_000
    sentences = text.split(". ")
    assert len(set(sentences)) > 0.99 * len(sentences)
    assert texts.made(4, 1000) != text[:1000]


def doc(tiny: Rig, path: Path, digest: str = "") -> texts.Document:
    return texts.document(tiny.variant({"LONGCTX_DOC": str(path), "LONGCTX_DOC_SHA256": digest}))


def test_a_document_of_ones_own(tiny: Rig, tmp_path: Path) -> None:
    path = tmp_path / "doc.txt"
    path.write_text("Grüße")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert doc(tiny, path, digest).text == "Grüße"
    with pytest.raises(RigError, match="LONGCTX_DOC_SHA256 says 0000"):
        doc(tiny, path, "0" * 64)
    packed = tmp_path / "doc.txt.gz"
    packed.write_bytes(gzip.compress(b"hello"))
    assert doc(tiny, packed).text == "hello"


def test_a_document_that_is_missing_or_not_utf8(tiny: Rig, tmp_path: Path) -> None:
    with pytest.raises(RigError, match="cannot be read: No such file"):
        doc(tiny, tmp_path / "none.txt")
    (tmp_path / "latin.txt").write_bytes("Grüße".encode("latin-1"))
    with pytest.raises(RigError, match="is not UTF-8: byte 2"):
        doc(tiny, tmp_path / "latin.txt")


def test_a_packed_document_that_is_damaged(
    tiny: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "doc.txt.gz"
    whole = gzip.compress(b"hello" * 1000)
    for content in (whole[:-9], whole[:12] + b"\xff" * 8 + whole[20:], b"plain text", whole[:1]):
        path.write_bytes(content)
        with pytest.raises(RigError, match=r"doc\.txt\.gz cannot be read: \S") as caught:
            doc(tiny, path)
        assert "None" not in str(caught.value)
    path.write_bytes(whole)
    monkeypatch.setattr(texts, "MOST_BYTES", 4999)
    with pytest.raises(RigError, match="is longer than 4,999 bytes"):
        doc(tiny, path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RigError, match="is not a file"):
        doc(tiny, tmp_path / "pipe")


def test_the_default_says_where_it_is_from(
    tiny: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert texts.document(tiny).origin == "made-up English, seed 11"
    card = load(ROOT / "local-llamacpp-3050oem-2b-q4_0", environ={})
    readme = tmp_path / "README.txt"
    readme.write_text("NVIDIA driver")
    monkeypatch.setattr(texts, "DRIVER_README", (str(readme),))
    assert texts.document(card).origin == "the NVIDIA driver README, README.txt"
    monkeypatch.setattr(texts, "DRIVER_README", ())
    assert texts.document(card).origin == "made-up English, seed 11"
