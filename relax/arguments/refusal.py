"""The one sentence in which an argument is refused: flag, value, problem, fix."""

from __future__ import annotations

from relax.arguments.environment import redactor
from relax.errors import ArgumentError


def dashed(name: str) -> str:
    """A field's name as a flag: ``--kl-coef`` for ``kl_coef``."""
    return f"--{name.replace('_', '-')}"


def refuse(
    name: str, value: object, problem: str, *, fix: str, origin: str = ""
) -> ArgumentError:
    """The error for a flag with a value that cannot stand.

    Args:
        name: Field or flag name.
        value: Offending value; None leaves it out of the sentence.
        problem: What is wrong with it.
        fix: What to write instead.
        origin: Where it came from, when that is not the command line.

    Returns:
        An `ArgumentError` whose text holds no secret.
    """
    redact = redactor()
    if isinstance(value, list | tuple):
        value = " ".join(str(item) for item in value)
    shown = ""
    if value is not None and value != "":
        shown = f" {redact.value(name, str(value))}"
    where = ""
    if origin.startswith("derived"):
        shown += f" ({origin})"
    elif origin not in ("", "flag", "default"):
        where = origin
    return ArgumentError(
        f"{dashed(name)}{shown}: {redact.text(problem)}", where=where, hint=fix
    )
