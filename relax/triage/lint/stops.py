"""String `stop` where `stop_token_ids` serves (debugging guide, SGLang crash 1).

Stop strings are matched by the detokenizer, token by token, for every session; under
agentic concurrency that starves its heartbeat. Ids are matched where the sampler is.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from relax.errors import ArgumentError
from relax.triage.lint.given import Given
from relax.triage.lint.tokenizer import TokenTable
from relax.triage.verdict import Cause, Evidence, Place, Status, Verdict

MOST_STOPS: Final = 32
"""SGLang refuses more stop strings in one request."""

_NAMES: Final = ("stop", "rollout_stop", "stop_strings", "stop_sequences")
_REQUESTS: Final = (
    "create",
    "generate",
    "acreate",
    "completion",
    "acompletion",
    "post",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopUse:
    """A place that asks for stop strings.

    Attributes:
        texts: The strings; empty when they are not in this file.
        origin: ``FILE:LINE``.
    """

    texts: tuple[str, ...]
    origin: str


def stops_in_settings(settings: Iterable[Given]) -> Iterator[StopUse]:
    """Stop strings among settings."""
    for setting in settings:
        if setting.name.rpartition(".")[2] not in _NAMES:
            continue
        texts = _texts_of(setting.value)
        if texts:
            yield StopUse(texts=texts, origin=setting.origin)


def stops_in_source(path: Path) -> list[StopUse]:
    """Stop strings in Python source, which is parsed and never run.

    Raises:
        ArgumentError: It cannot be read, or is no Python.
    """
    try:
        tree = ast.parse(path.read_bytes(), filename=str(path))
    except OSError as error:
        raise ArgumentError(
            f"cannot be read: {error.strerror}", where=str(path)
        ) from error
    except (SyntaxError, ValueError, RecursionError) as error:
        raise ArgumentError(f"is no Python: {error}", where=str(path)) from error
    constants = _constants(tree)
    found = []
    for node in ast.walk(tree):
        for value, sure in _stop_values(node):
            texts = _texts_in(value, constants)
            if texts or (sure and _may_be_text(value, constants)):
                origin = f"{path}:{value.lineno}"
                found.append(StopUse(texts=texts, origin=origin))
    return sorted(set(found), key=lambda use: _line(use.origin))


def judge_stops(uses: Iterable[StopUse], tokenizer: TokenTable | None) -> list[Verdict]:
    """One verdict for all places that ask for stop strings.

    Args:
        uses: The places.
        tokenizer: The model's, when it is at hand.
    """
    places = list(uses)
    if not places:
        return []
    texts = list(dict.fromkeys(text for use in places for text in use.texts))
    shown = ", ".join(map(repr, texts[:4])) or "texts that are not in this file"
    most = max(len(use.texts) for use in places)
    causes = [_remedy(text, tokenizer) for text in texts[:8]]
    if tokenizer is None or not texts:
        causes.append(_ASK)
    return [
        Verdict(
            rule="stop_strings",
            section="SGLang 1",
            status=Status.FAIL if most > MOST_STOPS else Status.WARN,
            summary=f"string stop in {len(places)} place(s): {shown}"
            if most <= MOST_STOPS
            else f"{most} stop strings in one request; SGLang takes {MOST_STOPS}",
            where=Place(rollout_id=-1),
            numbers={"places": len(places), "strings": len(texts)},
            evidence=tuple(
                Evidence(text=f"{use.origin}: stop = {list(use.texts) or '?'}")
                for use in places[:5]
            ),
            causes=tuple(causes),
            next_command=_next_command(texts, tokenizer),
        )
    ]


def _remedy(text: str, tokenizer: TokenTable | None) -> Cause:
    if tokenizer is None:
        return Cause(
            text=f"{text!r} is matched by the detokenizer, for each token and session",
            confidence="high",
            confirm="relax-tui lint … --tokenizer CHECKPOINT names its id",
        )
    number = tokenizer.id_of(text)
    if number is not None and tokenizer.is_exact(text):
        return Cause(
            text=f"{text!r} is one token: pass stop_token_ids [{number}] instead",
            confidence="high",
            confirm=f"added token in {tokenizer.path}",
        )
    end = tokenizer.turn_end
    otherwise = "stop at the turn's end and cut the answer out of the text after"
    if end is not None:
        otherwise = (
            f"stop at {end[0]} (stop_token_ids [{end[1]}]) and cut {text!r} after"
        )
    if number is not None:
        return Cause(
            text=f"{text!r} is token {number} but also in longer tokens: {otherwise}",
            confidence="medium",
            confirm="it is an ordinary token, not an added one",
        )
    return Cause(
        text=f"{text!r} is several tokens, no stop_token_ids: {otherwise}",
        confidence="high",
        confirm=f"it is no token in {tokenizer.path}",
    )


def _next_command(texts: list[str], tokenizer: TokenTable | None) -> str | None:
    if tokenizer is None:
        return None
    ids = [tokenizer.id_of(text) for text in texts if tokenizer.is_exact(text)]
    if tokenizer.turn_end is not None:
        ids.append(tokenizer.turn_end[1])
    known = list(dict.fromkeys(number for number in ids if number is not None))
    if not known:
        return None
    return f"--rollout-stop-token-ids {' '.join(map(str, known))}"


_ASK = Cause(
    text="stop_token_ids are matched beside the sampler, without the detokenizer",
    confidence="high",
    confirm="relax-tui lint … --tokenizer CHECKPOINT names the ids",
)


def _line(origin: str) -> tuple[str, int]:
    file, _, line = origin.rpartition(":")
    return file, int(line)


def _texts_of(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,) if value and not value.startswith("$") else ()
    if isinstance(value, list | tuple):
        return tuple(item for item in value if isinstance(item, str) and item)
    return ()


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    """Names that the module gives one value, by name."""
    found: dict[str, ast.expr] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            if isinstance(target, ast.Name):
                found[target.id] = node.value
        elif (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and node.value is not None
        ):
            found[node.target.id] = node.value
    return found


def _stop_values(node: ast.AST) -> Iterator[tuple[ast.expr, bool]]:
    """Values given to something called stop; and whether it surely is a request."""
    if isinstance(node, ast.Call):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        for keyword in node.keywords:
            if keyword.arg in _NAMES:
                yield keyword.value, called in _REQUESTS
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and key.value in _NAMES:
                yield value, False
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            if (
                isinstance(target, ast.Subscript)
                and isinstance(target.slice, ast.Constant)
                and target.slice.value in _NAMES
            ):
                yield node.value, True


def _texts_in(value: ast.expr, constants: dict[str, ast.expr]) -> tuple[str, ...]:
    if isinstance(value, ast.Name) and value.id in constants:
        value = constants[value.id]
    if isinstance(value, ast.Constant):
        return _texts_of(value.value)
    if isinstance(value, ast.List | ast.Tuple | ast.Set):
        parts = (_texts_in(item, constants) for item in value.elts)
        return tuple(text for part in parts for text in part)
    return ()


def _may_be_text(value: ast.expr, constants: dict[str, ast.expr]) -> bool:
    """Whether a value that is computed may be stop strings."""
    if isinstance(value, ast.Name) and value.id in constants:
        value = constants[value.id]
    return not isinstance(value, ast.Constant | ast.List | ast.Tuple | ast.Set)
