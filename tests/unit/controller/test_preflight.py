"""What is said of dumps before anything starts: both numbers, and what to change."""

from __future__ import annotations

from pathlib import Path

import pytest

from relax.arguments import parse_arguments
from relax.control.run_folder import RunInfo, write_run_info
from relax.controller.preflight import check_dumps
from relax.dump.manifest import WeightsNote
from relax.dump.write import RunFacts, StepToDump, dump_step, write_rollout_dump
from relax.errors import ArgumentError, DumpMissing, RelaxError

FORGE = (
    "--rollout-function-path relax.engine.rollout.forge_load.generate_rollout"
    " --load-forge-rollout-data"
)


def sample(index: int, *, group: int, tokens: int = 6) -> dict:
    return {
        "index": index,
        "group_index": group,
        "prompt": "1+1",
        "tokens": list(range(tokens)),
        "response": "2",
        "response_length": 2,
        "loss_mask": [1, 1],
        "rollout_log_probs": [-0.5, -0.25],
        "reward": 1.0,
        "status": "completed",
        "metadata": {},
    }


def rollout(groups: int, size: int, **fields) -> list[dict]:
    return [
        sample(group * size + n, group=group, **fields)
        for group in range(groups)
        for n in range(size)
    ]


@pytest.fixture
def place(tmp_path) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "prompts.jsonl").write_text("{}\n")
    return tmp_path


def arguments(place: Path, given: str):
    """A small run of 4 prompts with 2 samples each, and what is given."""
    small = (
        f"--hf-checkpoint {place}/model --prompt-data {place}/prompts.jsonl"
        " --num-rollout 3 --rollout-batch-size 4 --n-samples-per-prompt 2"
        " --rm-type exact_match --rollout-max-response-len 8"
    )
    return parse_arguments([*small.split(), *given.replace("TMP", str(place)).split()])


def refusal(place: Path, given: str) -> RelaxError:
    with pytest.raises(RelaxError) as caught:
        check_dumps(arguments(place, given))
    return caught.value


def test_a_dump_that_fits_is_accepted_and_read_as_a_literal_path_too(place):
    for number in range(2):
        write_rollout_dump(place / f"{number}.pt", rollout(4, 2), rollout_id=number)
    for given in (
        "--load-debug-rollout-data TMP/{rollout_id}.pt",
        "--load-debug-rollout-data TMP/1.pt",
        f"{FORGE} TMP/{{rollout_id}}.pt",
        f"{FORGE} TMP/{{rollout_id}}.pt --start-rollout-id 2",
    ):
        check_dumps(arguments(place, given))


@pytest.mark.parametrize("flag", ["--load-debug-rollout-data", FORGE])
@pytest.mark.parametrize(
    ("samples", "given", "says"),
    [
        (rollout(3, 2), "", ("6 samples", "has 8", "--rollout-batch-size 3")),
        (
            rollout(4, 4),
            "",
            ("hold 4 samples", "2 samples", "--n-samples-per-prompt 4"),
        ),
        (
            rollout(4, 2, tokens=40),
            "--rollout-max-context-len 32",
            ("40 tokens", "of 32", "--rollout-max-context-len 40"),
        ),
        (
            rollout(4, 2, tokens=40),
            "--use-dynamic-batch-size --max-tokens-per-gpu 32",
            ("40 tokens", "of 32", "--max-tokens-per-gpu 40"),
        ),
        (rollout(4, 2, tokens=0), "", ("no tokens", "cannot be trained on")),
    ],
    ids=["count", "group", "context", "micro-batch", "tokens"],
)
def test_a_dump_that_does_not_fit_is_refused(place, flag, samples, given, says):
    for one in samples:
        if not one["tokens"]:
            one.update(loss_mask=None, rollout_log_probs=None)
    write_rollout_dump(place / "0.pt", samples, rollout_id=0)
    error = refusal(place, f"{flag} TMP/0.pt {given}")
    assert str(place / "0.pt") in str(error)
    assert flag.split()[-1] in str(error)
    for words in says:
        assert words in str(error)


def test_a_part_of_the_groups_fits_a_smaller_batch(place):
    write_rollout_dump(place / "0.pt", rollout(8, 2), rollout_id=0)
    load = "--load-debug-rollout-data TMP/0.pt"
    check_dumps(arguments(place, f"{load} --load-debug-rollout-data-subsample 0.5"))
    error = refusal(place, f"{load} --load-debug-rollout-data-subsample 0.25")
    assert "4 samples (2 groups)" in str(error)


def test_samples_that_were_not_trained_on_may_be_missing(place):
    write_rollout_dump(place / "0.pt", rollout(4, 2)[1:], rollout_id=0)
    check_dumps(arguments(place, "--load-debug-rollout-data TMP/0.pt"))


def test_a_missing_dump_is_named(place):
    with pytest.raises(ArgumentError, match="does not exist"):
        arguments(place, "--load-debug-rollout-data TMP/7.pt")
    given = f"{FORGE} TMP/{{rollout_id}}.pt"
    write_rollout_dump(place / "0.pt", rollout(4, 2), rollout_id=0)
    usable = arguments(place, given)
    (place / "0.pt").unlink()
    with pytest.raises(DumpMissing, match="no such dump"):
        check_dumps(usable)


def test_dumps_of_others_are_not_written_over(place):
    given = "--dump-details TMP/d"
    check_dumps(arguments(place, given))
    facts = RunFacts(run_id="mine", attempt=1, arguments={}, world_size=1)
    step = StepToDump(
        rollout_id=2, weights=WeightsNote(version=2), samples=rollout(4, 2)
    )
    dump_step(place / "d", step, facts=facts)
    error = refusal(place, given)
    assert "a dump of rollout 2 already" in str(error)
    assert "--overwrite-dumps" in str(error)
    check_dumps(arguments(place, f"{given} --overwrite-dumps"))
    check_dumps(arguments(place, f"{given} --num-rollout 2"))


def test_a_resumed_run_finds_its_own_dumps(place):
    facts = RunFacts(run_id="mine", attempt=1, arguments={}, world_size=1)
    step = StepToDump(
        rollout_id=0, weights=WeightsNote(version=0), samples=rollout(4, 2)
    )
    dump_step(place / "d", step, facts=facts)
    (place / "run").mkdir()
    info = RunInfo(
        run_id="mine",
        name="run",
        attempt=1,
        host="here",
        boot_id="",
        pid=1,
        process_start=1,
        socket="",
        interpreter="python",
    )
    write_run_info(place / "run", info)
    check_dumps(arguments(place, "--dump-details TMP/d --run-dir TMP/run"))
