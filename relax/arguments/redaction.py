"""What looks like a secret is never written down.

Three signs: a name that says so (``api_key``), a value of a well-known shape (a JSON
web token, a password in a URL), and a value that a secret variable of this process's
environment holds, wherever it turns up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

REDACTED: Final = "<redacted>"

SHORTEST_SECRET: Final = 6
"""Shorter values of secret variables are not searched for in other texts."""

# The words that make a name a secret's, and the neighbours that make it innocent.
_SECRET_WORDS: Final = frozenset(
    (
        *("secret", "secrets", "password", "passwords", "passwd", "passphrase"),
        *("credential", "credentials", "apikey", "accesskey", "authorization"),
        "cookie",
    )
)
_KEY_OWNERS: Final = frozenset(
    (
        *("api", "access", "secret", "private", "auth", "account", "signing"),
        *("encryption", "ssh", "admin", "wandb"),
    )
)
_TEXT_TOKENS: Final = frozenset(
    (
        *("eos", "bos", "pad", "unk", "cls", "sep", "mask", "stop", "image"),
        *("per", "num", "max", "min", "next", "first", "last"),
    )
)
_TOKEN_USES: Final = frozenset(
    ("ids", "type", "types", "policy", "dispatcher", "drop", "per", "len")
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

_SECRET_SHAPES: Final = (
    # scheme://user:password@host, or scheme://token@host
    (re.compile(r"(?P<keep>[a-z][a-z0-9+.\-]*://)[^/\s@]+(?=@)", re.I), r"\g<keep>"),
    # ?api_key=... and &password=... in a URL or a connection string
    (
        re.compile(
            r"(?P<keep>(?:^|[?&;\s\"'])[\w.\-]*"
            r"(?:api_?key|access_?key|secret|password|passwd|pwd|signature"
            r"|credential|auth)[\w.\-]*=[\"']?)[^&;\s\"']+",
            re.I,
        ),
        r"\g<keep>",
    ),
    # A signed URL's sig=...; signum= is none.
    (re.compile(r"(?P<keep>[?&]sig=)[^&;\s\"']+", re.I), r"\g<keep>"),
    (re.compile(r"(?P<keep>\bBearer\s+)[\w.~+/\-]+=*", re.I), r"\g<keep>"),
    # Keys with a prefix of their issuer.
    (
        re.compile(
            r"\b(?:sk|pk|rk)-[A-Za-z0-9_\-]{16,}"
            r"|\b(?:ghp|gho|ghu|ghs|ghr)_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}"
            r"|\bglpat-[\w\-]{16,}|\bhf_[A-Za-z0-9]{16,}|\bxox[abprs]-[\w\-]{10,}"
            r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bAIza[\w\-]{30,}"
            r"|\beyJ[\w\-]{8,}\.[\w\-]{8,}\.[\w\-]*"
        ),
        "",
    ),
    (
        re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END[^\n]*|\Z)", re.S),
        "",
    ),
)

# ?token=... likewise, but max_tokens=512 and eos_token=</s> are none.
_NAMED_TOKEN: Final = re.compile(
    r"(?P<keep>(?:^|[?&;\s\"'])(?P<name>[\w.\-]*token[\w.\-]*)=[\"']?)[^&;\s\"']+",
    re.I,
)


def is_secret_name(name: str) -> bool:
    """Whether a flag or variable of this name holds a secret.

    ``max_tokens_per_gpu`` and ``input_key`` do not; ``HF_TOKEN`` and ``api_key`` do.
    """
    words = [word.lower() for word in _WORD.findall(name)]
    for place, word in enumerate(words):
        previous = words[place - 1] if place else ""
        following = words[place + 1] if place + 1 < len(words) else ""
        if word in _SECRET_WORDS:
            return True
        if word == "key" and previous in _KEY_OWNERS:
            return True
        if word == "pwd" and previous:
            return True
        if word.endswith("token"):
            counted = previous in _TEXT_TOKENS or following in _TOKEN_USES
            if not counted:
                return True
    return False


@dataclass(frozen=True, slots=True)
class Redactor:
    """Replaces secrets in texts and values.

    Args:
        known: Secret values to look for, longest first; see
            `relax.arguments.environment.redactor`.
    """

    known: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def knowing(cls, secrets: Iterable[str]) -> Redactor:
        """A redactor that also finds these values, if they are long enough."""
        kept = {secret for secret in secrets if len(secret) >= SHORTEST_SECRET}
        return cls(tuple(sorted(kept, key=lambda secret: (-len(secret), secret))))

    def text(self, text: str) -> str:
        """``text`` with every secret in it replaced by ``<redacted>``."""
        for secret in self.known:
            text = text.replace(secret, REDACTED)
        for pattern, keep in _SECRET_SHAPES:
            text = pattern.sub(keep + REDACTED, text)
        return _NAMED_TOKEN.sub(_without_token, text)

    def value(self, name: str, value: Any) -> Any:
        """A JSON value as it may be stored under ``name``; nested ones included."""
        if isinstance(value, bool) or value is None or value == "":
            return value
        if is_secret_name(name):
            return REDACTED
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {key: self.value(str(key), item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(name, item) for item in value]
        return value

    def command_line(self, argv: Iterable[str]) -> list[str]:
        """A command line as it may be stored: ``--api-key X`` loses its X."""
        kept: list[str] = []
        hide_next = False
        for word in argv:
            flag, equals, _ = word.partition("=")
            name = flag.lstrip("-")
            if word.startswith("--"):
                secret = is_secret_name(name)
                hide_next = secret and not equals
                kept.append(
                    f"{flag}={REDACTED}" if secret and equals else self.text(word)
                )
            else:
                kept.append(REDACTED if hide_next else self.text(word))
                hide_next = False
        return kept


def _without_token(found: re.Match[str]) -> str:
    secret = is_secret_name(found["name"])
    return found["keep"] + REDACTED if secret else found[0]
