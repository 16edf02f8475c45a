"""Where the files of a dump lie."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from relax.arguments.dump_template import DumpKind, DumpTemplate, as_template

__all__ = ["MANIFEST_SUFFIX", "DumpKind", "DumpPlaces", "DumpTemplate", "manifest_path"]

MANIFEST_SUFFIX: Final = ".manifest.json"


def manifest_path(file: Path) -> Path:
    """The manifest beside a dump's first file: ``37.pt`` → ``37.manifest.json``."""
    return file.with_name(f"{file.stem}{MANIFEST_SUFFIX}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpPlaces:
    """Where the files of each rollout go.

    Attributes:
        rollout: Template of the rollout dumps; None when none are written.
        train: Template of the train dumps; None when none are written.
        tokenizer: Folder that the tokenizer is copied to; None when it is not.
    """

    rollout: DumpTemplate | None = None
    train: DumpTemplate | None = None
    tokenizer: Path | None = None

    @classmethod
    def under(cls, folder: Path) -> Self:
        """The layout of ``--dump-details``."""
        text = as_template(folder)
        return cls(
            rollout=DumpTemplate(f"{text}/rollout_data/{{rollout_id}}.pt"),
            train=DumpTemplate(f"{text}/train_data/{{rollout_id}}_{{rank}}.pt"),
            tokenizer=folder / "tokenizer",
        )

    def manifest(self, rollout_id: int) -> Path | None:
        """The manifest of one rollout; None when nothing is written at all."""
        template = self.rollout or self.train
        if template is None:
            return None
        return manifest_path(template.path(rollout_id=rollout_id))

    def folders(self, rollout_id: int) -> frozenset[Path]:
        """The folders, resolved, that this rollout's files lie in."""
        templates = [t for t in (self.rollout, self.train) if t is not None]
        return frozenset(
            template.path(rollout_id=rollout_id).parent.resolve()
            for template in templates
        )
