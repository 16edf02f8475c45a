"""Commands over a real socket: what is accepted, refused, and done when."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future

import pytest
from scripted_hands import ScriptedRun, scripted_run

from relax.control.protocol import Seen
from relax.controller.loop import StageResult
from relax.controller.state import Phase
from relax.errors import WorkerError
from relax.events.tail import EventTail
from relax.events.types import (
    CommandKind,
    Paused,
    Stage,
    StageFinished,
    StopConditionsSet,
)
from relax.measure.reduction import Gauge

K = CommandKind


async def test_a_pause_waits_for_the_safe_point_and_a_continue_goes_on(
    run: ScriptedRun,
):
    assert await run.begun() == (-1, Stage.UPDATE_WEIGHTS)
    answer = await run.ask(K.PAUSE, command_id="p1")
    assert answer.accepted
    assert answer.waits_for == "after update_weights of rollout -1"
    assert run.controller.state.phase is Phase.RUNNING
    run.hands.finish()
    await run.phase_is(Phase.PAUSED)
    assert run.hands.begun.empty()
    assert (await run.ask(K.CONTINUE, seen=run.seen_now())).accepted
    assert await run.begun() == (0, Stage.GENERATE)
    assert run.fates("p1") == ["accepted", "done"]


async def test_a_step_runs_one_stage_and_a_rollout_step_to_its_end(run: ScriptedRun):
    await run.pause()
    assert (await run.ask(K.STEP_STAGE, seen=run.seen_now())).accepted
    await run.pass_stage()
    await run.phase_is(Phase.PAUSED)
    assert run.controller.state.stage is Stage.REWARD
    assert (await run.ask(K.STEP_ROLLOUT, seen=run.seen_now())).accepted
    for stage in list(Stage)[1:]:
        assert await run.begun() == (0, stage)
        run.hands.finish()
    await run.phase_is(Phase.PAUSED)
    state = run.controller.state
    assert (state.rollout_id, state.stage) == (1, Stage.GENERATE)


async def test_a_run_ends_by_itself_after_its_last_rollout(run: ScriptedRun):
    for _ in range(1 + 3 * len(Stage)):
        await run.pass_stage()
    assert await run.ended == "done"
    assert not (await run.ask(K.PAUSE)).accepted
    finished = [e for e in run.events() if isinstance(e.payload, StageFinished)]
    assert len(finished) == 1 + 3 * len(Stage)


async def test_a_stop_on_a_metric_holds_the_safe_point(run: ScriptedRun):
    await run.begun()
    answer = await run.ask(K.SET_STOPS, conditions=("grad_norm > 10",))
    assert answer.accepted
    assert (await run.client.status()).stop_conditions == ("grad_norm > 10",)
    run.hands.finish(StageResult(metrics={"train/grad_norm": Gauge(9.0)}))
    assert await run.begun() == (0, Stage.GENERATE)
    run.hands.finish(StageResult(metrics={"train/grad_norm": Gauge(11.0)}))
    await run.phase_is(Phase.PAUSED)
    payloads = [event.payload for event in run.events()]
    assert StopConditionsSet(conditions=("grad_norm > 10",)) in payloads
    (paused,) = [p for p in payloads if isinstance(p, Paused)]
    assert (paused.why, paused.before) == ("grad_norm > 10", Stage.REWARD)


async def test_a_condition_that_means_nothing_is_refused_and_changes_nothing(run):
    await run.begun()
    await run.ask(K.SET_STOPS, conditions=("verdict:FAIL",))
    answer = await run.ask(K.SET_STOPS, conditions=("grad_norm >> 3",))
    assert not answer.accepted
    assert "grad_norm >> 3" in answer.reason
    assert (await run.client.status()).stop_conditions == ("verdict:FAIL",)


async def test_a_condition_on_a_metric_that_never_comes_names_the_nearest(run):
    await run.begun()
    answer = await run.ask(K.SET_STOPS, conditions=("grad_nrom > 10",))
    assert not answer.accepted
    assert "did you mean train/grad_norm?" in answer.reason
    assert (await run.client.status()).stop_conditions == ()


async def test_nobody_hears_of_a_record_or_of_the_pause_before_the_file_is_there(run):
    await run.begun()
    await run.ask(K.PAUSE)
    record: Future[str] = Future()
    run.hands.finish(StageResult(record=record))
    await run.phase_is(Phase.PAUSED)
    told = [type(event.payload) for event in EventTail(run.run_dir).poll()]
    assert StageFinished not in told
    assert Paused not in told
    record.set_result("steps/a01/000000/samples.arrow")
    payloads = [event.payload for event in run.events()]
    (finished,) = [p for p in payloads if isinstance(p, StageFinished)]
    assert finished.record == "steps/a01/000000/samples.arrow"
    assert isinstance(payloads[payloads.index(finished) + 1], Paused)


async def test_a_record_that_the_disk_refused_is_not_named(run):
    await run.begun()
    record: Future[str] = Future()
    record.set_exception(OSError("no space left on device"))
    run.hands.finish(StageResult(record=record))
    assert await run.begun() == (0, Stage.GENERATE)
    (finished,) = [
        e.payload for e in run.events() if isinstance(e.payload, StageFinished)
    ]
    assert finished.record == ""


async def test_a_command_that_waits_can_be_withdrawn(run: ScriptedRun):
    await run.begun()
    await run.ask(K.PAUSE, command_id="p1")
    assert (await run.client.status()).pending == ("p1",)
    assert not (await run.ask(K.WITHDRAW, target="other")).accepted
    assert (await run.ask(K.WITHDRAW, target="p1")).accepted
    assert (await run.client.status()).pending == ()
    run.hands.finish()
    assert await run.begun() == (0, Stage.GENERATE)
    assert run.fates("p1") == ["accepted", "withdrawn"]


async def test_a_stop_ends_the_run_at_the_safe_point_and_hurries_generation(run):
    await run.begun()
    assert (await run.ask(K.STOP, command_id="s1")).accepted
    assert (await run.client.status()).phase == "stopping"
    run.hands.finish()
    assert await asyncio.wait_for(run.ended, 5) == "stopped"
    assert run.hands.aborted == 1
    # It is done when the processes are gone too, which only the driver knows.
    run.controller.over()
    assert run.fates("s1") == ["accepted", "done"]


async def test_a_stop_ends_a_paused_run_at_once(run: ScriptedRun):
    await run.pause()
    assert (await run.ask(K.STOP)).accepted
    assert await asyncio.wait_for(run.ended, 5) == "stopped"


async def test_a_kill_ends_the_running_stage(run: ScriptedRun):
    await run.begun()
    assert (await run.ask(K.KILL, command_id="k1")).accepted
    assert (await run.client.status()).phase == "killing"
    with pytest.raises(Exception, match="update_weights of rollout -1"):
        await asyncio.wait_for(run.ended, 5)
    assert run.fates("k1") == ["accepted"]


async def test_a_stage_that_fails_ends_the_run_with_its_error(run: ScriptedRun):
    await run.begun()
    run.hands.finish(WorkerError("no memory", where="train-0"))
    with pytest.raises(WorkerError, match="no memory"):
        await asyncio.wait_for(run.ended, 5)


async def test_generation_is_aborted_only_while_it_runs(run: ScriptedRun):
    await run.begun()
    refused = await run.ask(K.ABORT_GENERATION)
    assert (refused.accepted, refused.reason) == (False, "nothing is being generated")
    run.hands.finish()
    assert await run.begun() == (0, Stage.GENERATE)
    assert (await run.ask(K.ABORT_GENERATION)).accepted
    assert run.hands.aborted == 1


async def test_a_repeated_id_is_harmless(run: ScriptedRun):
    await run.pause()
    seen = run.seen_now()
    first = await run.ask(K.STEP_STAGE, seen=seen, command_id="s1")
    await run.pass_stage()
    await run.phase_is(Phase.PAUSED)
    again = await run.ask(K.STEP_STAGE, seen=seen, command_id="s1")
    assert again == first
    assert run.controller.state.phase is Phase.PAUSED
    assert run.controller.state.stage is Stage.REWARD
    assert run.fates("s1") == ["accepted", "done"]


@pytest.mark.parametrize(
    ("seen", "now"),
    [
        (Seen(attempt=2), "attempt 1 now"),
        (Seen(mode="forge"), "full mode now"),
        (Seen(attempt=1, rollout_id=0, stage="train"), "before generate of rollout 0"),
        (Seen(rollout_id=7, stage="generate"), "not before generate of rollout 7"),
    ],
)
async def test_who_saw_something_else_is_told_what_is_now(run: ScriptedRun, seen, now):
    await run.pause()
    answer = await run.ask(K.CONTINUE, seen=seen)
    assert not answer.accepted
    assert now in answer.reason
    assert run.controller.state.phase is Phase.PAUSED


async def test_the_status_says_why_an_action_is_not_possible(run: ScriptedRun):
    await run.begun()
    status = await run.client.status()
    assert (status.phase, status.stage, status.rollout_id) == (
        "running",
        "update_weights",
        -1,
    )
    assert set(status.actions) == {kind.value for kind in CommandKind}
    assert status.actions["pause"].possible
    assert "pause it first" in status.actions["continue"].reason
    assert all(a.possible != bool(a.reason) for a in status.actions.values())
    assert [console.by for console in status.consoles] == ["alice@login1:1"]


async def test_stacks_name_who_did_not_answer(run: ScriptedRun):
    stacks = await run.client.stacks()
    assert stacks.stacks == {"train-0": "File a.py"}
    assert stacks.missing == {"engine-0": "is gone"}


async def test_a_walk_stops_where_the_guide_checks(tmp_path):
    stops = []
    async with scripted_run(tmp_path / "run", walk=True) as run:
        for _ in range(1 + len(Stage)):
            await run.pass_stage()
            await asyncio.sleep(0)
            while not (
                run.hands.begun.qsize() or run.controller.state.phase == "paused"
            ):
                await asyncio.sleep(0.002)
            if run.controller.state.phase is Phase.PAUSED:
                stops.append(run.controller.state.last)
                await run.ask(K.CONTINUE, seen=run.seen_now())
    assert stops == [
        Stage.UPDATE_WEIGHTS,
        Stage.GENERATE,
        Stage.ADVANTAGES,
        Stage.TRAIN,
        Stage.UPDATE_WEIGHTS,
    ]
