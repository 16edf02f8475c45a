"""Files that must be there before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from relax.arguments.arguments import Arguments
from relax.arguments.validate.rule import Machine, Rule, broken


def checkpoint_exists(arguments: Arguments, machine: Machine) -> None:
    """``--hf-checkpoint`` is a folder with the model's config."""
    folder = arguments.checkpoint.hf_checkpoint
    if not folder.is_dir():
        raise broken(
            arguments,
            "hf_checkpoint",
            "there is no such folder",
            fix="give a folder that holds config.json, weights and tokenizer",
        )
    if not (folder / "config.json").is_file():
        raise broken(
            arguments,
            "hf_checkpoint",
            "the folder holds no config.json",
            fix="give a Hugging Face checkpoint",
        )


def inputs_exist(arguments: Arguments, machine: Machine) -> None:
    """What is read from is there."""
    named: dict[str, Path | None] = {
        "ref_load": arguments.checkpoint.ref_load,
        "prompt_data": arguments.data.prompt_data,
        "sglang_python": arguments.rollout.sglang_python,
    }
    for name, path in named.items():
        if path is not None and not path.exists():
            raise broken(
                arguments, name, "does not exist", fix="give a path that exists"
            )
    for text in arguments.run.eval_prompt_data[1::2]:
        if not Path(text).exists():
            raise broken(
                arguments,
                "eval_prompt_data",
                f"{text} does not exist",
                fix="give a path that exists",
            )


def dumps_exist(arguments: Arguments, machine: Machine) -> None:
    """The first dump that would be read is there."""
    first = arguments.data.start_rollout_id or 0
    debug = arguments.debug
    for name, template in (
        ("load_debug_rollout_data", debug.load_debug_rollout_data),
        ("load_forge_rollout_data", debug.load_forge_rollout_data),
    ):
        if template is None:
            continue
        path = Path(template.format(rollout_id=first))
        # A forged rollout falls back to the dump of rollout 0.
        forged = name == "load_forge_rollout_data"
        other = Path(template.format(rollout_id=0)) if forged else path
        if not (path.exists() or other.exists()):
            raise broken(
                arguments,
                name,
                f"{path} does not exist",
                fix="give the path of a dump; {rollout_id} is filled in",
            )


def folders_are_no_files(arguments: Arguments, machine: Machine) -> None:
    """What is written into is not a file."""
    named: dict[str, Path | None] = {
        "run_dir": arguments.run.run_dir,
        "save": arguments.checkpoint.save,
        "dump_details": arguments.debug.dump_details,
    }
    for name, path in named.items():
        if path is not None and path.exists() and not path.is_dir():
            raise broken(
                arguments, name, "is a file, not a folder", fix="give another path"
            )


RULES: Final[tuple[Rule, ...]] = (
    checkpoint_exists,
    inputs_exist,
    dumps_exist,
    folders_are_no_files,
)
