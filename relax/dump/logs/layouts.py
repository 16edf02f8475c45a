"""The layouts in which engines print their numbers.

    Relax, slime, miles   ``rollout 3: {…}``  ``step 3: {…}``  ``perf 3: {…}``
    verl                  ``step:3 - actor/grad_norm:np.float64(0.4) - …``
    prime-rl              ``Step 3 | Time: 9.1s | Loss: 0.0021 | Grad. Norm: 0.3 | …``
    NeMo-RL               ``==== Step 3/100 ====``, then ``• Loss: 0.0021`` a line
    Megatron              ``  num_layers ........ 28``, its arguments at the start

Each layout is a rough expression for RE2, which finds the lines, and a function that
reads one of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from relax.dump.logs.literal import NotALiteral, Opaque, parse_literal

Kind: TypeAlias = Literal[
    "rollout", "step", "eval", "argument", "sample", "place", "header", "bullet"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one line says.

    Attributes:
        kind: ``rollout`` (numbers of a rollout), ``step`` (of an optimizer step),
            ``eval``, ``argument``, ``sample`` (a response, printed), ``place`` (where
            the run is), ``header`` and ``bullet`` (a step's title, and a line below).
        engine: Whose layout it is.
        number: The rollout or step; None where the line names none.
        values: Numbers by name; for ``argument`` and ``sample`` also texts.
        broken: Why the line could not be read; '' when it could.
    """

    kind: Kind
    engine: str
    number: int | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    broken: str = ""


UPSTREAM: Final = "Relax, slime or miles"
LONGEST_FIELD: Final = 300
HEAD: Final = 500
"""What tells a layout stands among the first characters of a line."""
_DICT_KINDS: Final[Mapping[str, Kind]] = {
    "rollout": "rollout",
    "perf": "rollout",
    "multi_turn": "rollout",
    "passrate": "rollout",
    "step": "step",
    "critic-step": "step",
    "eval": "eval",
}
_DICT: Final = re.compile(
    r"(?<![\w-])(rollout|perf|multi_turn|passrate|step|critic-step|eval) (\d+): \{"
)
_VERL: Final = re.compile(r"(?<![\w-])step:(\d+) - ")
_VERL_FIELD: Final = re.compile(r"(?P<key>[^\s].*?):(?P<value>[^:]+(?:\(.*\))?)")
_PRIME: Final = re.compile(r"(?<!Micro )(?<!\w)Step (\d+) \| ")
_PRIME_FIELD: Final = re.compile(r"\s*([^:|]+?):\s*([-+]?[\w.+-]+)")
_HEADER: Final = re.compile(r"={3,} Step (\d+)/\d+ ={3,}")
_BULLET: Final = re.compile(r"•\s([A-Za-z][\w ./()-]*?): ([-+]?[\w.+-]+)")
_ARGUMENT: Final = re.compile(r"^\s{0,4}([a-z][a-z0-9_]*) \.{3,} (.*)$")
_PLACE: Final = re.compile(
    r"(?:Start rollout|Starting rollout step|fully completed for rollout_id:"
    r"|not completed for rollout_id:|Actor training step) ?(\d+)"
)
_SAMPLE: Final = re.compile(r"(First rollout sample|Finish rollout): \[")
_SAMPLE_TAIL: Final = re.compile(
    r", label: (?P<label>.*), reward: (?P<reward>.*)$", re.S
)
_VALUE: Final = re.compile(r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|nan|inf)", re.IGNORECASE)

PRIME_NAMES: Final[Mapping[str, str]] = {
    "Loss": "train/loss",
    "Entropy": "train/entropy_loss",
    "Mismatch KL": "train/mismatch_k3_kl",
    "Grad. Norm": "train/grad_norm",
    "LR": "train/lr-pg_0",
    "Reward": "rollout/raw_reward",
    "Seq. Length": "rollout/response_len/mean",
    "Time": "perf/step_time",
}
NEMO_NAMES: Final[Mapping[str, str]] = {
    "Loss": "train/loss",
    "Grad Norm": "train/grad_norm",
    "Generation KL Error": "train/mismatch_k3_kl",
    "Avg Reward": "rollout/raw_reward",
    "Mean Generation Length": "rollout/response_len/mean",
}
VERL_NAMES: Final[Mapping[str, str]] = {
    "actor/grad_norm": "train/grad_norm",
    "actor/ppo_kl": "train/ppo_kl",
    "actor/pg_loss": "train/pg_loss",
    "actor/loss": "train/loss",
    "actor/pg_clipfrac": "train/pg_clipfrac",
    "actor/kl_loss": "train/kl_loss",
    "actor/entropy": "train/entropy_loss",
    "actor/entropy_loss": "train/entropy_loss",
    "actor/lr": "train/lr-pg_0",
    "critic/score/mean": "rollout/raw_reward",
    "response_length/mean": "rollout/response_len/mean",
    "response_length/max": "rollout/response_len/max",
    "response_length/clip_ratio": "rollout/truncated_ratio",
    "training/rollout_probs_diff_mean": "train/train_rollout_prob_abs_diff",
    "rollout_corr/kl": "train/mismatch_kl",
    "rollout_corr/k3_kl": "train/mismatch_k3_kl",
}
"""Other engines' names of quantities that have the same meaning here."""


