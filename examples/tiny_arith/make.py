"""Make the tiny arithmetic example from nothing: tokenizer, data, model.

    python examples/tiny_arith/make.py

writes ``train.jsonl``, ``heldout.jsonl`` and ``model/`` beside this file. Everything
hangs on ``--seed``; the numbers of a repeated run differ only where the processor's
floating point does.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import characters
import torch
from data import Problem, answers, split
from reward import score
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

HERE = Path(__file__).parent
MAX_RESPONSE_TOKENS = 48
IGNORED = -100
"""Label that the cross entropy skips."""


def config(tokenizer: PreTrainedTokenizerFast) -> Qwen3Config:
    """A Qwen3 of 0.8 million parameters: RMSNorm, SwiGLU, RoPE, GQA, q/k norm."""
    return Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=characters.MAX_LENGTH,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


def batches(
    problems: Sequence[Problem],
    *,
    tokenizer: PreTrainedTokenizerFast,
    size: int,
    steps: int,
    seed: int,
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Token ids and labels of ``steps`` batches, padded on the right.

    Yields:
        ``(ids, labels)``, both int64 [size, longest]; labels are ``IGNORED`` on the
        prompt and on padding, so that only answers are learned.
    """
    drawn = answers(problems, count=size * steps, seed=seed)
    for _ in range(steps):
        rows = []
        for _ in range(size):
            problem, text = next(drawn)
            prompt = prompt_ids(problem, tokenizer=tokenizer)
            response = [*tokenizer.encode(text), tokenizer.eos_token_id]
            rows.append((prompt, response))
        longest = max(len(prompt) + len(response) for prompt, response in rows)
        ids = torch.full((size, longest), tokenizer.pad_token_id)
        labels = torch.full((size, longest), IGNORED)
        for i, (prompt, response) in enumerate(rows):
            end = len(prompt) + len(response)
            ids[i, :end] = torch.tensor(prompt + response)
            labels[i, len(prompt) : end] = torch.tensor(response)
        yield ids, labels


def prompt_ids(problem: Problem, *, tokenizer: PreTrainedTokenizerFast) -> list[int]:
    """The prompt through the chat template, ready to be answered."""
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": problem.prompt}],
        tokenize=False,
        add_generation_prompt=True,
    )
    return tokenizer.encode(text, add_special_tokens=False)


def train(
    model: Qwen3ForCausalLM,
    pairs: Iterator[tuple[torch.Tensor, torch.Tensor]],
    *,
    steps: int,
    lr: float,
) -> None:
    """Supervised training: AdamW, warm-up, cosine to a tenth."""
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.01
    )
    schedule = torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [
            torch.optim.lr_scheduler.LinearLR(optimizer, 0.02, total_iters=50),
            torch.optim.lr_scheduler.CosineAnnealingLR(
                optimizer, steps - 50, eta_min=lr / 10
            ),
        ],
        milestones=[50],
    )
    model.train()
    started = time.monotonic()
    for step, (ids, labels) in enumerate(pairs):
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0 or step == steps - 1:
            seconds = time.monotonic() - started
            print(
                f"step {step:4d}  loss {loss.item():.4f}  {seconds:.0f} s", flush=True
            )


@torch.inference_mode()
def accuracy(
    model: Qwen3ForCausalLM,
    problems: Sequence[Problem],
    *,
    tokenizer: PreTrainedTokenizerFast,
    do_sample: bool,
) -> float:
    """Share of right answers, one answer a problem, at temperature 1 or greedy."""
    model.eval()
    tokenizer.padding_side = "left"
    prompts = [prompt_ids(p, tokenizer=tokenizer) for p in problems]
    inputs = tokenizer.pad({"input_ids": prompts}, return_tensors="pt")
    sampling = {"temperature": 1.0, "top_k": 0, "top_p": 1.0} if do_sample else {}
    ids = model.generate(
        **inputs, max_new_tokens=MAX_RESPONSE_TOKENS, do_sample=do_sample, **sampling
    )
    texts = tokenizer.batch_decode(
        ids[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True
    )
    right = sum(score(t, p.label) for t, p in zip(texts, problems, strict=True))
    return right / len(problems)


def save(
    model: Qwen3ForCausalLM, *, tokenizer: PreTrainedTokenizerFast, folder: Path
) -> None:
    """Write the checkpoint beside ``folder`` first, then put it in its place."""
    fresh = folder.with_name(folder.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    model.save_pretrained(fresh)
    path = fresh / "config.json"
    settings = json.loads(path.read_text())
    # Version 4 of transformers reads the first name, version 5 the second.
    settings["rope_theta"] = settings["rope_parameters"]["rope_theta"]
    path.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")
    (fresh / "model.safetensors").chmod(0o644)  # written for the owner alone
    characters.save(tokenizer, fresh)
    shutil.rmtree(folder, ignore_errors=True)
    fresh.rename(folder)


def write_rows(problems: Sequence[Problem], *, path: Path) -> None:
    """Write a prompt file: one JSON object a line."""
    fresh = path.with_name(path.name + ".new")
    with fresh.open("w") as file:
        file.writelines(json.dumps(problem.row()) + "\n" for problem in problems)
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(path)


def main() -> None:
    """Make everything, and say how good the model is."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=HERE)
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    splits = split(seed=options.seed)
    options.folder.mkdir(parents=True, exist_ok=True)
    write_rows(splits.train, path=options.folder / "train.jsonl")
    write_rows(splits.heldout, path=options.folder / "heldout.jsonl")

    tokenizer = characters.build()
    model = Qwen3ForCausalLM(config(tokenizer)).float()
    print(f"{model.num_parameters():,} parameters, {len(tokenizer)} tokens")
    pairs = batches(
        splits.sft,
        tokenizer=tokenizer,
        size=options.batch_size,
        steps=options.steps,
        seed=options.seed,
    )
    train(model, pairs, steps=options.steps, lr=options.lr)
    save(model, tokenizer=tokenizer, folder=options.folder / "model")
    for name, problems in (("train", splits.train), ("heldout", splits.heldout)):
        for do_sample in (True, False):
            share = accuracy(model, problems, tokenizer=tokenizer, do_sample=do_sample)
            print(f"{name} {'sampled' if do_sample else 'greedy'}: {share:.3f}")


if __name__ == "__main__":
    main()
