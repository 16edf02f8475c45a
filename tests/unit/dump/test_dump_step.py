"""A step's dump: its manifest, its second part, what stays and what goes."""

from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path

import pytest
import torch
from dump_steps import facts, names, samples, step

from relax.arguments import parse_arguments
from relax.dump.manifest import (
    Coverage,
    Manifest,
    WeightsNote,
    read_manifest,
    write_manifest,
)
from relax.dump.paths import DumpPlaces, DumpTemplate, manifest_path
from relax.dump.write import (
    DumpDirectory,
    ModelFiles,
    Retention,
    StepToDump,
    dump_step,
)
from relax.dump.write.disk import hash_file
from relax.errors import (
    ArgumentError,
    DumpError,
    DumpMissing,
    DumpTooNew,
    DumpTruncated,
)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "config.json").write_text('{"hidden_size": 8}')
    (folder / "tokenizer.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text('{"chat_template": "{{ m }}"}')
    (folder / "model.safetensors").write_bytes(b"weights are not copied")
    return folder


def test_a_step_is_rollout_ranks_tokenizer_and_manifest(tmp_path, checkpoint):
    folder = tmp_path / "dump"
    dumped = dump_step(folder, step(37), facts=facts(checkpoint))
    assert names(folder) == [
        "rollout_data/37.manifest.json",
        "rollout_data/37.pt",
        "tokenizer/tokenizer.json",
        "tokenizer/tokenizer_config.json",
        "train_data/37_0.pt",
        "train_data/37_1.pt",
    ]
    assert dumped.manifest == folder / "rollout_data" / "37.manifest.json"
    manifest = read_manifest(dumped.manifest)
    assert manifest.coverage == Coverage(samples=4, ranks=(0, 1), world_size=2)
    assert [file.path for file in manifest.files] == [
        "37.pt",
        "../train_data/37_0.pt",
        "../train_data/37_1.pt",
    ]
    for file in manifest.files:
        place = dumped.manifest.parent / file.path
        assert hash_file(place) == file.sha256
        assert place.stat().st_size == file.bytes
    assert manifest.weights == WeightsNote(version=37, fingerprint="f00d")
    assert manifest.weights.folder == "not kept"
    assert manifest.micro_batches == step(37).micro_batches
    assert len(manifest.tokenizer_sha256) == len(manifest.chat_template_sha256) == 64
    assert manifest.model_config_sha256 == hash_file(checkpoint / "config.json")
    train = torch.load(folder / "train_data" / "37_1.pt", weights_only=True)
    assert (train["rollout_id"], train["rank"]) == (37, 1)


def test_a_manifest_holds_no_secret(tmp_path):
    dumped = dump_step(tmp_path, step(), facts=facts())
    text = dumped.manifest.read_text()
    assert "0123456789abcdef" not in text
    entry = read_manifest(dumped.manifest).arguments["wandb_key"]
    assert entry == {"value": "<redacted>", "origin": "flag"}


def test_samples_first_and_ranks_later_make_one_dump(tmp_path):
    whole = step(0)
    first = dataclasses.replace(whole, ranks={}, micro_batches=())
    second = dataclasses.replace(whole, samples=None)
    directory = DumpDirectory(places=DumpPlaces.under(tmp_path), facts=facts())
    path = directory.dump(first).manifest
    assert read_manifest(path).coverage == Coverage(samples=4, world_size=2)
    directory.dump(second)
    manifest = read_manifest(path)
    assert manifest.coverage == Coverage(samples=4, ranks=(0, 1), world_size=2)
    assert len(manifest.files) == 3
    assert manifest.micro_batches


def test_the_same_step_again_is_accepted(tmp_path):
    one = dump_step(tmp_path, step(), facts=facts())
    two = dump_step(tmp_path, step(), facts=facts())
    assert [file.sha256 for file in one.files[:-1]] == [
        file.sha256 for file in two.files[:-1]
    ]


def test_ranks_of_another_run_are_not_mixed_in(tmp_path):
    dump_step(tmp_path, step(ranks=2), facts=facts())
    samples_only = dataclasses.replace(step(), ranks={})
    other = facts(run_id="run-2")
    before = names(tmp_path)
    with pytest.raises(DumpError, match="run-1, attempt 1, is there already"):
        dump_step(tmp_path, samples_only, facts=other)
    assert names(tmp_path) == before
    dumped = dump_step(tmp_path, samples_only, facts=other, overwrite=True)
    assert names(tmp_path) == ["rollout_data/0.manifest.json", "rollout_data/0.pt"]
    assert read_manifest(dumped.manifest).run_id == "run-2"


def test_a_step_with_nothing_in_it_is_refused(tmp_path):
    empty = StepToDump(rollout_id=3, weights=WeightsNote(version=0))
    with pytest.raises(DumpError, match="nothing to dump of rollout 3"):
        dump_step(tmp_path, empty, facts=facts())


def test_lost_ranks_are_named(tmp_path):
    lost = dataclasses.replace(step(ranks=1), missing={"rank 1": "its worker died"})
    dumped = dump_step(tmp_path, lost, facts=facts())
    coverage = read_manifest(dumped.manifest).coverage
    assert str(coverage) == "4 samples, 1 of 2 ranks"
    assert coverage.missing == {"rank 1": "its worker died"}


def kept(folder: Path) -> list[str]:
    return [name for name in names(folder) if name.endswith(".pt")]


def dump_several(folder: Path, retention: Retention, count: int = 4) -> list[str]:
    directory = DumpDirectory(
        places=DumpPlaces.under(folder), facts=facts(), retention=retention
    )
    told = []
    for rollout_id in range(count):
        dumped = directory.dump(step(rollout_id, ranks=1))
        told += [f"{p.rollout_id} {p.reason}" for p in dumped.pruned]
        assert not any(p.left for p in dumped.pruned)
    return told


def test_the_last_dumps_stay(tmp_path):
    told = dump_several(tmp_path, Retention(keep_last=2))
    assert told == ["0 --dump-keep-last 2", "1 --dump-keep-last 2"]
    assert kept(tmp_path) == [
        *("rollout_data/2.pt", "rollout_data/3.pt"),
        *("train_data/2_0.pt", "train_data/3_0.pt"),
    ]
    assert not (tmp_path / "rollout_data" / "1.manifest.json").exists()


def test_bytes_are_bounded_but_the_newest_stays(tmp_path):
    size = dump_step(tmp_path / "one", step(0, ranks=1), facts=facts())
    room = sum(file.bytes for file in size.files[:-1]) * 2
    told = dump_several(tmp_path / "a", Retention(max_bytes=room))
    assert [line.split()[0] for line in told] == ["0", "1"]
    told = dump_several(tmp_path / "b", Retention(max_bytes=1))
    assert kept(tmp_path / "b") == ["rollout_data/3.pt", "train_data/3_0.pt"]
    assert told[0] == "0 --dump-max-bytes 1"


def test_only_what_our_manifests_name_is_removed(tmp_path):
    folder = tmp_path / "rollout_data"
    folder.mkdir()
    foreign = folder / "99.pt"
    foreign.write_bytes(b"another engine's")
    other = dump_step(tmp_path, step(50), facts=facts(run_id="run-0"))
    told = dump_several(tmp_path, Retention(keep_last=1))
    assert len(told) == 3
    assert foreign.exists()
    assert all(file.path.exists() for file in other.files)


def test_a_manifest_cannot_make_us_remove_a_file_elsewhere(tmp_path):
    precious = tmp_path / "precious.pt"
    precious.write_bytes(b"x" * 10)
    folder = tmp_path / "dump"
    old = dump_step(folder, step(0, ranks=0), facts=facts())
    manifest = read_manifest(old.manifest)
    file = dataclasses.replace(manifest.files[0], path="../../precious.pt", bytes=10)
    changed = dataclasses.replace(manifest.files[0], bytes=1)
    hostile = dataclasses.replace(manifest, files=(file, changed))
    write_manifest(old.manifest, hostile)
    directory = DumpDirectory(
        places=DumpPlaces.under(folder),
        facts=facts(),
        retention=Retention(keep_last=1),
    )
    (pruned,) = directory.dump(step(1)).pruned
    assert precious.exists()
    assert (folder / "rollout_data" / "0.pt").exists()
    assert "stays" in pruned.left
    assert pruned.bytes == 0


def test_templates_of_the_flags_place_files_where_they_say(tmp_path):
    places = DumpPlaces(
        rollout=DumpTemplate(str(tmp_path / "data_{rollout_id:04d}.pt")),
        train=DumpTemplate(str(tmp_path / "t" / "{rank}" / "{rollout_id}.pt")),
    )
    DumpDirectory(places=places, facts=facts()).dump(step(5))
    assert names(tmp_path) == [
        "data_0005.manifest.json",
        "data_0005.pt",
        "t/0/5.pt",
        "t/1/5.pt",
    ]


def test_only_train_dumps_have_a_manifest_too(tmp_path):
    places = DumpPlaces(train=DumpTemplate(str(tmp_path / "{rollout_id}_{rank}.pt")))
    dumped = DumpDirectory(places=places, facts=facts()).dump(step(5))
    assert dumped.manifest == manifest_path(tmp_path / "5_0.pt")
    assert read_manifest(dumped.manifest).replay == {}


@pytest.mark.parametrize(
    ("text", "kind", "world_size", "corrected"),
    [
        ("d/data.pt", "rollout", 1, "d/data_{rollout_id}.pt"),
        ("d/data.pt", "train", 2, "d/data_{rollout_id}_{rank}.pt"),
        ("d/{rollout_id}.pt", "train", 2, "d/{rollout_id}_{rank}.pt"),
    ],
)
def test_a_template_is_refused_with_the_corrected_one(
    text, kind, world_size, corrected
):
    with pytest.raises(ArgumentError) as caught:
        DumpTemplate(text).check(world_size=world_size, num_rollout=9, kind=kind)
    assert caught.value.hint == f"write {corrected}"
    DumpTemplate(corrected).check(world_size=world_size, num_rollout=9, kind=kind)


def test_a_template_needs_only_what_keeps_files_apart():
    DumpTemplate("x.pt").check(world_size=1, num_rollout=1, kind="train")
    DumpTemplate("{{x}}_{rollout_id}.pt").check(
        world_size=1, num_rollout=None, kind="rollout"
    )
    assert DumpTemplate("{{x}}_{rollout_id}.pt").path(rollout_id=3) == Path("{x}_3.pt")
    for bad in ("{rollout_id", "{0}", "{rank}_{rollout_id}", "{rollout_id.real}"):
        with pytest.raises(ArgumentError):
            DumpTemplate(bad).check(world_size=1, num_rollout=None, kind="rollout")


def test_a_folder_with_braces_is_no_template(tmp_path):
    folder = tmp_path / "{rank}{x"
    dump_step(folder, step(1), facts=facts())
    assert len(names(folder)) == 4


def test_the_replay_lines_are_read_as_the_run_was(tmp_path, checkpoint):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("{}\n")
    given = parse_arguments(
        shlex.split(
            f"--hf-checkpoint {checkpoint} --prompt-data {prompts} --num-rollout 30"
            " --rollout-batch-size 2 --n-samples-per-prompt 2 --global-batch-size 4"
            " --rollout-max-response-len 8 --lr 1e-5 --kl-coef -0.0"
            f" --dump-details '{tmp_path}/dump {{x}}' --pause-at start --walk"
            " --rollout-stop a 'b c' --advantage-estimator grpo"
            " --disable-rewards-normalization --rm-type last_number"
        )
    )
    run = dataclasses.replace(facts(checkpoint), arguments=given.to_json())
    dumped = dump_step(tmp_path / "dump {x}", step(7), facts=run)
    replay = read_manifest(dumped.manifest).replay
    assert set(replay) == {"train-only", "forge"}
    for kind, line in replay.items():
        words = shlex.split(line)
        assert words[1:3] == ["-m", "relax.entrypoints.train"]
        again = parse_arguments(words[3:])
        assert again.debug.debug_train_only == (kind == "train-only")
        assert again.data.num_rollout == 1
        assert again.debug.dump_details is None
        assert again.batch == given.batch
        assert again.algorithm == given.algorithm
        assert again.rollout.rollout_stop == ("a", "b c")
        path = (
            again.debug.load_debug_rollout_data or again.debug.load_forge_rollout_data
        )
        assert DumpTemplate(path or "").path(rollout_id=0) == dumped.files[0].path


def test_kept_weights_are_loaded_by_the_replay(tmp_path):
    weights = WeightsNote(version=1, folder="/weights/1")
    dumped = dump_step(
        tmp_path, dataclasses.replace(step(), weights=weights), facts=facts()
    )
    replay = read_manifest(dumped.manifest).replay
    assert all("--load /weights/1" in line for line in replay.values())


def test_a_manifest_reads_back_and_knows_its_limits(tmp_path):
    path = tmp_path / "0.manifest.json"
    manifest = Manifest(
        run_id="r",
        attempt=2,
        rollout_id=0,
        written_at=1.5,
        weights=WeightsNote(version=0),
        coverage=Coverage(samples=len(samples())),
        files=(),
        git={"commit": "a", "dirty": True},
    )
    write_manifest(path, manifest)
    assert read_manifest(path) == manifest
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "later": 1}))
    assert read_manifest(path) == manifest
    with pytest.raises(DumpMissing):
        read_manifest(tmp_path / "1.manifest.json")
    for text, kind in (
        (path.read_text()[:50], DumpTruncated),
        (json.dumps({**document, "schema_version": 99}), DumpTooNew),
        ("[]", DumpError),
        ("[" * 100_000, DumpTruncated),
        (json.dumps({**document, "files": [{"path": 3}]}), DumpError),
        (json.dumps({**document, "coverage": None}), DumpError),
        (json.dumps({**document, "arguments": 3}), DumpError),
    ):
        path.write_text(text)
        with pytest.raises(kind) as caught:
            read_manifest(path)
        assert caught.value.where == str(path)


def test_the_model_files_tell_models_apart(checkpoint):
    first = ModelFiles.of(checkpoint)
    assert set(first.tokenizer) == {"tokenizer.json", "tokenizer_config.json"}
    (checkpoint / "chat_template.jinja").write_text("{{ other }}")
    second = ModelFiles.of(checkpoint)
    assert second.chat_template_sha256 != first.chat_template_sha256
    assert second.tokenizer_sha256 != first.tokenizer_sha256
    assert second.model_config_sha256 == first.model_config_sha256
    bare = ModelFiles.of(checkpoint / "nothing")
    assert (bare.tokenizer, bare.tokenizer_sha256, bare.chat_template_sha256) == (
        {},
        "",
        "",
    )
