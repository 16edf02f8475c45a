import math
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relax.arguments.pause import (
    VERDICTS,
    AtStage,
    AtStart,
    OnMetric,
    OnVerdict,
    parse_stop_condition,
)
from relax.errors import ArgumentError
from relax.events.types import Stage


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("start", AtStart()),
        ("0:train", AtStage(rollout_id=0, stage=Stage.TRAIN)),
        ("12:ref-log-probs", AtStage(rollout_id=12, stage=Stage.REF_LOG_PROBS)),
        ("*:generate", AtStage(rollout_id=None, stage=Stage.GENERATE)),
        ("grad_norm > 10", OnMetric(metric="grad_norm", comparison=">", bound=10.0)),
        (
            "train/kl_loss>=1e-3",
            OnMetric(metric="train/kl_loss", comparison=">=", bound=1e-3),
        ),
        ("verdict:fail", OnVerdict(verdict="FAIL")),
        ("verdict:NON_FINITE", OnVerdict(verdict="NON_FINITE")),
    ],
)
def test_forms(text, condition):
    assert parse_stop_condition(text) == condition


@pytest.mark.parametrize(
    "text",
    [
        *("", "end", "train", "-1:train", "1:", ":train", "1.5:train", "²:train"),
        *("grad_norm >", "> 3", "grad_norm > inf", "grad_norm = 3", "verdict:"),
        "a b > 3",
    ],
)
def test_refused(text):
    with pytest.raises(ArgumentError, match="--pause-at"):
        parse_stop_condition(text)


_CONDITIONS = st.one_of(
    st.just(AtStart()),
    st.builds(
        AtStage,
        rollout_id=st.none() | st.integers(0),
        stage=st.sampled_from(list(Stage)),
    ),
    st.builds(
        OnMetric,
        metric=st.text(string.ascii_letters + "/_", min_size=1).filter(
            lambda text: not text.startswith("/")
        ),
        comparison=st.sampled_from([">", ">=", "<", "<=", "==", "!="]),
        bound=st.floats(allow_nan=False, allow_infinity=False),
    ),
    st.builds(OnVerdict, verdict=st.sampled_from(VERDICTS)),
)


@given(condition=_CONDITIONS)
def test_text_reads_back_equal(condition):
    assert parse_stop_condition(str(condition)) == condition


def test_when_they_hold():
    above = OnMetric(metric="grad_norm", comparison=">", bound=10.0)
    assert above.names("train/grad_norm")
    assert not above.names("train/grad_norm_max")
    assert above.holds(10.5)
    assert not above.holds(10.0)
    assert not above.holds(None)
    assert above.holds(math.nan)
    assert not OnMetric(metric="x", comparison="==", bound=1.0).holds(math.nan)
    place = AtStage(rollout_id=3, stage=Stage.TRAIN)
    assert place.holds(rollout_id=3, stage=Stage.TRAIN)
    assert not place.holds(rollout_id=4, stage=Stage.TRAIN)
    assert AtStage(rollout_id=None, stage=Stage.TRAIN).holds(
        rollout_id=9, stage=Stage.TRAIN
    )
