"""Logs of the engines, from bytes to numbers with their places."""

from __future__ import annotations

import math
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as some
from printed_logs import PrintedLog, healthy, printed, train_numbers, verl

from relax.dump.logs.layouts import read_line
from relax.dump.logs.lines import clean
from relax.dump.logs.read import LogReader, read_log
from relax.dump.logs.scan import BLOCK_BYTES, LONGEST_LINE, LogScanner
from relax.errors import DumpError, DumpMissing


def values(story, number):
    return {name: spot.value for name, spot in story.by_rollout()[number].items()}


@pytest.mark.parametrize("ray", [True, False])
@pytest.mark.parametrize("colours", [True, False])
def test_numbers_by_rollout(tmp_path, ray, colours):
    log = healthy()
    if not ray or not colours:
        plain = PrintedLog(ray=ray, colours=colours)
        plain.rollout(0, {"rollout/raw_reward": 0.5})
        plain.step(0, train_numbers())
        log = plain
    story = read_log(log.write(tmp_path / "run.log"))
    assert values(story, 0)["rollout/raw_reward"] == 0.5
    assert values(story, 0)["train/grad_norm"] == 0.4
    assert story.steps_per_rollout == 1
    assert story.engine == "Relax, slime or miles"


def test_two_sources_of_one_line_are_merged_by_key(tmp_path):
    story = read_log(healthy(1).write(tmp_path / "run.log"))
    assert {"rollout/raw_reward", "rollout/log_probs", "perf/rollout_time"} <= set(
        values(story, 0)
    )
    assert story.notes == ()


def test_each_number_knows_its_line_and_offset(tmp_path):
    path = healthy(2).write(tmp_path / "run.log")
    spot = read_log(path).by_rollout()[1]["train/grad_norm"]
    line = path.read_bytes().splitlines()[spot.line - 1]
    assert b"step 1:" in line
    assert path.read_bytes()[spot.offset :].startswith(line)


def test_several_steps_a_rollout(tmp_path):
    log = healthy(3, steps=4)
    story = read_log(log.write(tmp_path / "run.log"))
    assert story.steps_per_rollout == 4
    assert list(story.by_rollout()) == [0, 1, 2]
    assert values(story, 1)["train/ppo_kl"] == 0.0003


def test_a_step_that_is_not_finite_wins(tmp_path):
    log = healthy(1)
    for step, norm in enumerate(("=nan", 0.5)):
        log.say("rollout 1: {'rollout/raw_reward': 0.1}") if step == 0 else None
        log.step(1 + step, {"train/grad_norm": norm})
    story = read_log(log.write(tmp_path / "run.log"))
    assert math.isnan(story.step_numbers()[1]["train/grad_norm"].value)


def test_numpy_scalars_tensors_and_odd_values(tmp_path):
    log = PrintedLog()
    log.rollout(
        0,
        {
            "rollout/a": "=np.float64(0.25)",
            "rollout/b": "=tensor(2., device='cuda:0')",
            "rollout/c": "=<Status.DONE: 1>",
            "rollout/d": "=[0.5]",
            "rollout/e": "=inf",
        },
    )
    assert values(read_log(log.write(tmp_path / "x.log")), 0) == {
        "rollout/a": 0.25,
        "rollout/b": 2.0,
        "rollout/d": 0.5,
        "rollout/e": math.inf,
    }


def test_verl(tmp_path):
    path = tmp_path / "verl.log"
    path.write_text(
        verl(
            [
                {"actor/grad_norm": "np.float64(0.4)", "critic/score/mean": 0.5},
                {"actor/grad_norm": "nan", "num_turns/min": "np.int32(3)"},
            ]
        )
    )
    story = read_log(path)
    assert story.engine == "verl"
    assert values(story, 0) == {"train/grad_norm": 0.4, "rollout/raw_reward": 0.5}
    assert math.isnan(values(story, 1)["train/grad_norm"])


def test_prime_rl(tmp_path):
    path = tmp_path / "rank_0.log"
    path.write_text(
        "12:00:01   DEBUG Micro Step 0/8 | Loss: 9.9 | Entropy: 0.3\n"
        "12:00:02 SUCCESS Step 0 | Time: 9.11s | Loss: -0.0036 | Entropy: 0.41 | "
        "Mismatch KL: 0.0004 | Grad. Norm: 0.21 | LR: 1.00e-06 | MFU: 31.5%\n"
        "12:00:03 SUCCESS Step 0 | Time: 8.02s | Reward: 0.4353 | "
        "Seq. Length: 2069.9 tokens/sample\n"
    )
    story = read_log(path)
    found = values(story, 0)
    assert story.engine == "prime-rl"
    assert found["train/loss"] == -0.0036
    assert found["train/grad_norm"] == 0.21
    assert found["rollout/raw_reward"] == 0.4353
    assert found["prime/MFU"] == 31.5


def test_nemo_rl(tmp_path):
    path = tmp_path / "driver.log"
    path.write_text(
        "========================= Step 1/100 =========================\n"
        "  • Loss: 0.0123\n  • Generation KL Error: 0.0007\n  • Avg Reward: 0.4100\n"
        "========================= Step 2/100 =========================\n"
        "  • Loss: nan\n"
    )
    story = read_log(path)
    assert values(story, 0)["train/mismatch_k3_kl"] == 0.0007
    assert math.isnan(values(story, 1)["train/loss"])


def test_arguments_and_responses_that_a_log_prints(tmp_path):
    log = healthy(1)
    log.raw("  num_steps_per_rollout ......................... 2")
    log.raw("  hf_checkpoint ................................. /models/q")
    story = read_log(log.write(tmp_path / "x.log"))
    assert story.arguments["num_steps_per_rollout"][0] == 2
    assert story.arguments["hf_checkpoint"][0] == "/models/q"
    (sample,) = story.samples
    assert sample.text.endswith("The answer is 42.")
    assert (sample.rollout_id, sample.reward) == (0, 1.0)


