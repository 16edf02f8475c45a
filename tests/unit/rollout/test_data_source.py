"""Prompts from a file: order, cursor, errors."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import CharacterTokenizer

from relax.engine.rollout.data_source import PromptSettings, RolloutDataSource
from relax.errors import ArgumentError, RecordError


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "prompts.jsonl"
    rows = [
        {"input": "x" * (n + 1), "label": n, "metadata": {"n": n}} for n in range(7)
    ]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    return path


def source(path, **settings):
    return RolloutDataSource.open(
        PromptSettings(prompt_data=path, **settings), tokenizer=CharacterTokenizer()
    )


def drawn(groups):
    return [(g[0].group_index, [s.index for s in g], g[0].prompt) for g in groups]


def test_groups_share_a_prompt_and_indices_run_on(path):
    data = source(path, label_key="label", n_samples_per_prompt=2)
    groups = data.get_samples(9)
    assert [s.index for group in groups for s in group] == list(range(18))
    assert [group[0].group_index for group in groups] == list(range(9))
    assert [len(group[0].prompt) for group in groups] == [1, 2, 3, 4, 5, 6, 7, 1, 2]
    first, twin = groups[2]
    assert first.tokens == twin.tokens == [ord("x")] * 3
    assert first.label == "2"
    first.metadata["n"] = first.tokens[0] = -1
    assert twin.metadata == {"n": 2}
    assert twin.tokens[0] == ord("x")


@given(
    first=st.integers(0, 20),
    second=st.integers(1, 20),
    shuffle=st.booleans(),
    longest=st.sampled_from([None, 4]),
)
def test_a_cursor_goes_on_where_it_was_saved(path, first, second, shuffle, longest):
    settings = {"shuffle": shuffle, "max_prompt_len": longest}
    data = source(path, **settings)
    data.get_samples(first)
    state = json.loads(json.dumps(data.state()))
    expected = drawn(data.get_samples(second))
    again = source(path, **settings)
    again.restore(state)
    assert drawn(again.get_samples(second)) == expected
    assert again.state() == data.state()


@given(seed=st.integers(0, 2**32))
def test_shuffling_deals_every_prompt_once_an_epoch(path, seed):
    data = source(path, shuffle=True, seed=seed)
    epochs = [[g[0].prompt for g in data.get_samples(7)] for _ in range(4)]
    assert all(sorted(epoch) == sorted(epochs[0]) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1


def test_long_prompts_are_left_out_and_counted(path):
    data = source(path, max_prompt_len=3, epochs=2)
    assert len(data.get_samples(100)) == 6
    assert data.num_filtered == 8
    assert data.get_samples(1) == []
    assert len(data) == 7


def test_only_long_prompts_are_refused(path):
    with pytest.raises(ArgumentError, match="rollout-max-prompt-len"):
        source(path, max_prompt_len=-1).get_samples(1)


def test_epochs_end(path):
    data = source(path, epochs=1)
    assert len(data.get_samples(5)) == 5
    assert len(data.get_samples(5)) == 2
    assert len(data.rewound().get_samples(9)) == 7


def test_a_cursor_of_other_prompts_is_refused(path, tmp_path):
    other = tmp_path / "other.jsonl"
    other.write_text('{"input": "y"}\n')
    with pytest.raises(RecordError, match="changed"):
        source(other).restore(source(path).state())
    with pytest.raises(RecordError, match="changed"):
        source(path, shuffle=True).restore(source(path).state())
    with pytest.raises(RecordError, match="version"):
        source(path).restore({"version": 99})


def test_chat_templates_take_text_messages_and_tools(tmp_path):
    path = tmp_path / "chat.jsonl"
    rows = [
        {"input": "hi"},
        {"input": [{"role": "system", "content": "be"}], "tools": [{}, {}]},
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    groups = source(path, apply_chat_template=True).get_samples(2)
    assert [group[0].prompt for group in groups] == [
        "<user>hi<assistant>",
        "[2 tools]<system>be<assistant>",
    ]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "not JSON"),
        ("[1]", "a list, not an object"),
        ('{"text": "a"}', "no 'input'; it has 'text'"),
        ('{"input": "a"}', "no 'answer'"),
        ('{"input": 3, "answer": ""}', "a int, not text"),
        ('{"input": null, "answer": ""}', "null, not text"),
        ('{"input": [], "answer": ""}', "apply-chat-template"),
        ('{"input": "a", "answer": "", "metadata": "m"}', "'metadata' is a str"),
        ('{"input": "a", "answer": "", "tools": {}}', "'tools' is a dict"),
    ],
)
def test_bad_lines_are_named(tmp_path, line, says):
    path = tmp_path / "bad.jsonl"
    path.write_text(f'{{"input": "a", "answer": "b"}}\n{line}\n')
    with pytest.raises(ArgumentError, match=says) as raised:
        source(path, label_key="answer")
    assert raised.value.where == f"{path}:2"


def test_files_that_hold_nothing_are_refused(tmp_path):
    with pytest.raises(ArgumentError, match="cannot be read"):
        source(tmp_path / "missing.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n\n")
    with pytest.raises(ArgumentError, match="no prompts"):
        source(tmp_path / "empty.jsonl")


def test_a_template_needs_a_tokenizer(path):
    settings = PromptSettings(prompt_data=path)
    assert RolloutDataSource.open(settings, tokenizer=None).get_samples(1)[0][0].prompt
    with pytest.raises(ArgumentError, match="tokenizer"):
        RolloutDataSource.open(
            dataclasses.replace(settings, apply_chat_template=True), tokenizer=None
        )
