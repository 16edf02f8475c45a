"""When a stage takes too long."""

from __future__ import annotations

from relax.controller.stopwatch import StageClock
from relax.events.types import Stage


def test_three_medians_and_never_less_than_three_seconds():
    clock = StageClock()
    assert clock.limit(Stage.TRAIN) is None
    for seconds in (2.0, 4.0, 3.0):
        clock.add(Stage.TRAIN, seconds)
    assert clock.limit(Stage.TRAIN) == 9.0
    clock.add(Stage.REWARD, 0.01)
    assert clock.limit(Stage.REWARD) == 3.0


def test_an_evaluation_is_no_slow_weight_update():
    clock = StageClock()
    clock.add(Stage.UPDATE_WEIGHTS, 0.03)
    assert clock.limit(Stage.UPDATE_WEIGHTS, evaluates=True) is None
    clock.add(Stage.UPDATE_WEIGHTS, 8.0, evaluates=True)
    assert clock.limit(Stage.UPDATE_WEIGHTS, evaluates=True) == 24.0
    assert clock.limit(Stage.UPDATE_WEIGHTS) == 3.0