def _dict_line(text: str) -> Reading | None:
    match = _DICT.search(text, 0, HEAD)
    if match is None:
        return None
    kind, number = _DICT_KINDS[match[1]], int(match[2])
    try:
        pairs, _ = parse_literal(text, match.end() - 1)
    except NotALiteral as error:
        return Reading(kind=kind, engine=UPSTREAM, number=number, broken=str(error))
    values = numbers_of(pairs) if isinstance(pairs, dict) else {}
    return Reading(kind=kind, engine=UPSTREAM, number=number, values=values)


def _verl_line(text: str) -> Reading | None:
    match = _VERL.search(text, 0, HEAD)
    if match is None:
        return None
    values: dict[str, Any] = {}
    for part in text[match.end() :].split(" - "):
        # A name and a number are short; backtracking over a long text is not.
        if len(part) > LONGEST_FIELD:
            continue
        if (pair := _VERL_FIELD.fullmatch(part.strip())) is None:
            continue
        try:
            value, _ = parse_literal(pair["value"])
        except NotALiteral:
            continue
        name = VERL_NAMES.get(pair["key"], pair["key"])
        values |= numbers_of({name: value})
    return Reading(kind="step", engine="verl", number=int(match[1]), values=values)


def _prime_line(text: str) -> Reading | None:
    match = _PRIME.search(text, 0, HEAD)
    if match is None:
        return None
    values: dict[str, Any] = {}
    for part in text[match.end() :].split(" | "):
        if (pair := _PRIME_FIELD.match(part)) is not None:
            name = PRIME_NAMES.get(pair[1], f"prime/{pair[1]}")
            values |= _measured(name, pair[2])
    return Reading(kind="step", engine="prime-rl", number=int(match[1]), values=values)


def _header_line(text: str) -> Reading | None:
    match = _HEADER.search(text, 0, HEAD)
    if match is None:
        return None
    return Reading(kind="header", engine="NeMo-RL", number=int(match[1]))


def _bullet_line(text: str) -> Reading | None:
    match = _BULLET.search(text, 0, HEAD)
    if match is None:
        return None
    name = NEMO_NAMES.get(match[1], f"nemo/{match[1]}")
    values = _measured(name, match[2])
    return Reading(kind="bullet", engine="NeMo-RL", values=values)


def _argument_line(text: str) -> Reading | None:
    match = _ARGUMENT.match(text)
    if match is None:
        return None
    value = plain_value(match[2].strip())
    return Reading(kind="argument", engine=UPSTREAM, values={match[1]: value})


def _place_line(text: str) -> Reading | None:
    match = _PLACE.search(text, 0, HEAD)
    if match is None:
        return None
    return Reading(kind="place", engine=UPSTREAM, number=int(match[1]))


def _sample_line(text: str) -> Reading | None:
    match = _SAMPLE.search(text, 0, HEAD)
    if match is None:
        return None
    try:
        texts, end = parse_literal(text, match.end() - 1)
    except NotALiteral as error:
        return Reading(kind="sample", engine=UPSTREAM, broken=str(error))
    tail = _SAMPLE_TAIL.match(text, end)
    values: dict[str, Any] = {"text": "".join(part for part in texts if part)}
    if tail is not None:
        values["label"] = tail["label"]
        values |= numbers_of({"reward": plain_value(tail["reward"])})
    return Reading(kind="sample", engine=UPSTREAM, values=values)


@dataclass(frozen=True, slots=True)
class Layout:
    """One layout.

    Attributes:
        expression: Hits every line of this layout; in the syntax of RE2.
        read: Reads a line; None when it is none of this layout after all.
    """

    expression: str
    read: Callable[[str], Reading | None]


LAYOUTS: Final = (
    Layout(r"(?:rollout|perf|multi_turn|passrate|step|eval) \d+: \{", _dict_line),
    Layout(r"step:\d+ - ", _verl_line),
    Layout(r"Step \d+ \| ", _prime_line),
    Layout(r"=== Step \d+/\d+ ===", _header_line),
    Layout(r"• [A-Za-z][A-Za-z ./()]*: ", _bullet_line),
    Layout(r"[a-z0-9_] \.\.\.+ ", _argument_line),
    Layout(
        r"Start rollout \d|Starting rollout step \d|completed for rollout_id: \d"
        r"|Actor training step \d",
        _place_line,
    ),
    Layout(r"(?:First rollout sample|Finish rollout): \[", _sample_line),
)
"""All layouts; the first that can read a line does."""


def read_line(text: str) -> Reading | None:
    """What a line says; None when it is of no layout.

    Args:
        text: `relax.dump.logs.lines.LineText.text`.
    """
    for layout in LAYOUTS:
        if (reading := layout.read(text)) is not None:
            return reading
    return None


def numbers_of(pairs: Mapping[Any, Any], prefix: str = "") -> dict[str, float]:
    """The numbers in a printed dict, dicts within by their path; the rest is dropped.

    A list of one number is that number; other lists have no single value.
    """
    found: dict[str, float] = {}
    for key, value in pairs.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            found |= numbers_of(value, f"{name}/")
            continue
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if isinstance(value, int | float):
            found[name] = float(value)
    return found


def plain_value(text: str) -> Any:
    """A printed argument's value; a text stays a text."""
    try:
        value, end = parse_literal(text)
    except NotALiteral:
        return text
    return text if isinstance(value, Opaque) or text[end:].strip() else value


def _measured(name: str, text: str) -> dict[str, float]:
    """A number with a unit behind it: ``9.1s``, ``41.2%``."""
    match = _VALUE.match(text)
    if match is None or (match[0].isalpha() and len(match[0]) != len(text)):
        return {}
    return {name: float(match[0])}
