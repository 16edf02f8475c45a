"""The controller's machine: safe points, refusals, steps, walk, stop."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from relax.control.orders import (
    DumpOrder,
    ModeOrder,
    ReplayKind,
    ReplayOrder,
    RestartOrder,
    VerifyOrder,
)
from relax.controller.machine import after_stage, react, refusal
from relax.controller.modes import first_place, stages_of
from relax.controller.state import (
    ENDING,
    Answer,
    CarryOut,
    Command,
    ControllerState,
    Done,
    ErrandEnded,
    Failed,
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


def test_a_kill_after_a_stop_is_the_last_word_and_neither_is_done_yet():
    running, _ = react(fresh(), Started())
    state, _ = react(running, command(CommandKind.STOP))
    state, orders = react(state, command(CommandKind.KILL))
    assert orders[-1] == HurryUp(at_once=True)
    assert state.phase is Phase.KILLING
    assert refusal(state, CommandKind.KILL) == "the run is being killed"
    assert not any(isinstance(order, Done) for order in orders)
    assert [wish.kind for wish in state.ending] == ["stop", "kill"]


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


def order_of(kind):
    return {
        CommandKind.DUMP: DumpOrder(),
        CommandKind.REPLAY: ReplayOrder(),
        CommandKind.MODE: ModeOrder(mode=Mode.TRAIN_ONLY),
        CommandKind.RESTART_ENGINE: RestartOrder(),
        CommandKind.VERIFY: VerifyOrder(),
    }.get(kind)


def test_an_errand_is_carried_out_at_the_safe_point_and_the_run_goes_on():
    state, _ = react(fresh(), Started())
    dump = command(CommandKind.DUMP, order=DumpOrder(rollout_id=0))
    state, (answer,) = react(state, dump)
    assert (answer.accepted, answer.waits) == (True, True)
    state, orders = react(state, StageEnded())
    assert [type(order) for order in orders] == [CarryOut]
    assert orders[0].errand.order == DumpOrder(rollout_id=0)
    state, orders = react(state, ErrandEnded(did="dumped"))
    assert [type(order) for order in orders] == [Done, RunStage]
    assert orders[0].did == "dumped"
    assert orders[1] == RunStage(rollout_id=0, stage=Stage.GENERATE)


def test_an_errand_that_fails_says_why_and_the_run_goes_on():
    state = fresh(phase=Phase.PAUSED)
    state, orders = react(state, command(CommandKind.DUMP, order=DumpOrder()))
    assert [type(order) for order in orders] == [Answer, CarryOut]
    assert not orders[0].waits
    _, (refused,) = react(state, command(CommandKind.CONTINUE))
    assert "is being carried out" in refused.reason
    state, (failed,) = react(state, ErrandEnded(failed="the disk is full"))
    assert isinstance(failed, Failed)
    assert failed.why == "the disk is full"
    assert state.phase is Phase.PAUSED


def test_a_pause_during_an_errand_holds_at_the_same_safe_point():
    state, _ = react(fresh(), Started())
    state, _ = react(state, command(CommandKind.DUMP, order=DumpOrder()))
    state, _ = react(state, StageEnded())
    state, _ = react(state, command(CommandKind.PAUSE))
    state, orders = react(state, ErrandEnded())
    assert [type(order) for order in orders] == [Done, Pause, Done]


def test_an_excursion_is_numbered_and_ends_where_the_run_was():
    home = fresh(phase=Phase.PAUSED, rollout_id=3, num_rollout=5, stage=Stage.TRAIN)
    state, _ = react(home, command(CommandKind.MODE, order=order_of(CommandKind.MODE)))
    state, orders = react(state, ErrandEnded())
    assert [type(order) for order in orders] == [Done, Pause]
    assert (state.mode, state.excursion.name) == (Mode.TRAIN_ONLY, "x1")
    # What is in hand belongs to rollout 3: the excursion begins with the next one.
    assert (state.rollout_id, state.stage) == (4, Stage.GENERATE)
    names = []
    state, (_, _, _, order) = react(state, command(CommandKind.CONTINUE))
    while len(names) < 15:
        names.append((order.aside, order.stage))
        state, (order,) = react(state, StageEnded())
    assert [name for name, _ in names] == ["x1.0"] * 6 + ["x1.1"] * 6 + ["x1.2"] * 3
    assert Stage.UPDATE_WEIGHTS not in {stage for _, stage in names}

    back = command(CommandKind.MODE, order=ModeOrder(mode=Mode.FULL))
    state, _ = react(state, back)
    state, _ = react(state, StageEnded())
    state, _ = react(state, ErrandEnded())
    place = (state.mode, state.rollout_id, state.stage, state.stages, state.excursion)
    assert place == (Mode.FULL, 3, Stage.TRAIN, home.stages, None)
    assert state.phase is Phase.PAUSED
    again = command(CommandKind.REPLAY, order=ReplayOrder())
    _, (_, order) = react(state, again)
    assert order.errand.name == "x2"


@pytest.mark.parametrize(
    ("changes", "order", "words"),
    [
        ({}, ModeOrder(mode=Mode.FULL), "in full mode already"),
        ({}, ModeOrder(mode=Mode.FORGE, keep=True), "nothing to keep"),
        ({"mode": Mode.ROLLOUT_ONLY}, ModeOrder(mode=Mode.FULL), "holds no trainer"),
        ({"mode": Mode.TRAIN_ONLY}, ModeOrder(mode=Mode.FULL), "no rollout engine"),
        ({"mode": Mode.FORGE}, ModeOrder(mode=Mode.FULL), "start from full mode"),
        ({"mode": Mode.ROLLOUT_ONLY}, ReplayOrder(), "holds no trainer"),
        (
            {"mode": Mode.TRAIN_ONLY},
            ReplayOrder(kind=ReplayKind.FORGE),
            "no rollout engine",
        ),
        ({}, ReplayOrder(kind=ReplayKind.TRAIN, samples=(3,)), "takes all samples"),
        ({}, ReplayOrder(repeat=0), "0 rounds"),
        ({"ended": True}, DumpOrder(), "has ended"),
    ],
)
def test_orders_are_refused_in_words(changes, order, words):
    phase = Phase.ENDED if changes.pop("ended", False) else Phase.PAUSED
    kinds = {DumpOrder: "dump", ReplayOrder: "replay", ModeOrder: "mode"}
    state = fresh(phase=phase, **changes)
    request = command(CommandKind(kinds[type(order)]), order=order)
    after, (answer,) = react(state, request)
    assert not answer.accepted
    assert words in answer.reason
    assert after == state


def test_what_an_excursion_may_keep():
    mode = command(CommandKind.MODE, order=order_of(CommandKind.MODE))
    keep = command(CommandKind.MODE, order=ModeOrder(mode=Mode.FULL, keep=True))
    for stage, possible in ((Stage.GENERATE, True), (Stage.TRAIN, False)):
        state = fresh(phase=Phase.PAUSED, rollout_id=3, num_rollout=5, stage=stage)
        state, _ = react(state, mode)
        state, _ = react(state, ErrandEnded())
        _, (answer, *_) = react(state, keep)
        assert answer.accepted is possible
        assert possible or "left before train of rollout 3" in answer.reason


def test_a_train_only_run_without_dumps_waits_for_a_choice():
    state = fresh(
        mode=Mode.TRAIN_ONLY,
        rollout_id=0,
        stage=Stage.GENERATE,
        stages=stages_of(Mode.TRAIN_ONLY, has_reference=True),
        needs_data=True,
    )
    state, (pause,) = react(state, Started())
    assert "`r` chooses one" in pause.why
    _, (answer,) = react(state, command(CommandKind.CONTINUE))
    assert "no dump is chosen" in answer.reason
    order = ReplayOrder(kind=ReplayKind.TRAIN, source="/d/{rollout_id}.pt")
    state, _ = react(state, command(CommandKind.REPLAY, order=order))
    state, orders = react(state, ErrandEnded(did="training on it"))
    assert [type(one) for one in orders] == [Done, Resume, RunStage]
    assert state.phase is Phase.RUNNING


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
                case CarryOut():
                    assert self.running == 0, "an errand beside something else"
                    assert order.errand is self.state.errand
                    self.running += 1
                case Done() | Withdrawn() | Failed():
                    assert self.open.pop(order.command_id) is order.kind

    @precondition(lambda self: self.state.errand)
    @rule(failed=st.sampled_from(["", "the disk is full"]))
    def errand_ends(self, failed):
        self.running -= 1
        self.state, orders = react(self.state, ErrandEnded(failed=failed))
        self.take(orders)

    @precondition(lambda self: self.running and not self.state.errand)
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
        order = order_of(kind)
        excursion = self.state.excursion
        if kind is CommandKind.MODE and excursion:
            order = ModeOrder(mode=excursion.mode)
        request = Command(id=str(self.number), kind=kind, by="x", order=order)
        self.state, orders = react(self.state, request)
        assert orders[0].accepted is possible
        self.take(orders)

    @invariant()
    def a_running_run_runs_one_stage_or_errand(self):
        busy = self.state.phase in (Phase.RUNNING, *ENDING)
        assert self.running == (busy or self.state.errand is not None)

    @invariant()
    def what_waits_is_open_and_nothing_else(self):
        state = self.state
        waiting = {one.command_id for one in (state.wish, state.errand) if one}
        ends = {one.command_id for one in state.ending}
        errands = {one.command_id for one in state.errands}
        assert set(self.open) == waiting | errands | ends

    @invariant()
    def the_mode_has_its_stages(self):
        state = self.state
        assert state.stages == stages_of(state.mode, has_reference=True)
        assert state.stage in state.stages


Runs.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None
)
TestRuns = Runs.TestCase
