"""Garbled and looping responses are found; strange but healthy ones are not."""

from __future__ import annotations

import base64
import random

import numpy as np
import pytest

from relax.triage.evidence import RolloutEvidence
from relax.triage.rules import repetition, responses_coherent
from relax.triage.verdict import Status

COHERENT = responses_coherent.RULE.check
REPEATS = repetition.RULE.check
VOCAB = 150_000
DICE = random.Random(0)

HEALTHY = {
    "chinese": "首先，我们使用Python计算12+7的结果。答案是19，因此选项B正确。" * 3,
    "japanese": "まずコーヒーをいれて、emailを書きます。答えは19です。" * 3,
    "russian": "Сначала сложим 12 и 7, затем проверим ответ: 19. IT-отдел согласен.",
    "arabic": "الجواب هو 19 لأن مجموع 12 و 7 يساوي 19، وهذا واضح.",
    "hindi": "पहले हम 12 और 7 को जोड़ते हैं, उत्तर 19 है और यह सही है।",
    "thai": "คำตอบคือ 19 เพราะ 12 บวก 7 เท่ากับ 19 ใช้iPhoneคิดก็ได้",
    "greek": "Έστω ότι η απάντηση είναι 19, άρα το άθροισμα είναι σωστό.",
    "ten languages": "hello, привет, 你好, こんにちは, 안녕, مرحبا, שלום, γεια, สวัสดี",
    "code": "def f(x):\n\treturn [y for y in x if y != 0x1F]  # λ-free\n" * 4,
    "latex": r"\begin{align} \int_0^1 e^{-x^2}dx &= \frac{\sqrt\pi}{2} \end{align}",
    "base64": base64.b64encode(bytes(DICE.randrange(256) for _ in range(300))).decode(),
    "poem": "Tyger Tyger, burning bright,\nIn the forests of the night;\n" * 3,
    "table": "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 30,
    "emoji": "Great! 🎉👩‍👩‍👧‍👦 the answer is 19 👍🏽 and cut \ufffd\ufffd",
    "terminal": "\x1b[31mred\x1b[0m and \x1b[1mbold\x1b[0m text, 3 errors",
}


def evidence(responses, *, mean=-0.6, ids=None, rollout_id=0, vocab=VOCAB, size=64):
    """Samples of one text each, with log-probs around a mean."""
    rng = np.random.default_rng(0)
    count = len(responses)
    ids = ids or [rng.integers(0, vocab, size).tolist() for _ in responses]
    spread = np.float32(mean * rng.uniform(0.5, 1.5, size=(count, len(ids[0]))))
    columns = {
        "response": responses,
        "tokens": [[0, *tokens] for tokens in ids],
        "response_length": [len(tokens) for tokens in ids],
        "rollout_log_probs": list(spread),
    }
    return RolloutEvidence(rollout_id=rollout_id, columns=columns, vocab_size=vocab)


@pytest.mark.parametrize("kind", HEALTHY)
def test_healthy_text_is_silent(kind):
    verdict = COHERENT(evidence([HEALTHY[kind]] * 16))
    assert (verdict.status, verdict.numbers["garbled"]) == (Status.PASS, 0)


@pytest.mark.parametrize("kind", ["poem", "chinese", "code"])
def test_healthy_text_of_a_small_unsure_model_is_silent(kind):
    # SmolLM2-135M at temperature 1: mean -2.03, vocabulary 49,152.
    verdict = COHERENT(evidence([HEALTHY[kind]] * 16, mean=-2.03, vocab=49_152))
    assert verdict.status is Status.PASS


def test_a_tiny_vocabulary_with_short_answers_is_silent():
    verdict = COHERENT(evidence(["12+7=19"] * 64, mean=-1.2, vocab=64, size=7))
    assert verdict.status is Status.PASS


@pytest.mark.parametrize("size", [4, 64])
def test_sampling_from_noise_fails_whatever_the_characters(size):
    verdict = COHERENT(evidence(["plain words here"] * 32, mean=-11.9, size=size))
    assert verdict.status is Status.FAIL
    assert "noise has -11.92" in verdict.evidence[0].text
    assert "checkpoint" in verdict.causes[0].text


def test_later_garbling_is_divergence():
    verdict = COHERENT(evidence(["words"] * 8, mean=-11.9, rollout_id=30))
    assert "diverged" in verdict.causes[0].text


def test_replacement_characters_and_one_token_are_decisive():
    assert COHERENT(evidence(["\ufffda\ufffd\ufffdb"] * 8)).status is Status.FAIL
    nan_logits = evidence(["!" * 64] * 8, ids=[[0] * 64] * 8)
    assert COHERENT(nan_logits).status is Status.FAIL


SALAD = "Моskваtion ofअनुde gooדד wиth кat ofthe Привetа loשn"


def test_one_sign_is_not_enough_and_two_are():
    assert COHERENT(evidence([SALAD] * 8)).status is Status.PASS
    verdict = COHERENT(evidence([SALAD] * 8, mean=-6.0))
    assert verdict.status is Status.FAIL
    assert "join scripts" in verdict.evidence[0].text


def test_a_few_garbled_samples_warn():
    texts = ["fine"] * 13 + ["\ufffd\ufffdx"] * 3
    verdict = COHERENT(evidence(texts))
    assert verdict.status is Status.WARN
    assert verdict.where.sample_index == 13


def test_absent_masked_zero_and_non_finite():
    assert COHERENT(RolloutEvidence(rollout_id=0)).status is Status.NOT_RUN
    texts = {"response": ["", ""], "response_length": [0, 0]}
    empty = RolloutEvidence(rollout_id=0, columns=texts)
    assert COHERENT(empty).status is Status.VACUOUS
    texts = {"response": ["ab"], "response_length": [2], "loss_mask": [[0, 0]]}
    masked = RolloutEvidence(rollout_id=0, columns=texts)
    assert COHERENT(masked).status is Status.VACUOUS
    assert REPEATS(masked).status is Status.VACUOUS
    assert COHERENT(evidence(["sure"] * 4, mean=0.0)).status is Status.PASS
    broken = evidence(["sure"] * 4)
    broken.columns["rollout_log_probs"][2][3] = np.nan
    verdict = COHERENT(broken)
    assert verdict.status is Status.NON_FINITE
    assert (verdict.where.sample_index, verdict.where.position) == (2, 3)


def looping(rollout_id):
    ids = [[5, 6, 7] * 30] * 8
    return evidence(["12 + 7 = " * 30] * 8, ids=ids, rollout_id=rollout_id)


def test_loops_warn_at_first_and_fail_later():
    assert REPEATS(looping(0)).status is Status.WARN
    assert REPEATS(looping(5)).status is Status.FAIL
    assert REPEATS(looping(5)).where.sample_index == 0


@pytest.mark.parametrize("kind", HEALTHY)
def test_healthy_text_does_not_loop(kind):
    assert REPEATS(evidence([HEALTHY[kind]] * 8, rollout_id=5)).status is Status.PASS


def test_repetition_without_responses():
    assert REPEATS(RolloutEvidence(rollout_id=0)).status is Status.NOT_RUN
