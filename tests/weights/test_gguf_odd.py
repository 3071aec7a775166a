"""GGUF headers that lie, each made by hand: one line, soon, and what the line says."""

import struct
import time
from pathlib import Path

import pytest

from common.engines.llamacpp import memory
from common.errors import RigError
from common.host import container, doctor
from common.rig import Rig
from common.weights.gguf_file import HEADER_STEPS, UnknownTypeError, open_gguf, parts_of
from tests.host.test_container import AMPERE

TEXT, ARRAY, U8, U32, I32, F32, BOOL, U64, F64 = 8, 9, 0, 4, 5, 6, 7, 10, 12
NAN, INF = float("nan"), float("inf")
PACKED = {U8: "B", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q", F64: "d"}


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def setting(key: str, kind: int, value: float | str) -> bytes:
    raw = text(value) if isinstance(value, str) else struct.pack("<" + PACKED[kind], value)
    return text(key) + struct.pack("<I", kind) + raw


def array(key: str, item: int, count: int, raw: bytes = b"") -> bytes:
    return text(key) + struct.pack("<IIQ", ARRAY, item, count) + raw


def tensor(*dims: int, axes: int | None = None, kind: int = 0, offset: int = 0) -> bytes:
    count = len(dims) if axes is None else axes
    return text("a") + struct.pack(f"<I{len(dims)}QIQ", count, *dims, kind, offset)


def write(
    path: Path,
    settings: list[bytes],
    tensors: list[bytes] | None = None,
    counts: tuple[int, int] | None = None,
) -> Path:
    held = tensors or []
    settings = [setting("general.architecture", TEXT, "gemma4"), *settings]
    many, more = counts or (len(held), len(settings))
    head = b"GGUF" + struct.pack("<IQQ", 3, many, more)
    path.write_bytes(head + b"".join([*settings, *held]) + bytes(256))
    return path


DAMAGED: dict[str, tuple[list[bytes], list[bytes], tuple[int, int] | None]] = {
    "2^63 settings": ([], [], (0, 2**63)),
    "2^64-1 tensors": ([], [], (2**64 - 1, 1)),
    "two of a name": ([setting("x", U32, 1)] * 2, [], None),
    "two tensors of a name": ([], [tensor(4)] * 2, None),
    "numbers past the end": ([array("x", U32, 2**20)], [], None),
    "numbers that wrap at 2^64": ([array("x", U64, 2**61)], [], None),
    "texts past the end": ([array("x", TEXT, 2**20)], [], None),
    "2^64-1 texts": ([array("x", TEXT, 2**64 - 1)], [], None),
    "a text of 2^63": ([array("x", TEXT, 1, struct.pack("<Q", 2**63))], [], None),
    "a text of 2^64-1 among others": (
        [array("x", TEXT, 2, struct.pack("<Q", 2**64 - 1) + bytes(8))],
        [],
        None,
    ),
    "arrays within arrays": (
        [array("x", ARRAY, 1, struct.pack("<IQ", ARRAY, 1) * 90_000)],
        [],
        None,
    ),
    "2^40 arrays": ([array("x", ARRAY, 2**40)], [], None),
    "a type of setting there is not": ([text("x") + struct.pack("<I", 13)], [], None),
    "no UTF-8": ([struct.pack("<Q", 1) + b"\xff" + struct.pack("<IB", U8, 0)], [], None),
    "no axis": ([], [tensor()], None),
    "five axes": ([], [tensor(1, 1, 1, 1, 1)], None),
    "200,000 axes": ([], [tensor(4, axes=200_000)], None),
    "2^32-1 axes": ([], [tensor(4, axes=2**32 - 1)], None),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_header_that_lies_is_damaged(case: str, tmp_path: Path) -> None:
    path = write(tmp_path / "x.gguf", *DAMAGED[case])
    started = time.process_time()
    with pytest.raises(RigError, match="cut short or damaged in its header; fetch it again"):
        open_gguf(path)
    assert parts_of(path) == 1
    assert time.process_time() - started < 2.0


ALIGNMENTS = {
    "a word": setting("general.alignment", TEXT, "abc"),
    "NaN": setting("general.alignment", F32, NAN),
    "infinite": setting("general.alignment", F64, INF),
    "a half": setting("general.alignment", F32, 0.5),
    "a whole fraction": setting("general.alignment", F32, 32.0),
    "nothing": setting("general.alignment", U32, 0),
    "odd": setting("general.alignment", U32, 33),
    "negative": setting("general.alignment", I32, -32),
    "true": setting("general.alignment", BOOL, True),
    "an array": array("general.alignment", U8, 1, b"\x20"),
}


@pytest.mark.parametrize("case", ALIGNMENTS)
def test_an_alignment_that_is_none(case: str, tmp_path: Path) -> None:
    path = write(tmp_path / "x.gguf", [ALIGNMENTS[case]], [tensor(4)])
    with pytest.raises(RigError, match=r"general\.alignment is .*, not a power of two"):
        open_gguf(path)


SHAPES = {
    "2^63 values": (tensor(2**63), "is cut short"),
    "negative to whoever reads it signed": (tensor(2**64 - 4, 2**64 - 4), "is cut short"),
    "2^256 values": (tensor(*[2**64 - 1] * 4), "is cut short"),
    "an offset of 2^64-32": (tensor(4, offset=2**64 - 32), "is cut short"),
    "an axis of nothing": (tensor(4, 0), "cannot have the shape"),
    "half a block": (tensor(33, kind=8), "cannot have the shape"),
}


@pytest.mark.parametrize("case", SHAPES)
def test_a_shape_that_cannot_be(case: str, tmp_path: Path) -> None:
    raw, message = SHAPES[case]
    with pytest.raises(RigError, match=message):
        open_gguf(write(tmp_path / "x.gguf", [], [raw]))


def test_a_header_as_long_as_the_file(tmp_path: Path) -> None:
    """A sparse file of gigabytes is not read whole."""
    path = write(tmp_path / "x.gguf", [array("x", U8, 2**33)])
    with path.open("r+b") as file:
        file.truncate(2**33)
    started = time.process_time()
    with pytest.raises(RigError, match=f"header is longer than {HEADER_STEPS[-1]:,} bytes"):
        open_gguf(path)
    assert time.process_time() - started < 5.0


def test_a_header_longer_than_what_is_read_first(tmp_path: Path) -> None:
    raw = array("x", U8, HEADER_STEPS[0] + 5, bytes(HEADER_STEPS[0] + 5))
    file = open_gguf(write(tmp_path / "x.gguf", [raw, setting("y", U32, 7)], [tensor(4)]))
    assert file.value("y") == 7
    with pytest.raises(RigError, match="x holds 1,048,581 numbers"):
        file.numbers("x")


def test_a_folder_and_a_name_with_a_line_end(tmp_path: Path) -> None:
    with pytest.raises(RigError, match="is not a file"):
        open_gguf(tmp_path)
    raw = text("a\nb" * 100) + struct.pack("<IQIQ", 1, 2**60, 0, 0)
    with pytest.raises(RigError) as caught:
        open_gguf(write(tmp_path / "x.gguf", [], [raw]))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("kind", [42, 138, 2**32 - 1])
def test_a_type_newer_than_the_package_is_unknown_not_damaged(
    kind: int, tiny: Rig, tmp_path: Path
) -> None:
    path = write(tmp_path / "tiny-q4_0.gguf", [], [tensor(4, kind=kind)])
    with pytest.raises(UnknownTypeError, match=f"tensor type {kind}, which is unknown") as caught:
        open_gguf(path)
    assert "fetch it again" not in str(caught.value)
    of = tiny.variant({"MODEL": str(path), "SPEC_TYPE": "", "SPEC_DRAFT_MODEL": ""})
    found = {check.name: check for check in doctor.examine(of, "host")}
    assert found["memory"].state == "note"
    assert f"tensor type {kind}" in found["memory"].text
    container.check_memory(AMPERE, of)  # llama.cpp may know it


def test_doctor_goes_on_past_a_damaged_model(tiny: Rig, tmp_path: Path) -> None:
    path = write(tmp_path / "tiny-q4_0.gguf", [array("x", TEXT, 2**64 - 1)])
    of = tiny.variant({"MODEL": str(path), "SPEC_TYPE": "", "SPEC_DRAFT_MODEL": ""})
    found = {check.name: check for check in doctor.examine(of, "host")}
    assert found["memory"].state == "lacks"
    assert "damaged" in found["memory"].text
    assert "port" in found


NO_MODEL = {
    "2^63 blocks": [setting("gemma4.block_count", U64, 2**63)],
    "2^32-1 blocks": [setting("gemma4.block_count", U32, 2**32 - 1)],
    "1,001 blocks": [setting("gemma4.block_count", U32, 1001)],
    "NaN blocks": [setting("gemma4.block_count", F32, NAN)],
    "endless blocks": [setting("gemma4.block_count", F64, INF)],
    "minus one block": [setting("gemma4.block_count", I32, -1)],
    "a negative width": [setting("gemma4.embedding_length", I32, -5)],
    "a NaN window": [setting("gemma4.attention.sliding_window", F32, NAN)],
    "too few heads": [
        setting("gemma4.block_count", U32, 3),
        array("gemma4.attention.head_count_kv", U32, 2, bytes(8)),
    ],
    "NaN heads": [
        setting("gemma4.block_count", U32, 2),
        array("gemma4.attention.head_count_kv", F32, 2, struct.pack("<2f", 1, NAN)),
    ],
}


@pytest.mark.parametrize("case", NO_MODEL)
def test_settings_that_make_no_model(case: str, tmp_path: Path) -> None:
    file = open_gguf(write(tmp_path / "x.gguf", NO_MODEL[case]))
    started = time.process_time()
    with pytest.raises(RigError, match="describes no model: gemma4"):
        memory.model_of_file(file)
    assert time.process_time() - started < 1.0


def test_how_many_parts(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    assert parts_of(path) == 1
    assert parts_of(write(path, [setting("split.count", U32, 1)])) == 1
    assert parts_of(write(path, [setting("split.count", U32, 2)])) == 2
    assert parts_of(write(path, [setting("split.count", TEXT, "2")])) == 1
