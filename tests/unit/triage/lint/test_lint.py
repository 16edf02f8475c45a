"""Faults seen in settings, scripts and agents' source, before a run starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relax.errors import ArgumentError
from relax.triage.lint.combinations import judge_combinations
from relax.triage.lint.given import Given, by_name, read_given
from relax.triage.lint.lint import lint
from relax.triage.lint.tokenizer import read_tokenizer
from relax.triage.verdict import Status


@pytest.fixture
def tokenizer(tmp_path):
    document = {
        "added_tokens": [
            {"id": 248046, "content": "<|im_end|>", "special": True},
            {"id": 248059, "content": "</tool_call>", "special": False},
        ],
        "model": {
            "type": "BPE",
            "vocab": {"</": 510, "answer": 8944, ">": 29, "ĊĊ": 271},
        },
    }
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(document))
    return folder


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def rules(found):
    return {verdict.rule: verdict for verdict in found.verdicts}


AGENT = """
from openai import AsyncOpenAI
raise RuntimeError("it must never be imported")
STOPS = ["</answer>", "</tool_call>"]
async def act(client, messages):
    return await client.chat.completions.create(
        model="m", messages=messages, stop=STOPS, n=1)
"""


def test_stop_strings_in_an_agents_source(tmp_path, tokenizer):
    path = written(tmp_path / "agent.py", AGENT)
    verdict = rules(lint([path], tokenizer=tokenizer))["stop_strings"]
    assert verdict.status is Status.WARN
    assert verdict.evidence[0].text.startswith(f"{path}:7: ")
    several, one = verdict.causes
    assert "several tokens" in several.text
    assert "<|im_end|>" in several.text
    assert "248046" in several.text
    assert "[248059]" in one.text
    assert verdict.next_command == "--rollout-stop-token-ids 248059 248046"


@pytest.mark.parametrize(
    "source",
    [
        "client.create(extra_body={'stop_token_ids': [1]})",
        "params = {'stop': None}",
        "range(0, stop=9)",
        "slice(stop=3)",
        "server.create(stop=[])",
        "thread.stop()",
        "x = {'stop': 3}",
    ],
)
def test_other_stops_are_none(tmp_path, source):
    assert not lint([written(tmp_path / "a.py", source)]).verdicts


@pytest.mark.parametrize(
    "source",
    [
        "params['stop'] = ['###']",
        "params = {'stop': '###'}",
        "client.generate(prompt, stop=make_stops())",
        "sample(stop=('a', 'b'))",
    ],
)
def test_ways_to_say_stop(tmp_path, source):
    found = rules(lint([written(tmp_path / "a.py", source)]))
    assert found["stop_strings"].status is Status.WARN


def test_without_a_tokenizer_it_says_how_to_get_the_ids(tmp_path):
    path = written(tmp_path / "run.sh", "train.py --rollout-stop '</answer>' 'END'\n")
    verdict = rules(lint([path]))["stop_strings"]
    assert "'</answer>', 'END'" in verdict.summary
    assert any("--tokenizer" in cause.confirm for cause in verdict.causes)


def test_the_tokenizer_that_the_settings_name(tmp_path, tokenizer):
    path = written(
        tmp_path / "run.yaml",
        f"hf_checkpoint: {tokenizer}\nrollout_stop: ['</tool_call>']\n",
    )
    found = lint([path])
    assert found.tokenizer == str(tokenizer / "tokenizer.json")
    assert "[248059]" in rules(found)["stop_strings"].causes[0].text


def test_an_ordinary_token_is_not_called_exact(tokenizer):
    table = read_tokenizer(tokenizer)
    assert table.id_of("\n\n") == 271
    assert not table.is_exact("\n\n")
    assert table.id_of("</answer>") is None
    assert len(table) == 248060


def test_more_than_the_engine_takes(tmp_path):
    stops = json.dumps([f"s{n}" for n in range(40)])
    path = written(tmp_path / "a.yaml", f"sampling:\n  stop: {stops}\n")
    assert rules(lint([path]))["stop_strings"].status is Status.FAIL


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "lr: 1e-6\nactor:\n  top-p: 0.9\nuse_tis: true\n"),
        ("a.json", '{"lr": 1e-6, "actor": {"top-p": 0.9}, "use_tis": true}'),
        ("a.toml", "lr = 1e-6\nuse_tis = true\n[actor]\ntop-p = 0.9\n"),
    ],
)
def test_files_of_settings(tmp_path, name, text):
    found = by_name(read_given(written(tmp_path / name, text)))
    assert found["lr"].value == 1e-6
    assert found["actor.top_p"].value == 0.9
    assert found["use_tis"].value is True


def test_launch_scripts(tmp_path):
    script = (
        "ARGS=(\n  --rollout-temperature 0.7  # warm\n  --use-tis\n"
        "  --rollout-stop a b\n)\n"
        'python3 train.py --lr=1e-6 --load "$CKPT" "${ARGS[@]}" '
        "actor.rollout.top_p=0.9\n"
    )
    found = by_name(read_given(written(tmp_path / "run.sh", script)))
    assert found["rollout_temperature"].value == 0.7
    assert found["rollout_temperature"].line == 2
    assert found["use_tis"].value is True
    assert found["rollout_stop"].value == ["a", "b"]
    assert found["lr"].value == 1e-6
    assert found["load"].value == "$CKPT"
    assert found["actor.rollout.top_p"].value == 0.9


CASES = [
    ({"num_experts": 64}, "moe_permute_fusion", {"moe_permute_fusion": True}),
    ({"context_parallel_size": 2}, "cp_attention", {"attention_backend": "flash"}),
    ({"rollout_top_p": 0.9}, "cut_sampling", {"rollout_top_p": 1.0}),
    ({"rollout_temperature": 0.7}, "temperature", {"rollout_temperature": 1.0}),
    ({"debug_train_only": True}, "train_only_input", {"load_debug_rollout_data": "x"}),
    (
        {"debug_rollout_only": True, "debug_train_only": True},
        "both_debug_modes",
        {"debug_train_only": False},
    ),
    ({"kl_coef": 0.1, "kl_loss_coef": 0.1, "ref_load": "x"}, "two_kl_terms",
     {"kl_coef": 0}),
    ({"use_kl_loss": True}, "reference_missing", {"ref_load": "x"}),
    ({"save_debug_train_data": "d/{rollout_id}.pt"}, "rank_in_template",
     {"save_debug_train_data": "d/{rollout_id}_{rank}.pt"}),
    ({"dump_details": "d", "use_fault_tolerance": True}, "hidden_errors",
     {"use_fault_tolerance": False}),
    ({"n_samples_per_prompt": 1}, "one_sample_groups", {"n_samples_per_prompt": 8}),
    ({"rollout_batch_size": 32, "n_samples_per_prompt": 8, "global_batch_size": 100},
     "batch_sizes", {"global_batch_size": 128}),
    ({"load_forge_rollout_data": "x"}, "forge_function",
     {"rollout_function_path": "relax.engine.rollout.forge_load.generate_rollout"}),
    ({"colocate": True, "max_staleness": 2}, "staleness_colocated",
     {"max_staleness": 0}),
    ({"rollout_health_check_first_wait": 0}, "health_first_wait",
     {"rollout_health_check_first_wait": 300}),
]  # fmt: skip


def judged(settings):
    given = [
        Given(name=n, value=v, file="run.yaml", line=1) for n, v in settings.items()
    ]
    return {verdict.rule: verdict for verdict in judge_combinations(given)}


@pytest.mark.parametrize(
    ("bad", "rule", "cure"), CASES, ids=[case[1] for case in CASES]
)
def test_known_bad_combinations_and_their_cures(bad, rule, cure):
    verdict = judged(bad)[rule]
    assert verdict.evidence[0].text.startswith("run.yaml:1: ")
    assert verdict.causes[0].confirm
    assert rule not in judged({**bad, **cure})


def test_what_a_shell_fills_in_is_not_judged():
    assert not judged(
        {"rollout_temperature": "${TEMP}", "context_parallel_size": "$CP"}
    )


def test_a_checkpoint_without_its_tracker(tmp_path):
    folder = tmp_path / "ckpt"
    folder.mkdir()
    assert (
        "random weights"
        in judged({"load": str(folder)})["checkpoint_tracker"].causes[0].text
    )
    (folder / "latest_checkpointed_iteration.txt").write_text("40\n")
    assert "iter_0000040" in judged({"load": str(folder)})["checkpoint_tracker"].summary
    (folder / "iter_0000040").mkdir()
    assert "checkpoint_tracker" not in judged({"load": str(folder)})


def test_folders_are_walked_and_broken_files_told(tmp_path):
    (tmp_path / "node_modules").mkdir()
    written(tmp_path / "node_modules" / "x.py", AGENT)
    written(tmp_path / "agent.py", AGENT)
    written(tmp_path / "broken.py", "def (")
    found = lint([tmp_path])
    assert found.files == 1
    assert "broken.py" in found.unread[0]
    assert "stop_strings" in rules(found)


def test_what_is_named_must_be_readable(tmp_path):
    with pytest.raises(ArgumentError, match="no such"):
        lint([tmp_path / "none.yaml"])
    with pytest.raises(ArgumentError, match="no Python"):
        lint([written(tmp_path / "broken.py", "def (")])
    with pytest.raises(ArgumentError, match="YAML"):
        lint([written(tmp_path / "broken.yaml", "a: [")])
