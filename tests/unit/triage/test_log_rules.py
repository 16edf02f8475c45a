"""Crash signatures: each failure is found whatever its numbers, look-alikes are not."""

from __future__ import annotations

import random

import pytest
from log_cases import (
    CASES,
    LogCase,
    begun,
    illegal_access,
    missing_rank,
    shut_down,
    stop_strings,
)

from relax.dump.logs.read import read_log
from relax.triage.log_registry import LOG_RULES, run_log_rules
from relax.triage.log_signatures import FAILURES, MARKS
from relax.triage.verdict import Status
from relax_tui.checking.logs import log_evidence

SEEDS = 50


def judged(log, tmp_path, arguments=None):
    path = log.write(tmp_path / "run.log")
    story = read_log(path, marks=MARKS)
    evidence = log_evidence([story], arguments=dict(arguments or {}))
    return {verdict.rule: verdict for verdict in run_log_rules(evidence)}


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_each_failure_is_found_and_its_look_alike_is_not(case: LogCase, tmp_path):
    for seed in range(SEEDS):
        found = judged(case.make(random.Random(seed)), tmp_path, case.arguments)
        verdict = found[case.rule]
        assert verdict.status == case.status, (seed, verdict)
        assert case.fails in verdict.summary, (seed, verdict)
        told = " ".join(cause.text for cause in verdict.causes)
        assert case.words in told, (seed, told)
        assert verdict.evidence, seed
        if case.control is not None:
            control = judged(
                case.control(random.Random(seed)), tmp_path, case.arguments
            )
            assert control[case.rule].status in case.control_status, (seed, control)


def test_a_healthy_log_passes_every_rule(tmp_path):
    for seed in range(SEEDS):
        for rule, verdict in judged(begun(random.Random(seed)), tmp_path).items():
            assert verdict.status is Status.PASS, (seed, rule, verdict)


def test_the_first_failure_leads_and_the_rest_is_fallout(tmp_path):
    found = judged(illegal_access(random.Random(1)), tmp_path)
    assert found["engine_illegal_access"].status is Status.FAIL
    for rule in ("collective_stuck", "ray_deaths", "engine_killed"):
        assert found[rule].status is Status.INFO, found[rule]
        assert "follows illegal access" in found[rule].summary
    assert "illegal access" in found["first_failure"].summary


def test_evidence_names_file_line_and_words(tmp_path):
    found = judged(illegal_access(random.Random(1)), tmp_path)
    (first, *_) = found["engine_illegal_access"].evidence
    path, line, words = first.text.split(":", 2)
    assert path.endswith("run.log")
    written = (tmp_path / "run.log").read_text().splitlines()
    assert "illegal memory access" in written[int(line) - 1]
    assert "illegal memory access" in words


def test_the_guides_remedy_comes_with_the_command(tmp_path):
    arguments = {"rollout_stop": ["</answer>"], "hf_checkpoint": "/models/q"}
    verdict = judged(stop_strings(random.Random(2)), tmp_path, arguments)[
        "engine_illegal_access"
    ]
    assert verdict.causes[0].confidence == "high"
    assert "'</answer>'" in verdict.causes[0].text
    assert verdict.next_command == "relax-tui lint . --tokenizer /models/q"


def test_the_missing_rank_is_named(tmp_path):
    for seed in range(SEEDS):
        draw = random.Random(seed)
        log = missing_rank(draw)
        present = {n for n in range(8) if any(f"[rank{n}]" in row for row in log.lines)}
        (missing,) = set(range(8)) - present
        verdict = judged(log, tmp_path)["collective_stuck"]
        assert f"rank {missing}," in verdict.summary, verdict


def test_without_a_log_nothing_passes():
    verdicts = run_log_rules(log_evidence([], arguments={}))
    assert {verdict.status for verdict in verdicts} == {Status.NOT_RUN}


def test_escapes_in_a_log_do_not_reach_a_verdict(tmp_path):
    log = begun(random.Random(3))
    log.raw("\x1b[31m\x1b]0;title\x07[TP0] an illegal memory access\x1b[0m")
    verdict = judged(log, tmp_path)["engine_illegal_access"]
    assert "\x1b" not in verdict.evidence[0].text


def test_rules_have_ids_of_their_own_and_read_known_marks():
    ids = [rule.id for rule in LOG_RULES]
    assert len(set(ids)) == len(ids)
    assert all(set(rule.marks) <= MARKS.keys() for rule in LOG_RULES)
    assert set(FAILURES) <= MARKS.keys()


def test_what_a_run_survived_is_no_failure(tmp_path):
    log = begun(random.Random(4))
    for words in (
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "TimeoutError: the verifier took 10 s",
        "[Rank 2] torch.OutOfMemoryError: CUDA out of memory",
    ):
        log.say(words)
    before = judged(log, tmp_path)
    assert before["collective_stuck"].status is Status.FAIL
    for number in range(20, 23):
        log.say(f"Start rollout {number}/200")
        log.noise(5)
    after = judged(log, tmp_path)
    assert after["collective_stuck"].status is Status.WARN
    assert "the run went on" in after["collective_stuck"].summary


def test_errors_of_rewards_in_a_run_that_goes_on_are_no_warning(tmp_path):
    log = begun(random.Random(4))
    log.say("TimeoutError: the verifier took 10 s")
    assert judged(log, tmp_path)["first_failure"].status is Status.WARN
    log.say("Start rollout 50/200")
    log.noise(5)
    assert judged(log, tmp_path)["first_failure"].status is Status.INFO


def test_an_engine_that_was_shut_down_did_not_fail(tmp_path):
    for seed in range(SEEDS):
        for rule, verdict in judged(shut_down(random.Random(seed)), tmp_path).items():
            assert verdict.status is Status.PASS, (seed, rule, verdict)
