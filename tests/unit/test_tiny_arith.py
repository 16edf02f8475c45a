"""The tiny arithmetic example: what is committed is whole, small and honest."""

from __future__ import annotations

import json
import random
import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
import yaml

FOLDER = Path(__file__).parents[2] / "examples" / "tiny_arith"
MODEL = FOLDER / "model"
SEED = 7


def load(name: str) -> ModuleType:
    """A module of the example, under a name that shadows nothing."""
    unique = f"tiny_arith_{name}"
    if unique not in sys.modules:
        spec = spec_from_file_location(unique, FOLDER / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = module_from_spec(spec)
        sys.modules[unique] = module
        spec.loader.exec_module(module)
    return sys.modules[unique]


data = load("data")
score = load("reward").score


def rows(name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (FOLDER / name).read_text().splitlines()]


@pytest.fixture(scope="module")
def tokenizer():
    transformers = pytest.importorskip("transformers")
    return transformers.AutoTokenizer.from_pretrained(MODEL)


def pairs(problems) -> set[frozenset[int]]:
    return {frozenset((p.left, p.right)) for p in problems}


# -- data --------------------------------------------------------------------------


def test_committed_prompts_are_what_the_split_deals_out() -> None:
    splits = data.split(seed=SEED)
    assert rows("train.jsonl") == [p.row() for p in splits.train]
    assert rows("heldout.jsonl") == [p.row() for p in splits.heldout]


def test_no_pair_of_numbers_is_in_two_sets() -> None:
    splits = data.split(seed=SEED)
    sft, train, heldout = map(pairs, (splits.sft, splits.train, splits.heldout))
    assert not sft & train
    assert not sft & heldout
    assert not train & heldout
    assert len(train) >= 256
    assert len(heldout) >= 100


def test_labels_are_the_sums_of_the_numbers_in_the_prompt() -> None:
    for row in (*rows("train.jsonl"), *rows("heldout.jsonl")):
        left, right = (int(digits) for digits in re.findall(r"\d+", row["input"]))
        assert left + right == int(row["label"])


def test_the_student_is_right_about_one_time_in_three() -> None:
    drawn = data.answers(data.split(seed=SEED).sft, count=4000, seed=1)
    right = sum(score(text, problem.label) for problem, text in drawn) / 4000
    assert 0.25 < right < 0.38


def test_the_student_repeats_himself_given_the_same_seed() -> None:
    problem = data.Problem(left=47, right=38, wording=0)
    first, second = (
        [data.answer(problem, rng=random.Random(seed)) for seed in range(20)]
        for _ in range(2)
    )
    assert first == second
    assert len(set(first)) > 5


# -- reward ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("response", "reward"),
    [
        ("It is about 85.", 1.0),
        ("40+30=70, 7+8=15, so it is 85.", 1.0),
        ("85, or 84.", 0.0),
        ("It is about 185.", 0.0),
        ("It is about 8 5.", 0.0),
        ("It is about -85.", 0.0),
        ("It is about 085.", 1.0),
        ("It is about", 0.0),
        ("", 0.0),
    ],
)
def test_score_reads_the_last_number(response: str, reward: float) -> None:
    assert score(response, "85") == reward


# -- tokenizer and model -----------------------------------------------------------


def test_every_prompt_and_answer_survives_the_tokenizer(tokenizer) -> None:
    splits = data.split(seed=SEED)
    texts = [p.prompt for p in (*splits.train, *splits.heldout)]
    texts += [text for _, text in data.answers(splits.sft, count=500, seed=3)]
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert len(ids) == len(text)
        assert tokenizer.unk_token_id not in ids
        assert tokenizer.decode(ids) == text


def test_answers_fit_the_response_length_of_the_demo(tokenizer) -> None:
    limit = int(settings()["rollout-max-response-len"])
    drawn = data.answers(data.split(seed=SEED).sft, count=2000, seed=4)
    longest = max(len(tokenizer.encode(text)) + 1 for _, text in drawn)
    assert 20 <= longest < limit


def test_chat_template_marks_who_speaks(tokenizer) -> None:
    turn = [{"role": "user", "content": "47 + 38 = ?"}]
    text = tokenizer.apply_chat_template(
        turn, tokenize=False, add_generation_prompt=True
    )
    assert text == "<bos><user>47 + 38 = ?<assistant>"
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert len(ids) == len("47 + 38 = ?") + 3
    answered = tokenizer.apply_chat_template(
        [*turn, {"role": "assistant", "content": "85."}], tokenize=False
    )
    assert answered == text + "85." + tokenizer.eos_token


def test_model_is_small_and_its_vocabulary_is_the_tokenizers(tokenizer) -> None:
    safetensors = pytest.importorskip("safetensors")
    path = MODEL / "model.safetensors"
    assert path.stat().st_size < 4_000_000
    config = json.loads((MODEL / "config.json").read_text())
    assert config["vocab_size"] == len(tokenizer)
    assert config["eos_token_id"] == tokenizer.eos_token_id
    with safetensors.safe_open(path, framework="numpy") as file:
        names = file.keys()
        weights = {name: file.get_tensor(name) for name in names}
    assert "lm_head.weight" not in weights  # tied to the embedding
    assert {str(weight.dtype) for weight in weights.values()} == {"float32"}
    assert 100_000 < sum(weight.size for weight in weights.values()) <= 900_000


# -- demo --------------------------------------------------------------------------


def settings() -> dict[str, object]:
    return yaml.safe_load((FOLDER / "demo.yaml").read_text())


def test_demo_names_files_that_exist_and_batches_that_fit() -> None:
    demo = settings()
    for key in ("hf-checkpoint", "ref-load", "prompt-data"):
        assert (FOLDER / str(demo[key])).exists()
    samples = int(demo["rollout-batch-size"]) * int(demo["n-samples-per-prompt"])
    assert samples == demo["global-batch-size"] * demo["num-steps-per-rollout"]
