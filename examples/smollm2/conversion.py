"""From any form of the model that transformers reads to an ordinary fp32 checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from sources import MakeError, ModelFiles
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

FAMILIES = ("llama", "qwen2", "qwen3")
"""Model types that the engine trains."""

QUESTION = "What is the capital of France?"
LONGEST_ANSWER = 24


def convert(files: ModelFiles, *, into: Path) -> None:
    """Write model and tokenizer of ``files`` into the existing folder ``into``.

    Raises:
        MakeError: transformers cannot load it, or the engine cannot use it.
    """
    try:
        model = AutoModelForCausalLM.from_pretrained(
            files.name, gguf_file=files.gguf, dtype=torch.float32
        )
        tokenizer = AutoTokenizer.from_pretrained(files.name, gguf_file=files.gguf)
    except (OSError, ValueError, KeyError, ImportError) as error:
        what = str(error).strip().partition("\n")[0]
        raise MakeError(
            f"transformers cannot load {files.gguf or files.name}: {what}"
        ) from error
    _require_usable(model, tokenizer=tokenizer)
    if files.gguf is not None:
        # The weights are plain fp32 by now; these would make transformers refuse to
        # write them, and readers expect a quantised file.
        model.hf_quantizer = None
        # Some versions of transformers leave it out by themselves.
        vars(model.config).pop("quantization_config", None)
    model.save_pretrained(into)
    tokenizer.save_pretrained(into)
    _make_readable(into)


@torch.inference_mode()
def answer(folder: Path) -> str:
    """What the checkpoint answers, greedily, to one question in English."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": QUESTION}],
        tokenize=False,
        add_generation_prompt=True,
    )
    inputs = tokenizer(text, add_special_tokens=False, return_tensors="pt")
    ids = model.generate(**inputs, max_new_tokens=LONGEST_ANSWER, do_sample=False)
    response = ids[0, inputs["input_ids"].shape[1] :]
    return str(tokenizer.decode(response, skip_special_tokens=True)).strip()


def _require_usable(
    model: PreTrainedModel, *, tokenizer: PreTrainedTokenizerBase
) -> None:
    family = model.config.model_type
    if family not in FAMILIES:
        raise MakeError(
            f"a model of type {family!r} cannot be trained; use {', '.join(FAMILIES)}"
        )
    if not tokenizer.chat_template:
        raise MakeError("its tokenizer has no chat template; use an instruct model")
    if len(tokenizer) > model.config.vocab_size:
        raise MakeError(
            f"its tokenizer has {len(tokenizer)} tokens and its embedding only "
            f"{model.config.vocab_size} rows"
        )


def _make_readable(folder: Path) -> None:
    """Names that transformers 4 knows, and servers that pin it."""
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    for name in ("is_local", "local_files_only"):  # how it was loaded here
        settings.pop(name, None)
    template = folder / "chat_template.jinja"
    if template.is_file():
        settings["chat_template"] = template.read_text(encoding="utf-8")
    _write(path, settings)
    path = folder / "config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    rope = settings.get("rope_parameters", {})
    if "rope_theta" in rope:
        settings["rope_theta"] = rope["rope_theta"]
    _write(path, settings)
    for weights in folder.glob("*.safetensors"):
        weights.chmod(0o644)  # written for the owner alone


def _write(path: Path, settings: dict[str, object]) -> None:
    text = json.dumps(settings, indent=2, sort_keys=True, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")
