"""The check over runs, dumps, logs and JSONL: alone, together, broken, missing."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from log_cases import CASES, begun, stop_strings
from printed_logs import PrintedLog, healthy

from relax.dump.write import write_rollout_dump, write_train_dump
from relax.errors import DumpError, DumpMissing
from relax.triage.verdict import Status
from relax_tui.checking.baseline import against_baseline
from relax_tui.checking.check import check
from relax_tui.checking.checked import Checked, CheckOptions
from relax_tui.checking.difference import compare
from relax_tui.checking.difference_text import difference_text
from relax_tui.checking.outcome import by_rule, document, exit_code
from relax_tui.checking.text_report import text_report

SCHEMA = Path(__file__).parents[3] / "relax" / "triage" / "report.schema.json"


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def samples(rollout_id=0, *, count=8, noise=0.0, text="The answer is 42.", seed=0):
    draw = np.random.default_rng(seed + rollout_id)
    made = []
    for number in range(count):
        length = int(draw.integers(20, 40))
        log_probs = -draw.exponential(0.4, length)
        made.append(
            {
                "index": rollout_id * count + number,
                "group_index": number // 4,
                "prompt": f"question {number // 4}",
                "tokens": draw.integers(5, 900, 6 + length).tolist(),
                "response": text,
                "response_length": length,
                "reward": float(number % 2),
                "loss_mask": [1] * length,
                "rollout_log_probs": log_probs.tolist(),
                "status": "completed",
                "log_probs": (log_probs + noise).astype(np.float32),
            }
        )
    return made


def dump(folder, rollout_id=0, *, ref_noise=0.0, **more):
    """A rollout dump and the train dump of its one rank."""
    made = samples(rollout_id, **more)
    columns = {
        "tokens": [np.array(s["tokens"], np.int64) for s in made],
        "response_lengths": [s["response_length"] for s in made],
        "total_lengths": [len(s["tokens"]) for s in made],
        "loss_masks": [np.array(s["loss_mask"], np.int32) for s in made],
        "sample_indices": [s["index"] for s in made],
        "log_probs": [s["log_probs"] for s in made],
        "ref_log_probs": [s["log_probs"] + np.float32(ref_noise) for s in made],
        "rollout_log_probs": [
            np.array(s["rollout_log_probs"], np.float32) for s in made
        ],
    }
    for sample in made:
        del sample["log_probs"]
    rollout = folder / "rollout_data" / f"{rollout_id}.pt"
    train = folder / "train_data" / f"{rollout_id}_0.pt"
    write_rollout_dump(rollout, made, rollout_id=rollout_id)
    write_train_dump(train, columns, rollout_id=rollout_id, rank=0)
    return folder


def rules(checked):
    return {outcome.verdict.rule: outcome for outcome in by_rule(checked.verdicts)}


def test_a_healthy_log_alone(tmp_path):
    checked = check([healthy(3).write(tmp_path / "run.log")])
    found = rules(checked)
    assert exit_code(checked.verdicts) == 0
    assert checked.rollouts == (0, 1, 2)
    assert found["grad_norm"].verdict.status is Status.PASS
    assert found["responses_coherent"].verdict.status is Status.PASS
    assert found["rewards_have_signal"].verdict.status is Status.NOT_RUN


def test_a_dump_alone_says_what_it_could_not_check(tmp_path):
    checked = check([dump(tmp_path)])
    found = rules(checked)
    assert found["log_probs_equal_ref"].verdict.status is Status.PASS
    assert found["log_probs_vs_rollout"].verdict.status is Status.PASS
    assert found["grad_norm"].verdict.status is Status.NOT_RUN
    assert any("no log" in text for text in checked.missing)


def test_log_and_dump_together_check_more_than_each(tmp_path):
    folder = dump(tmp_path / "dumps")
    log = healthy(1).write(tmp_path / "run.log")
    found = rules(check([log, folder]))
    assert found["grad_norm"].verdict.status is Status.PASS
    assert "0 of" in found["log_probs_equal_ref"].verdict.summary


def test_the_first_unequal_token_is_named(tmp_path):
    checked = check([dump(tmp_path, ref_noise=0.25)])
    verdict = rules(checked)["log_probs_equal_ref"].verdict
    assert verdict.status is Status.FAIL
    assert verdict.where.rollout_id == 0
    assert verdict.where.position == 0
    assert str(tmp_path) in verdict.next_command


def test_a_garbled_response_in_a_log(tmp_path):
    log = healthy(2, response="\ufffd\ufffda " * 40 + ".")
    found = rules(check([log.write(tmp_path / "run.log")]))
    assert found["responses_coherent"].verdict.status is Status.FAIL
    assert found["responses_coherent"].verdict.where.rollout_id == 0


def test_numbers_of_a_log_point_at_their_line(tmp_path):
    log = healthy(2)
    log.step(2, {"train/grad_norm": "=nan"})
    path = log.write(tmp_path / "run.log")
    verdict = rules(check([path]))["grad_norm"].verdict
    assert verdict.status is Status.NON_FINITE
    line = int(verdict.evidence[0].text.split(":")[1])
    assert "grad_norm" in path.read_text().splitlines()[line - 1]


def test_resumed_weights_are_not_expected_to_equal_the_reference(tmp_path):
    log = PrintedLog()
    log.say("successfully loaded checkpoint from /c at iteration 40")
    log.rollout(0, {"rollout/log_probs": -0.5, "rollout/ref_log_probs": -0.4})
    found = rules(check([log.write(tmp_path / "run.log")]))
    assert found["log_probs_equal_ref"].verdict.status is Status.INFO
    assert found["resumed_from_zero"].verdict.status is Status.WARN


def test_old_log_probs_of_the_step_itself_are_vacuous(tmp_path):
    log = PrintedLog()
    for number in range(3):
        log.rollout(number, {"rollout/raw_reward": 0.5})
        log.step(number, {"train/ppo_kl": 0.0, "train/grad_norm": 2.955e9})
    found = rules(check([log.write(tmp_path / "run.log")]))
    assert found["ppo_kl"].verdict.status is Status.VACUOUS
    assert found["grad_norm"].verdict.status is Status.FAIL


def test_jsonl_of_another_engine(tmp_path):
    path = tmp_path / "7.jsonl"
    lines = [
        {"input": "q", "output": "fine", "gts": "a", "score": 0.0, "step": 7}
        for _ in range(4)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    checked = check([path])
    assert checked.rollouts == (7,)
    assert rules(checked)["rewards_have_signal"].verdict.status is Status.WARN


def test_a_broken_dump_among_good_ones_is_told(tmp_path):
    folder = dump(tmp_path)
    dump(tmp_path, 1)
    broken = folder / "rollout_data" / "1.pt"
    broken.write_bytes(broken.read_bytes()[:2000])
    checked = check([folder])
    assert any("1.pt" in text for text in checked.unread)
    assert 0 in checked.rollouts


def test_what_cannot_be_read_is_an_error(tmp_path):
    with pytest.raises(DumpMissing):
        check([tmp_path / "none"])
    noise = tmp_path / "noise.bin"
    noise.write_bytes(bytes(range(256)) * 20)
    with pytest.raises(DumpError):
        check([noise])


def test_nothing_to_check(tmp_path):
    (tmp_path / "empty.log").write_text("")
    assert exit_code(check([tmp_path / "empty.log"]).verdicts) == 3


def test_arguments_reach_the_rules_with_their_origin(tmp_path):
    settings = tmp_path / "run.yaml"
    settings.write_text("hf_checkpoint: /models/q\nrollout_stop: ['</answer>']\n")
    log = stop_strings(random.Random(0)).write(tmp_path / "run.log")
    options = CheckOptions(arguments_file=settings)
    verdict = rules(check([log], options))["engine_illegal_access"].verdict
    assert verdict.next_command == f"relax-tui lint {settings} --tokenizer /models/q"


@pytest.mark.parametrize("fail_on", ["fail", "warn"])
def test_exit_codes_by_severity(tmp_path, fail_on):
    log = healthy(2)
    log.say("Inf found in gradients (step_id=0)")
    checked = check([log.write(tmp_path / "run.log")])
    assert exit_code(checked.verdicts, fail_on=fail_on) == (fail_on == "warn")


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_report_of_a_failing_run_fits_one_screen(case, tmp_path):
    path = case.make(random.Random(0)).write(tmp_path / "run.log")
    text = text_report(check([path]))
    rows = text.splitlines()
    assert sum(-(-max(len(row), 1) // 80) for row in rows) <= 23, text
    named = [row for row in rows if case.rule in row]
    assert named, text
    if case.status == "FAIL":
        first = next(row for row in rows if row.startswith("FAIL"))
        assert case.rule in first, text
        for label in ("where", "why", "next"):
            assert any(row.strip().startswith(label) for row in rows), text


def test_many_faults_still_fit(tmp_path):
    log = begun(random.Random(0))
    for case in CASES:
        log.lines += case.make(random.Random(0)).lines
    rows = text_report(check([log.write(tmp_path / "x.log")])).splitlines()
    assert len(rows) <= 23
    assert any("--details" in row for row in rows)


def test_the_document_follows_its_schema(tmp_path):
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(SCHEMA.read_text())
    log = healthy(2)
    log.step(2, {"train/grad_norm": "=nan"})
    log.say("CUDA error: an illegal memory access was encountered")
    for checked in (
        check([log.write(tmp_path / "run.log")]),
        check([dump(tmp_path / "dumps", ref_noise=0.1)]),
        Checked(verdicts=(), read=()),
    ):
        made = json.loads(json.dumps(document(checked), allow_nan=False))
        jsonschema.validate(made, schema)


def test_pane_text_and_json_are_the_same_verdicts(tmp_path):
    checked = check([dump(tmp_path, ref_noise=0.25)])
    made = document(checked)
    text = text_report(checked, columns=300, details=True)
    for outcome in by_rule(checked.verdicts):
        assert outcome.verdict.to_json() in made["verdicts"]
        if outcome.unhealthy:
            assert outcome.verdict.summary in text
            assert outcome.verdict.next_command in text


def test_against_a_baseline(tmp_path):
    good = healthy(2).write(tmp_path / "good.log")
    bad = healthy(2)
    bad.step(0, {"train/grad_norm": 3168.0})
    verdicts = against_baseline([bad.write(tmp_path / "bad.log")], good, CheckOptions())
    assert [verdict.status for verdict in verdicts] == [Status.FAIL, Status.PASS]
    assert "grad_norm 3168, baseline 0.4" in verdicts[0].summary


def test_a_baseline_without_the_same_rollouts(tmp_path):
    good = healthy(1).write(tmp_path / "good.log")
    other = PrintedLog()
    other.rollout(9, {"rollout/raw_reward": 0.5})
    path = other.write(tmp_path / "other.log")
    (verdict,) = against_baseline([path], good, CheckOptions())
    assert verdict.status is Status.NOT_RUN


def test_the_same_dump_has_no_difference(tmp_path):
    a, b = dump(tmp_path / "a"), dump(tmp_path / "b")
    found = compare(a, b)
    assert not found.differs
    assert "equal to the bit" in difference_text(found)


def test_two_dumps_differ_where_they_do(tmp_path):
    a, b = dump(tmp_path / "a"), dump(tmp_path / "b", ref_noise=0.5)
    found = compare(a, b)
    (column,) = [c for c in found.columns if c.unequal]
    assert column.name == "ref_log_probs"
    assert column.first.position == 0
    assert column.max_abs == pytest.approx(0.5, rel=1e-6)
    assert found.same_tokens == found.paired == 8
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["differs"]


def test_other_tokens_diverge_at_a_place(tmp_path):
    a, b = dump(tmp_path / "a"), dump(tmp_path / "b", seed=5)
    found = compare(a, b)
    assert found.paired == 8
    assert found.same_tokens == 0
    assert found.first_tokens.what == "tokens"
    assert "first different token: s0" in difference_text(found)


def test_two_rollouts_of_one_folder(tmp_path):
    folder = dump(tmp_path)
    dump(tmp_path, 1)
    assert compare(folder, folder, rollouts=(0, 1)).rollouts == (0, 1)
    with pytest.raises(DumpError, match="no rollout 9"):
        compare(folder, folder, rollouts=(0, 9))
