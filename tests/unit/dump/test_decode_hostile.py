"""Dumps that want to do something: refused by name, nothing done."""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile

import pytest
from foreign_dumps import decode_in_process, make_truth, save_rollout, stage
from hostile_pickles import PROTO, attempts, bombs, call, in_dump, text, zipped

from relax.dump.decode.client import decode
from relax.errors import DumpError, DumpRefused, DumpTruncated

NAMES = sorted(attempts("/tmp/unused"))


@pytest.mark.parametrize("name", NAMES)
def test_what_it_wants_is_named(tmp_path, name):
    canary = tmp_path / "canary"
    pickled, word = attempts(canary)[name]
    path = tmp_path / "3.pt"
    path.write_bytes(zipped(pickled))
    with pytest.raises(DumpError) as refused:
        decode_in_process([path], tmp_path / "out")
    assert word in refused.value.what
    assert refused.value.where == str(path)
    assert not canary.exists()


def test_a_refusal_in_the_middle_of_a_large_dump(tmp_path):
    canary = tmp_path / "canary"
    # Large enough to be read sample by sample.
    good = b"}(" + text("index") + b"K\x00" + text("x") + text("y" * 3000) + b"u"
    bad = call("posix", "system", text(f"touch {canary}"))
    top = text("rollout_id") + b"K\x03" + text("samples")
    pickled = PROTO + b"}(" + top + b"](" + good * 500 + bad + good * 500 + b"eu."
    path = tmp_path / "3.pt"
    path.write_bytes(zipped(pickled))
    with pytest.raises(DumpRefused, match=r"posix\.system"):
        decode_in_process([path], tmp_path / "out")
    assert not canary.exists()


@pytest.mark.parametrize("name", sorted(bombs()))
def test_bombs_end_in_one_sentence(tmp_path, name):
    path = tmp_path / "3.pt"
    path.write_bytes(zipped(bombs()[name]))
    into = tmp_path / "out"
    try:
        decoded = decode(path, into, max_memory=256 << 20, time_limit=4)
    except DumpError as error:
        assert str(error).count("\n") == 0
        assert len(error.what) < 300
        assert not into.exists()
    else:
        # Harmless once what is shown of it is bounded.
        assert name in ("deep lists", "laughing lists")
        (row,) = stage(decoded, "samples")
        assert len(row["metadata"]) < 1 << 20
    assert sorted(p.name for p in tmp_path.iterdir() if p != into) == ["3.pt"]


def test_sizes_of_tensors_are_not_believed(tmp_path):
    storage = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("0")
    storage += text("cpu") + b"\x8a\x08" + struct.pack("<q", 1 << 60) + b"tQ"

    def tensor(shape: bytes, strides: bytes, offset: bytes = b"K\x00") -> bytes:
        arguments = (storage, offset, shape, strides, b"\x89", b"N")
        return call("torch._utils", "_rebuild_tensor_v2", *arguments)

    long = b"\x8a\x08" + struct.pack("<q", 1 << 50)
    tensors = [
        tensor(b"(" + long + b"t", b"(K\x01t"),
        tensor(b"(" + long + b"t", b"(K\x00t"),
        tensor(b"(K\x04t", b"(" + long + b"t"),
        tensor(b"(K\x04t", b"(K\x01t", long),
        tensor(b"(J\xff\xff\xff\xfft", b"(K\x01t"),
        tensor(b"(K\x04K\x04t", b"(K\x01t"),
        tensor(b"(G?\xf0\0\0\0\0\0\0t", b"(K\x01t"),
    ]
    for number, opcodes in enumerate(tensors):
        data = text("tokens") + b"](" + opcodes + b"e"
        top = text("rollout_id") + b"K\x03" + text("rank") + b"K\x00"
        pickled = PROTO + b"}(" + top + text("rollout_data") + b"}(" + data + b"uu."
        path = tmp_path / f"{number}.pt"
        path.write_bytes(zipped(pickled, storages={"0": bytes(16)}))
        with pytest.raises(DumpError, match="tensor"):
            decode_in_process([path], tmp_path / f"out{number}")


def test_numpy_arrays_must_have_their_bytes(tmp_path):
    reconstruct = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t"
    made = reconstruct + text("b") + b"tR"
    for code, shape, data in (
        ("f8", b"(J\xff\xff\xff\x7ft", b"U\x08" + bytes(8)),
        ("f8", b"(K\x02t", b"U\x08" + bytes(8)),
        ("O8", b"(K\x01t", b"U\x08" + bytes(8)),
        ("M8", b"(K\x01t", b"U\x08" + bytes(8)),
    ):
        dtype = call("numpy", "dtype", text(code), b"K\x00", b"K\x01")
        value = made + b"(K\x01" + shape + dtype + b"\x89" + data + b"tb"
        path = tmp_path / "3.pt"
        path.write_bytes(zipped(in_dump(value)))
        with pytest.raises(DumpRefused, match="numpy array"):
            decode_in_process([path], tmp_path / f"{code}-{len(shape)}")


@pytest.mark.parametrize(
    ("content", "kind", "words"),
    [
        (b"", DumpTruncated, "empty"),
        (b"hello", DumpError, "neither a torch file nor a pickle"),
        (b"PK\x03\x04" + bytes(50), DumpTruncated, "no readable zip directory"),
        (
            b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.",
            DumpRefused,
            "before 1.6",
        ),
        (b"\x80\x04]\x94.", DumpError, "holds a list"),
        (b"\x80\x04}\x94.", DumpError, "its keys are none"),
    ],
)
def test_what_is_no_dump_says_so(tmp_path, content, kind, words):
    path = tmp_path / "3.pt"
    path.write_bytes(content)
    with pytest.raises(kind, match=words):
        decode_in_process([path], tmp_path / "out")


def test_what_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "3.pt")
    with pytest.raises(DumpError, match="is no file"):
        decode_in_process([tmp_path / "3.pt"], tmp_path / "out")


def test_a_deflated_archive_is_read_within_its_size(tmp_path):
    truth = make_truth(2)
    path = save_rollout(tmp_path / "3.pt", truth)
    packed = io.BytesIO()
    with (
        zipfile.ZipFile(path) as source,
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for name in source.namelist():
            target.writestr(name, source.read(name))
    path.write_bytes(packed.getvalue())
    decoded = decode_in_process([path], tmp_path / "out")
    assert [r["tokens"] for r in stage(decoded, "samples")] == [t.tokens for t in truth]
    assert not decoded.notes


def test_a_wrong_checksum_is_said(tmp_path):
    path = save_rollout(tmp_path / "3.pt", make_truth(2))
    content = path.read_bytes()
    place = content.index(b"s-100")
    path.write_bytes(content[:place] + b"S" + content[place + 1 :])
    decoded = decode_in_process([path], tmp_path / "out")
    assert "checksum" in decoded.notes[0]
    metadata = json.loads(stage(decoded, "samples")[0]["metadata"])
    assert metadata["sample"]["session_id"] == "S-100"
