"""Events as lines of JSON, and back."""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from relax.errors import RecordError, RecordTooNew
from relax.events.types import (
    PAYLOADS,
    SCHEMA_VERSION,
    AsideEvent,
    Event,
    Payload,
    Unknown,
)
from relax.measure.reduction import (
    decode_metrics,
    decode_number,
    encode_metrics,
    encode_number,
)

_ENVELOPE = ("v", "seq", "attempt", "wall", "mono", "type")


def encode_event(event: Event) -> bytes:
    """One event as one line, newline included.

    Raises:
        ValueError: A field holds something that is not plain data.
    """
    payload = event.payload
    line: dict[str, Any] = {
        "v": SCHEMA_VERSION,
        "seq": event.seq,
        "attempt": event.attempt,
        "wall": round(event.wall, 6),
        "mono": round(event.mono, 6),
        "type": payload.type,
    }
    line.update(_fields(payload))
    text = json.dumps(line, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # A lone surrogate (from a file name or a broken decoder) cannot be UTF-8.
    return text.encode("utf-8", "backslashreplace") + b"\n"


def as_aside(name: str, payload: Payload) -> AsideEvent:
    """An event of an excursion or a replay, so that it is no part of the run."""
    return AsideEvent(name=name, event={"type": payload.type, **_fields(payload)})


def of_aside(aside: AsideEvent) -> Payload:
    """The event that `as_aside` wrapped.

    Raises:
        RecordError: It lacks a field of its type.
    """
    fields = {name: value for name, value in aside.event.items() if name != "type"}
    return _decode_payload(str(aside.event.get("type")), fields)


def _fields(payload: Payload) -> dict[str, Any]:
    """A payload's own fields as plain data."""
    if isinstance(payload, Unknown):
        return {"type": payload.name, **payload.fields}
    fields = {}
    for spec in dataclasses.fields(payload):
        value = getattr(payload, spec.name)
        coded = spec.metadata.get("codec") == "metrics"
        fields[spec.name] = encode_metrics(value) if coded else _plain(value)
    return fields


def decode_event(line: bytes) -> Event:
    """The event of one line.

    Raises:
        RecordError: The line is not an event.
        RecordTooNew: A newer schema wrote it.
    """
    try:
        fields = json.loads(line)
        version, seq, attempt = fields["v"], fields["seq"], fields["attempt"]
        wall, mono, kind = fields["wall"], fields["mono"], fields["type"]
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"not an event: {line[:80]!r}") from error
    if version > SCHEMA_VERSION:
        raise RecordTooNew(
            f"event {seq} has schema version {version}, this version reads up to "
            f"{SCHEMA_VERSION}",
            hint="open the run with the relax-tui that wrote it, or a newer one",
        )
    own = {name: value for name, value in fields.items() if name not in _ENVELOPE}
    return Event(seq, attempt, wall, mono, _decode_payload(kind, own))


def _decode_payload(kind: str, fields: Mapping[str, Any]) -> Payload:
    payload_type = PAYLOADS.get(kind)
    if payload_type is None:
        return Unknown(name=kind, fields=fields)
    decoders = _decoders(kind)
    try:
        # Fields that this version does not know were added later: they are skipped.
        return payload_type(
            **{
                name: decoders[name](value)
                for name, value in fields.items()
                if name in decoders
            }
        )
    except (TypeError, ValueError, KeyError) as error:
        raise RecordError(f"event {kind!r} lacks a field: {error}") from error


@functools.cache
def _decoders(kind: str) -> dict[str, Callable[[Any], Any]]:
    payload_type = PAYLOADS[kind]
    hints = typing.get_type_hints(payload_type)
    return {
        spec.name: decode_metrics
        if spec.metadata.get("codec") == "metrics"
        else _decoder(hints[spec.name])
        for spec in dataclasses.fields(payload_type)
    }


def _decoder(hint: Any) -> Callable[[Any], Any]:
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        inner = _decoder(typing.get_args(hint)[0])
        return lambda value: None if value is None else inner(value)
    if typing.get_origin(hint) is tuple:
        return tuple
    if hint is float:
        return decode_number
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return hint
    return _identity


def _identity(value: Any) -> Any:
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return encode_number(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
