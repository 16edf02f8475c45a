"""A rollout engine that is gone: its own log leads, and consequences do not."""

from __future__ import annotations

import pytest

from relax.dump.logs.read import read_log
from relax.triage.engine_loss import EngineLoss, judge_engine_loss
from relax.triage.log_signatures import MARKS
from relax.triage.verdict import Status
from relax_tui.checking.logs import log_evidence

DISCONNECTED = (
    "[2026-11-30 10:00:14] [http_server] Error: Request is disconnected from the client"
    " side (type 1). Abort request obj.rid='0-51-99c7913f'\n"
)
SILENT = (
    "[2026-11-30 10:00:20] Health check failed. Server couldn't get a response from"
    " detokenizer for last 20 seconds. tic start time: 09:59:59. last_heartbeat time:"
    " 09:59:40\n"
)
OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
)


def judged(tmp_path, log, what, **loss):
    path = tmp_path / "sglang-0.log"
    path.write_text(log)
    evidence = log_evidence([read_log(path, marks=MARKS)], arguments={})
    return judge_engine_loss(
        EngineLoss(
            rollout_id=3,
            stage="generate",
            what=what,
            log=evidence,
            run="runs/r",
            **{"finished": 5, "total": 64, **loss},
        )
    )


def test_a_killed_scheduler_is_the_cause_and_not_the_complaints_after_it(tmp_path):
    what = "SGLang's scheduler (pid 7) was ended by SIGKILL: its log does not say why"
    verdict = judged(tmp_path, DISCONNECTED * 3, what)
    assert (verdict.status, verdict.summary) == (Status.FAIL, what)
    assert "killed from outside" in verdict.causes[0].text
    assert "5 of 64 samples were finished" in verdict.evidence[1].text
    assert verdict.next_command == "relax-tui tell runs/r restart-engine"


@pytest.mark.parametrize(
    ("line", "words"), [(SILENT, "detokenizer"), (OUT_OF_MEMORY, "memory")]
)
def test_what_its_log_says_of_the_end_leads(tmp_path, line, words):
    verdict = judged(tmp_path, DISCONNECTED + line, "the SGLang server is gone")
    assert words in verdict.summary
    assert any(line.strip()[:40] in one.text for one in verdict.evidence)


def test_outside_of_generation_no_samples_are_counted(tmp_path):
    verdict = judged(tmp_path, "", "the server is gone", finished=0, total=0)
    assert not verdict.numbers
    assert "crash that left no word" in verdict.causes[0].text
