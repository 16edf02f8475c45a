"""Who holds up a stage: the rank that sleeps comes before those that wait for it."""

from __future__ import annotations

from relax.triage.hang import SlowStage, Standing, judge_slow_stage, stuck_first
from relax.triage.verdict import Status

WAITS = "distributed_c10d.py:2810 in all_reduce"
IDLE = "worker.py:954 in main_loop"


def standing(name, place, *, stays=True, share=0.0):
    return Standing(name=name, place=place, stays=stays, share=share)


def slow(*standings):
    return SlowStage(
        rollout_id=3,
        stage="train",
        seconds=12.0,
        median_seconds=0.4,
        standings=standings,
    )


SLEEPER = standing("train-1", "drills.py:126 in sleep_for_ever")


def test_the_rank_that_sleeps_comes_before_those_that_wait_for_it():
    verdict = judge_slow_stage(
        slow(
            standing("train-0", WAITS),
            SLEEPER,
            standing("train-2", WAITS),
            standing("engine-0", IDLE),
        )
    )
    assert verdict.status is Status.FAIL
    assert verdict.summary == (
        "train-1 stands in drills.py:126 in sleep_for_ever; train runs for 12 s, "
        "usually 0.4 s"
    )
    assert [e.text.partition(":")[0] for e in verdict.evidence] == [
        "train-1",
        "train-0",
        "train-2",
    ]
    assert "sleep_for_ever" in verdict.causes[0].confirm


def test_all_in_a_collective_is_a_collective_that_does_not_end():
    verdict = judge_slow_stage(
        slow(standing("train-0", WAITS), standing("train-1", WAITS))
    )
    assert verdict.status is Status.FAIL
    assert "collective" in verdict.causes[0].text


def test_a_rank_that_moves_or_works_is_not_asleep():
    for working in (
        standing("train-0", "attention.py:50 in forward", share=0.97),
        standing("train-0", "attention.py:50 in forward", stays=False),
    ):
        verdict = judge_slow_stage(slow(working, standing("engine-0", IDLE)))
        assert verdict.status is Status.WARN
        assert verdict.summary.endswith("no rank stands still")
        assert [e.text.partition(":")[0] for e in verdict.evidence] == ["train-0"]


def test_where_processor_time_is_not_known_the_line_alone_speaks():
    far = standing("train-5", "io.py:9 in read", share=None)
    assert judge_slow_stage(slow(far)).status is Status.FAIL


def test_a_workers_own_worker_py_is_not_taken_for_rays():
    at = standing("train-0", "worker.py:180 in train")
    assert stuck_first([at, standing("engine-0", IDLE)]) == [at]
