"""The controller's machine: safe points, refusals, steps, walk, stop."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from relax.controller.machine import after_stage, react, refusal
from relax.controller.modes import first_place, stages_of
from relax.controller.state import (
    Answer,
    Command,
    ControllerState,
    Done,
    Finish,
    HurryUp,
    Pause,
    Phase,
    Resume,
    RunStage,
    StageEnded,
    StageHeld,
    Started,
    Withdrawn,
)
from relax.errors import InternalError
from relax.events.types import CommandKind, Mode, Stage


def fresh(**changes):
    state = ControllerState(
        attempt=1,
        mode=Mode.FULL,
        num_rollout=2,
        first_rollout=0,
        rollout_id=-1,
        stage=Stage.UPDATE_WEIGHTS,
    )
    return replace(state, **changes)


def command(kind, **fields):
    return Command(id=f"id-{kind}", kind=kind, by="alice@login:1", **fields)


def run_to(state, rollout_id, stage):
    """Lets stages end until the run is about to do ``stage`` of ``rollout_id``."""
    while (state.rollout_id, state.stage) != (rollout_id, stage):
        state, _ = react(state, StageEnded())
    return state


def test_a_whole_run_updates_weights_first_and_then_runs_every_stage_in_order():
    state, orders = react(fresh(), Started())
    seen = []
    while not isinstance(orders[-1], Finish):
        assert len(orders) == 1
        seen.append((orders[0].rollout_id, orders[0].stage))
        state, orders = react(state, StageEnded())
    expected = [(-1, Stage.UPDATE_WEIGHTS)]
    expected += [(rollout, stage) for rollout in (0, 1) for stage in Stage]
    assert seen == expected
    assert orders[-1] == Finish(why="done")
    assert state.phase is Phase.ENDED


def test_a_stage_that_is_held_is_tried_again_after_continue():
    state, _ = react(fresh(), Started())
    state = run_to(state, 1, Stage.GENERATE)
    state, orders = react(state, StageHeld(why="no dump for rollout 1"))
    assert orders == (Pause(why="no dump for rollout 1", by=""),)
    assert (state.rollout_id, state.stage) == (1, Stage.GENERATE)
    state, orders = react(state, command(CommandKind.CONTINUE))
    assert orders[-1] == RunStage(rollout_id=1, stage=Stage.GENERATE)


@pytest.mark.parametrize(
    ("mode", "first", "stages"),
    [
        (Mode.FULL, (-1, Stage.UPDATE_WEIGHTS), list(Stage)),
        (Mode.FORGE, (-1, Stage.UPDATE_WEIGHTS), list(Stage)),
        (Mode.ROLLOUT_ONLY, (0, Stage.GENERATE), [Stage.GENERATE, Stage.REWARD]),
        (Mode.TRAIN_ONLY, (0, Stage.GENERATE), list(Stage)[:-1]),
    ],
)
def test_a_mode_runs_its_own_stages(mode, first, stages):
    assert first_place(mode, first_rollout=0) == first
    order = stages_of(mode, has_reference=True)
    assert list(order) == stages
    rollout_id, stage = first
    state, orders = react(
        fresh(mode=mode, stages=order, rollout_id=rollout_id, stage=stage), Started()
    )
    seen = []
    while not isinstance(orders[-1], Finish):
        seen.append((orders[0].rollout_id, orders[0].stage))
        state, orders = react(state, StageEnded())
    before = [first] if rollout_id < 0 else []
    assert seen == [*before, *((n, stage) for n in (0, 1) for stage in stages)]


def test_a_pause_waits_for_the_end_of_the_stage_and_is_done_there():
    state, _ = react(fresh(), Started())
    state, answers = react(state, command(CommandKind.PAUSE))
    assert answers == (
        Answer(command=command(CommandKind.PAUSE), accepted=True, waits=True),
    )
    assert state.phase is Phase.RUNNING
    state, orders = react(state, StageEnded())
    assert state.phase is Phase.PAUSED
    assert orders == (
        Pause(why="command", by="alice@login:1"),
        Done(command_id="id-pause", kind=CommandKind.PAUSE, by="alice@login:1"),
    )


@pytest.mark.parametrize(
    ("kind", "stops_before"),
    [
        (CommandKind.STEP_STAGE, (0, Stage.REWARD)),
        (CommandKind.STEP_ROLLOUT, (1, Stage.GENERATE)),
    ],
)
def test_a_step_runs_one_unit_and_pauses(kind, stops_before):
    state = replace(
        fresh(rollout_id=0, stage=Stage.GENERATE), phase=Phase.PAUSED, why="command"
    )
    state, orders = react(state, command(kind))
    assert isinstance(orders[1], Resume)
    assert orders[-1] == RunStage(rollout_id=0, stage=Stage.GENERATE)
    while state.phase is Phase.RUNNING:
        state, orders = react(state, StageEnded())
    assert (state.rollout_id, state.stage) == stops_before
    assert orders[0].why == "step"
    assert orders[1].kind is kind


def test_the_walk_stops_at_the_checks_of_the_first_rollout_only():
    state, orders = react(fresh(walk=True), Started())
    stops = []
    while state.phase is not Phase.ENDED:
        state, orders = react(state, StageEnded())
        if state.phase is Phase.PAUSED:
            assert orders == (Pause(why="walk", by=""),)
            stops.append((state.last, state.stage))
            state, orders = react(state, command(CommandKind.CONTINUE))
    assert stops == [
        (Stage.UPDATE_WEIGHTS, Stage.GENERATE),
        (Stage.GENERATE, Stage.REWARD),
        (Stage.ADVANTAGES, Stage.TRAIN),
        (Stage.TRAIN, Stage.UPDATE_WEIGHTS),
        (Stage.UPDATE_WEIGHTS, Stage.GENERATE),
    ]


def test_a_stop_condition_that_holds_pauses_with_its_text():
    state, _ = react(fresh(), Started())
    state, orders = react(state, StageEnded(hit="grad_norm > 10"))
    assert orders == (Pause(why="grad_norm > 10", by=""),)
    assert state.phase is Phase.PAUSED


def test_stop_when_paused_ends_at_once_and_when_running_hurries():
    paused = replace(fresh(), phase=Phase.PAUSED)
    state, orders = react(paused, command(CommandKind.STOP))
    assert orders[-1] == Finish(why="stopped")
    running, _ = react(fresh(), Started())
    state, orders = react(running, command(CommandKind.STOP))
    assert orders[-1] == HurryUp(at_once=False)
    assert state.phase is Phase.STOPPING
    state, orders = react(state, StageEnded())
    assert orders[-1] == Finish(why="stopped")


def test_a_pending_pause_is_withdrawn_when_the_run_ends_under_it():
    state, _ = react(fresh(num_rollout=1), Started())
    state = run_to(state, 0, Stage.UPDATE_WEIGHTS)
    state, _ = react(state, command(CommandKind.PAUSE))
    state, orders = react(state, StageEnded())
    assert [type(order) for order in orders] == [Withdrawn, Finish]


@pytest.mark.parametrize(
    ("state", "kind", "words"),
    [
        (fresh(phase=Phase.RUNNING), CommandKind.CONTINUE, "nothing to continue"),
        (fresh(phase=Phase.RUNNING), CommandKind.STEP_STAGE, "nothing to step"),
        (fresh(phase=Phase.PAUSED), CommandKind.PAUSE, "paused already"),
        (fresh(phase=Phase.RUNNING), CommandKind.WITHDRAW, "no command waits"),
        (fresh(phase=Phase.RUNNING), CommandKind.ABORT_GENERATION, "nothing is being"),
        (fresh(phase=Phase.ENDED), CommandKind.STOP, "has ended"),
        (fresh(phase=Phase.STOPPING), CommandKind.PAUSE, "is stopping"),
    ],
)
def test_refusals_say_why(state, kind, words):
    after, (answer,) = react(state, command(kind))
    assert not answer.accepted
    assert words in answer.reason
    assert after == state
    assert words in refusal(state, kind)


def test_a_continue_for_another_place_is_refused_with_what_is_now():
    paused = fresh(phase=Phase.PAUSED, rollout_id=3, stage=Stage.TRAIN)
    stale = command(CommandKind.CONTINUE, rollout_id=2, stage="train")
    _, (answer,) = react(paused, stale)
    assert not answer.accepted
    assert "before train of rollout 3 now" in answer.reason
    _, (answer,) = react(paused, command(CommandKind.STOP, attempt=4))
    assert "attempt 1 now" in answer.reason


def test_a_stage_cannot_end_twice():
    with pytest.raises(InternalError, match="a stage ended while"):
        react(replace(fresh(), phase=Phase.PAUSED), StageEnded())


class Runs(RuleBasedStateMachine):
    """Any order of commands and stage ends keeps the promises of the machine."""

    def __init__(self):
        super().__init__()
        self.state, orders = react(fresh(num_rollout=3), Started())
        self.running = 0
        self.open = {}
        self.number = 0
        self.take(orders)

    def take(self, orders):
        for order in orders:
            match order:
                case RunStage():
                    assert self.running == 0, "two stages at once"
                    assert (order.rollout_id, order.stage) == (
                        self.state.rollout_id,
                        self.state.stage,
                    )
                    self.running += 1
                case Answer(accepted=True):
                    self.open[order.command.id] = order.command.kind
                case Answer():
                    assert order.reason
                case Done() | Withdrawn():
                    assert self.open.pop(order.command_id) is order.kind

    @precondition(lambda self: self.running)
    @rule(hit=st.sampled_from(["", "grad_norm > 10"]))
    def stage_ends(self, hit):
        self.running -= 1
        before = after_stage(self.state)
        self.state, orders = react(self.state, StageEnded(hit=hit))
        assert (self.state.rollout_id, self.state.stage) == before
        self.take(orders)

    @rule(kind=st.sampled_from(CommandKind))
    def commanded(self, kind):
        self.number += 1
        possible = not refusal(self.state, kind)
        request = Command(id=str(self.number), kind=kind, by="x")
        self.state, orders = react(self.state, request)
        assert orders[0].accepted is possible
        self.take(orders)

    @invariant()
    def a_running_run_runs_one_stage(self):
        expected = self.state.phase in (Phase.RUNNING, Phase.STOPPING)
        assert self.running == expected

    @invariant()
    def only_the_wish_is_open(self):
        wish = self.state.wish
        assert set(self.open) == ({wish.command_id} if wish else set())


Runs.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None
)
TestRuns = Runs.TestCase
