import dataclasses
import json
import pickle
import string
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusal_table import Row, command_line

from relax.arguments import Arguments, parse_arguments
from relax.arguments.arguments import replaced
from relax.arguments.environment import recorded_environment, redactor
from relax.arguments.redaction import REDACTED, Redactor, is_secret_name
from relax.errors import ArgumentError

_FOLDER = tempfile.TemporaryDirectory()
_BASE = command_line(Row("", ()), Path(_FOLDER.name))
_TEXT = st.text(string.ascii_letters + " äß\"'{}[]:,#", min_size=1, max_size=12)


def _changes() -> st.SearchStrategy[dict]:
    return st.fixed_dictionaries(
        {},
        optional={
            "--seed": st.integers(0, 2**40),
            "--lr": st.floats(0, 1, allow_nan=False),
            "--rollout-temperature": st.floats(0.01, 5),
            "--eps-clip-high": st.floats(0, 1),
            "--rollout-stop": st.lists(_TEXT, min_size=1, max_size=3),
            "--rollout-stop-token-ids": st.lists(
                st.integers(0), min_size=1, max_size=3
            ),
            "--run-name": _TEXT,
            "--run-dir": _TEXT.map(lambda text: f"/nowhere/{text}"),
            "--input-key": _TEXT,
            "--max-tokens-per-gpu": st.integers(1, 2**20),
            "--moe-aux-loss-coeff": st.floats(0, 1),
            "--qk-layernorm": st.just(None),
            "--kl-loss-type": st.sampled_from(["k1", "k2", "k3", "low_var_kl"]),
        },
    )


@settings(max_examples=60, deadline=None)
@given(changes=_changes())
def test_json_reads_back_equal(changes):
    words = list(_BASE)
    for name, value in changes.items():
        if value is None:
            words.append(name)
        elif isinstance(value, list):
            words += [name, *(str(item) for item in value)]
        else:
            words.append(f"{name}={value}")
    arguments = parse_arguments(words)
    document = json.loads(json.dumps(arguments.to_json(), allow_nan=False))
    again = Arguments.from_json(document)
    assert again == arguments
    assert again.digest() == arguments.digest()
    assert pickle.loads(pickle.dumps(arguments)) == arguments
    for name, value in changes.items():
        field = name.removeprefix("--").replace("-", "_")
        read = arguments.values()[field]
        if isinstance(value, list):
            assert read == tuple(value)
        elif value is not None:
            assert str(read) == str(value) or float(read) == float(value)


def test_the_digest_follows_values_and_not_origins(words):
    plain = parse_arguments(words())
    same = parse_arguments(words("--seed 1234"))
    other = parse_arguments(words("--seed 1235"))
    assert plain.digest() == same.digest()
    assert plain.digest() != other.digest()
    assert len(plain.digest()) == 64


def test_settings_cannot_be_assigned(words):
    arguments = parse_arguments(words())
    with pytest.raises(dataclasses.FrozenInstanceError):
        arguments.batch.micro_batch_size = 3
    assert replaced(arguments, micro_batch_size=2).batch.micro_batch_size == 2
    with pytest.raises(ArgumentError):
        replaced(arguments, micro_batch=2)


def test_records_of_another_version_are_named(words):
    document = parse_arguments(words()).to_json()
    missing = {name: entry for name, entry in document.items() if name != "seed"}
    with pytest.raises(ArgumentError, match="seed"):
        Arguments.from_json(missing)
    document["sead"] = {"value": 1, "origin": "flag"}
    with pytest.raises(ArgumentError, match="sead"):
        Arguments.from_json(document)


PLANTED = "pl4nted-s3cret-value"