def test_marked_lines_know_rank_process_time_and_rollout(tmp_path):
    log = healthy(2)
    log.raw("[2026-03-01 11:00:00 TP3] Scheduler hit an exception: Traceback")
    log.say("[Rank 5] CUDA out of memory", who="MegatronTrainRayActor")
    story = read_log(
        log.write(tmp_path / "x.log"),
        marks={"scheduler": r"Scheduler hit", "oom": r"out of memory"},
    )
    first, second = story.marked
    assert (first.mark, first.words.rank, first.rollout_id) == ("scheduler", "TP3", 1)
    assert second.words.rank == "rank 5"
    assert second.words.process.startswith("MegatronTrainRayActor pid=")
    assert first.words.time - second.words.time == pytest.approx(3600, abs=60)


def test_words_of_a_response_are_no_signs(tmp_path):
    log = healthy(1, response="RuntimeError: CUDA out of memory")
    story = read_log(log.write(tmp_path / "x.log"), marks={"oom": "out of memory"})
    assert story.marked == []


def test_a_flood_of_marked_lines_is_counted_and_bounded(tmp_path):
    log = PrintedLog()
    for number in range(2_000):
        log.say(f"disk is over 95% full {number}")
    story = read_log(log.write(tmp_path / "x.log"), marks={"disk": r"full \d+"})
    assert story.counts["disk"] == 2_000
    assert len(story.marked) == 400
    assert story.marked[-1].words.text.endswith("1999")
    assert story.marked[0].words.text.endswith(" 0")


def test_a_run_that_was_started_again_into_the_same_log(tmp_path):
    log = healthy(2)
    log.step(0, {"train/grad_norm": 7.0})
    story = read_log(log.write(tmp_path / "x.log"))
    assert values(story, 0)["train/grad_norm"] == 7.0
    assert "started again" in story.notes[0]


def test_a_dict_that_is_cut_short_is_counted(tmp_path):
    path = tmp_path / "x.log"
    path.write_text("rollout 0: {'rollout/raw_reward': 0.5, 'rollou\n")
    story = read_log(path)
    assert story.by_rollout() == {}
    assert "line 1" in story.notes[0]


def test_a_growing_log_is_followed(tmp_path):
    path = tmp_path / "x.log"
    path.write_text("rollout 0: {'rollout/raw_re")
    with LogReader(path) as reader:
        while reader.poll():
            pass
        assert reader.story.by_rollout() == {}
        with path.open("a") as stream:
            stream.write("ward': 0.5}\n")
        assert reader.poll()
        assert values(reader.story, 0) == {"rollout/raw_reward": 0.5}
        assert not reader.poll()
        path.write_text("")
        assert reader.poll()
        assert reader.story.by_rollout() == {}


def test_a_last_line_without_a_newline_counts_at_the_end(tmp_path):
    path = tmp_path / "x.log"
    path.write_text("rollout 0: {'rollout/raw_reward': 0.5}")
    assert values(read_log(path), 0) == {"rollout/raw_reward": 0.5}


def test_lines_longer_than_any_block(tmp_path):
    path = tmp_path / "x.log"
    endless = b"x" * (2 * BLOCK_BYTES + LONGEST_LINE)
    path.write_bytes(b"one wanted\n" + endless + b" wanted\nthree wanted\n" + endless)
    found = []
    with LogScanner(path, "wanted") as scanner:
        while (hits := scanner.poll()) is not None:
            found += hits
        found += scanner.finish()
    assert [hit.line for hit in found] == [1, 3]
    assert path.read_bytes()[found[1].offset :].startswith(b"three wanted\n")


def test_bytes_that_are_no_text(tmp_path):
    path = tmp_path / "x.log"
    path.write_bytes(bytes(range(256)) * 50 + b"\nrollout 0: {'a': 1}\n")
    assert values(read_log(path), 0) == {"a": 1.0}


def test_reading_can_be_cancelled(tmp_path):
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(DumpError, match="cancelled"):
        read_log(healthy().write(tmp_path / "x.log"), cancel=cancel)


def test_no_file(tmp_path):
    with pytest.raises(DumpMissing):
        read_log(tmp_path / "none.log")


def test_printed_is_what_python_prints():
    assert printed({"a": 1.5}) == repr({"a": 1.5})


HOSTILE = (
    "step:1 - " + "(:" * 200_000,
    "Step 1 | " + ": | " * 200_000,
    "rollout 1: {" + "'" * 200_000,
    "rollout 1: {" + "[" * 200_000,
    "step 1: {'a': " + "<(" * 200_000,
    "Finish rollout: [" + ", label: " * 100_000,
    "(A pid=1) " + " " * 400_000 + "x",
    "\x1b]" * 200_000,
    "• " + "a" * 400_000,
    "Start rollout " * 50_000,
)


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:12])
def test_no_line_takes_long(text):
    began = time.process_time()
    read_line(clean(text.encode()).text)
    assert time.process_time() - began < 1.0


@given(
    some.binary(max_size=200),
    some.sampled_from(
        [
            b"rollout 3: {",
            b"step:4 - a:",
            b"Step 5 | Loss: ",
            "• Loss: ".encode(),
            b"Finish rollout: ['",
            b"  name ....... ",
            b"=== Step 3/9 ===",
        ]
    ),
)
def test_any_bytes_can_be_read(noise, begin):
    reading = read_line(clean(begin + noise).text)
    assert reading is None or reading.kind
