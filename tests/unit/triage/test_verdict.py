"""Verdicts survive JSON, rules are well formed, reports are aligned."""

from __future__ import annotations

import json
import math

import pytest

from relax.errors import RecordError
from relax.triage.evidence import RolloutEvidence
from relax.triage.registry import RULES, rules_due, run_rules
from relax.triage.report import count_line, render_report
from relax.triage.verdict import Place, Status, Verdict, worst_first


def test_every_verdict_of_a_faulty_rollout_survives_json(simulate):
    evidence = simulate(engine_temperature=0.7, metrics={})
    for verdict in run_rules(evidence):
        plain = json.loads(json.dumps(verdict.to_json(), allow_nan=False))
        assert Verdict.from_json(plain) == verdict


def test_non_finite_numbers_survive_json():
    verdict = Verdict(
        rule="r",
        section="1",
        status=Status.NON_FINITE,
        summary="s",
        where=Place(rollout_id=1),
        numbers={"a": math.inf, "b": math.nan},
    )
    back = Verdict.from_json(json.loads(json.dumps(verdict.to_json())))
    assert back.numbers["a"] == math.inf
    assert math.isnan(back.numbers["b"])


@pytest.mark.parametrize("change", [{"status": "MAYBE"}, {"where": {"x": 1}}])
def test_what_is_no_verdict_is_refused(simulate, change):
    plain = run_rules(simulate())[0].to_json() | change
    with pytest.raises(RecordError, match="not a verdict"):
        Verdict.from_json(plain)


def test_long_summaries_are_cut():
    verdict = Verdict(
        rule="r",
        section="1",
        status=Status.INFO,
        summary="x" * 300,
        where=Place(rollout_id=0),
    )
    assert len(verdict.summary) == 100


def test_rules_are_unique_and_each_is_due_once():
    assert len({rule.id for rule in RULES}) == len(RULES)
    stages = ("update_weights", "generate", "log_probs", "train")
    due = [rule.id for stage in stages for rule in rules_due(stage)]
    assert sorted(due) == sorted(rule.id for rule in RULES)


def test_nothing_known_means_nothing_passes():
    verdicts = run_rules(RolloutEvidence(rollout_id=0))
    assert {verdict.status for verdict in verdicts} == {Status.NOT_RUN}
    assert count_line(verdicts) == f"{len(RULES)} NOT_RUN"


def test_the_report_reads_worst_first_in_columns(simulate):
    verdicts = run_rules(simulate(engine_temperature=0.7), "log_probs")
    lines = render_report(verdicts, details=False).splitlines()
    assert lines[0].startswith("FAIL")
    assert len({line.index("r0") for line in lines}) == 1
    assert worst_first(verdicts)[0].status is Status.FAIL
    assert "next   relax-tui show RUN" in render_report(verdicts)
    assert render_report([]) == "no rule was due"