def test_secrets_are_never_recorded(words, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", PLANTED)
    monkeypatch.setenv("NCCL_COMMENT", f"x {PLANTED}")
    monkeypatch.setenv("SGLANG_API_KEY", "another-planted-one")
    monkeypatch.setenv("PROXY", f"http://bob:url-{PLANTED}@proxy:80")
    given = words(
        f"--rollout-backend sglang --sglang-api-key k-{PLANTED[::-1]}"
        f" --run-name n-{PLANTED} --ray-address ray://me:{PLANTED}2@head:10001"
        f" --input-key k-{PLANTED[::-1]} --rollout-stop a{PLANTED} url-{PLANTED}"
        " --label-key https://h/x?token=abcdefgh"
    )
    arguments = parse_arguments(given)
    text = json.dumps(arguments.to_json()) + json.dumps(recorded_environment())
    text += " ".join(redactor().command_line(given))
    for secret in (PLANTED, "another-planted-one", "abcdefgh"):
        assert secret not in text
    assert f"k-{PLANTED[::-1]}" not in json.dumps(arguments.to_json())
    assert arguments.rollout.sglang["api_key"] == f"k-{PLANTED[::-1]}"
    assert arguments.to_json()["seed"]["value"] == 1234


def test_secrets_are_not_in_errors(words, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", PLANTED)
    with pytest.raises(ArgumentError) as caught:
        parse_arguments(words(f"--rm-type {PLANTED}"))
    assert PLANTED not in str(caught.value)


def test_recorded_environment_is_an_allow_list(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.setenv("MY_PRIVATE_THING", "hello")
    recorded = recorded_environment()
    assert recorded["OMP_NUM_THREADS"] == "3"
    assert recorded["NCCL_DEBUG"] == "INFO"
    assert "MY_PRIVATE_THING" not in recorded


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "api_key",
        "sglang-admin-api-key",
        "AWS_SECRET_ACCESS_KEY",
        "GITHUB_TOKEN",
        "PASSWORD",
        "DB_PASSWORD",
        "token",
        "secret_key",
        "AWS_ACCESS_KEY_ID",
        "OPENAI_APIKEY",
        "MYSQL_PWD",
        "NPM_TOKEN_X",
        "API_SECRET_V2",
        "apiKey",
        "SSH_PRIVATE_KEY",
        "CLIENT_SECRET",
    ],
)
def test_secret_names(name):
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "PWD",
        "OLDPWD",
        "_",
        "max_tokens_per_gpu",
        "rollout_stop_token_ids",
        "input_key",
        "label_key",
        "tool_key",
        "calculate_per_token_loss",
        "moe_token_dispatcher_type",
        "num_tokens",
        "author",
        "rollout_skip_special_tokens",
        "eos_token_id",
        "key",
        "num_key_value_heads",
    ],
)
def test_innocent_names(name):
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://bob:pw@h/x", f"https://{REDACTED}@h/x"),
        ("https://h/x?token=abc&y=1", f"https://h/x?token={REDACTED}&y=1"),
        ("Authorization: Bearer abc.def", f"Authorization: Bearer {REDACTED}"),
        ("x sk-abcdefghijklmnopqrst y", f"x {REDACTED} y"),
        ("http://h:80/a@b", "http://h:80/a@b"),
        ("/data/tokens/key", "/data/tokens/key"),
        ("tokens per second=3", "tokens per second=3"),
        ("--rollout max_tokens=512 x", "--rollout max_tokens=512 x"),
        ("eos_token=</s> stop_token_ids=[2]", "eos_token=</s> stop_token_ids=[2]"),
        (
            "csrftoken=abc auth_token='d'",
            f"csrftoken={REDACTED} auth_token='{REDACTED}'",
        ),
        ("a known-one b", f"a {REDACTED} b"),
    ],
)
def test_redacted_texts(text, expected):
    assert Redactor.knowing(["known-one"]).text(text) == expected


def test_redacted_command_line():
    words = ["--api-key", "x", "--api-key=y", "--seed", "3", "--url=http://a:b@c"]
    assert Redactor().command_line(words) == [
        *("--api-key", REDACTED, f"--api-key={REDACTED}", "--seed", "3"),
        f"--url=http://{REDACTED}@c",
    ]
