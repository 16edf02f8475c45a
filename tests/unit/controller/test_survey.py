"""A node that does not fit the run is refused by name, and one that fits is not."""

from __future__ import annotations

import dataclasses
import pickle

import pytest

from relax.controller.survey import NodeReport, asking, check_node, code_digest, report
from relax.errors import ClusterError

VERSIONS = {
    "relax-rl": "0.1.0",
    "torch": "2.13.0",
    "megatron-core": "0.16.1",
    "ray": "2.60.0",
    "transformers": "5.0.0",
    "numpy": "2.0.0",
}
NODE = "node 10.0.0.2 (b, Ray node 0a1b2c3d)"


def reported(**changes) -> NodeReport:
    plain = NodeReport(
        host="b", versions=VERSIONS, code="c" * 64, sees={}, inputs={}, devices=()
    )
    return dataclasses.replace(plain, **changes)


def test_a_node_like_the_drivers_fits():
    check_node(NODE, reported(), reported())


@pytest.mark.parametrize("package", VERSIONS)
@pytest.mark.parametrize("version", ["0.0.1", None])
def test_another_version_is_refused_by_node_and_version(package, version):
    theirs = {name: v for name, v in VERSIONS.items() if name != package}
    if version is not None:
        theirs[package] = version
    with pytest.raises(ClusterError) as refused:
        check_node(NODE, reported(versions=theirs), reported())
    said = str(refused.value)
    for word in (NODE, package, version or "missing", VERSIONS[package]):
        assert word in said


@pytest.mark.parametrize(
    ("here", "there", "fits"),
    [
        ({}, {"transformer-engine": "2.8"}, True),
        ({"nvidia-driver": "580.1"}, {}, True),
        ({"nvidia-driver": "580.1"}, {"nvidia-driver": "570.2"}, False),
        ({"nvidia-nccl-cu13": "2.27"}, {"nvidia-nccl-cu13": "2.28"}, False),
    ],
)
def test_what_a_node_without_gpus_lacks_is_compared_only_where_it_is(here, there, fits):
    theirs, ours = (reported(versions=VERSIONS | more) for more in (there, here))
    if fits:
        check_node(NODE, theirs, ours)
        return
    with pytest.raises(ClusterError, match=next(iter(here))):
        check_node(NODE, theirs, ours)


def test_other_code_of_the_same_version_is_refused():
    with pytest.raises(ClusterError, match=f"{'d' * 12}, not {'c' * 12}"):
        check_node(NODE, reported(code="d" * 64), reported())


@pytest.mark.parametrize(("theirs", "word"), [(None, "does not see"), ("x", "another")])
def test_an_input_that_is_missing_or_another_is_refused(theirs, word, tmp_path):
    ours = reported(inputs={tmp_path: "y"})
    with pytest.raises(ClusterError, match=f"{word} {tmp_path}"):
        check_node(NODE, reported(inputs={tmp_path: theirs}), ours)


def test_a_node_sees_the_folders_that_it_shares_and_no_others(tmp_path):
    shared, copied = tmp_path / "new" / "shared", tmp_path / "copied"
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    with asking([shared, copied], [model, tmp_path / "none"]) as question:
        (copied / question.outputs[copied]).unlink()  # as on a node with another disk
        said = report(pickle.loads(pickle.dumps(question)))
        assert said.sees == {shared: True, copied: False}
    assert list(shared.iterdir()) == []
    assert said.inputs[tmp_path / "none"] is None
    before = said.inputs[model]
    (model / "config.json").write_text("{ }")
    with asking([], [model]) as question:
        assert report(question).inputs[model] not in (None, before)


def test_code_is_another_when_a_file_changed_moved_or_came(tmp_path):
    (tmp_path / "a.py").write_text("one\n")
    digests = [code_digest(tmp_path)]
    (tmp_path / "notes.txt").write_text("no code")
    assert code_digest(tmp_path) == digests[0]
    (tmp_path / "a.py").write_text("two\n")
    digests.append(code_digest(tmp_path))
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    digests.append(code_digest(tmp_path))
    (tmp_path / "c.py").touch()
    digests.append(code_digest(tmp_path))
    assert len(set(digests)) == 4
