"""The result of a check as text that fits one screen, the worst first.

What is wrong, where, why, and what to do next come first and whole; what is healthy,
what says nothing and what could not be checked share the rows that are left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from relax.triage.verdict import Place, Status
from relax_tui.checking.checked import Checked
from relax_tui.checking.outcome import RuleOutcome, by_rule, counts
from relax_tui.text import cut, visible, width, wrap

ROWS = 24
COLUMNS = 80
INDENT = "  "
LABEL = 7


def text_report(
    checked: Checked,
    *,
    columns: int = COLUMNS,
    rows: int = ROWS,
    details: bool = False,
) -> str:
    """A report.

    Args:
        checked: The result.
        columns: Cells of a row.
        rows: Rows there are; ignored with details.
        details: Everything about every verdict that is not PASS.

    Returns:
        Rows joined by newlines, ending with one.
    """
    outcomes = by_rule(checked.verdicts)
    # The shell's next prompt needs a row of its own.
    room = rows - 1
    head = _head(checked, outcomes, columns)
    tail = _tail(checked, outcomes, columns, brief=not details)
    unhealthy = [outcome for outcome in outcomes if outcome.unhealthy]
    body: list[str] = []
    left = room - len(head) - len(tail)
    for number, outcome in enumerate(unhealthy):
        more = len(unhealthy) - number - 1
        block = _block(outcome, columns, full=details or not number)
        if not details and body and _height(block, columns) > left - (more > 0):
            block = _block(outcome, columns, full=False)[:1]
        if not details and body and left - 1 < (more > 0):
            body.append(f"  and {more + 1} more: --details shows them")
            break
        body += block
        left -= _height(block, columns)
    return "\n".join([*head, *body, *tail]) + "\n"


def _head(checked: Checked, outcomes: Sequence[RuleOutcome], columns: int) -> list[str]:
    told = ", ".join(f"{count} {status}" for status, count in counts(outcomes).items())
    where = _span(checked.rollouts)
    first = cut(f"{told or 'nothing was checked'}{where}", columns)
    read = "; ".join(visible(text) for text in checked.read)
    return [first, cut(f"read: {read or 'nothing'}", columns)]


def _span(rollouts: Sequence[int]) -> str:
    if not rollouts:
        return ""
    if len(rollouts) == 1:
        return f"   rollout {rollouts[0]}"
    return f"   rollouts {rollouts[0]}-{rollouts[-1]}"


def _block(outcome: RuleOutcome, columns: int, *, full: bool) -> list[str]:
    """A verdict that is not healthy: one row, and below it where, why and next."""
    verdict = outcome.verdict
    again = f" (and {outcome.times - 1} more)" if outcome.times > 1 else ""
    head = f"{verdict.status} {verdict.rule}: {visible(verdict.summary)}"
    rows = [cut(head, columns)]
    if width(head) > columns:
        rows = wrap(head, columns) if full else rows
    rows += _labelled("where", f"{place_words(verdict.where)}{again}", columns)
    most = 3 if full else 0
    for item in verdict.evidence[:most]:
        at = f" at {item.where}" if item.where and item.where != verdict.where else ""
        rows.append(cut(f"{INDENT}{'seen':<{LABEL}}{visible(item.text)}{at}", columns))
    for number, cause in enumerate(verdict.causes[: 3 if full else 1]):
        rows += _labelled(
            "" if number else "why", f"{cause.text} ({cause.confidence})", columns
        )
        if full and not number:
            rows += _labelled("", f"confirm: {cause.confirm}", columns)
    if verdict.next_command:
        # Never cut and never wrapped by us: it is there to be pasted.
        rows.append(f"{INDENT}{'next':<{LABEL}}{visible(verdict.next_command)}")
    return rows


def place_words(where: Place) -> str:
    """A place in words: ``rollout 3, sample 12, token 5``."""
    if where.rollout_id < 0:
        return "before the first rollout"
    words = [f"rollout {where.rollout_id}"]
    if where.sample_index is not None:
        words.append(f"sample {where.sample_index}")
    if where.position is not None:
        words.append(f"token {where.position}")
    return ", ".join(words)


def _labelled(label: str, text: str, columns: int) -> list[str]:
    room = columns - len(INDENT) - LABEL
    lines = wrap(text, room)
    first = f"{INDENT}{label:<{LABEL}}"
    rest = " " * len(first)
    return [
        f"{rest if number else first}{line}".rstrip()
        for number, line in enumerate(lines)
    ]


def _tail(
    checked: Checked, outcomes: Sequence[RuleOutcome], columns: int, *, brief: bool
) -> list[str]:
    rows: list[str] = []
    for status in (Status.INFO, Status.VACUOUS):
        said = [o for o in outcomes if o.verdict.status is status]
        rows += [
            cut(f"{status} {o.verdict.rule}: {visible(o.verdict.summary)}", columns)
            for o in (said[:2] if brief else said)
        ]
    rows += _passed(outcomes, columns, brief=brief)
    rows += _not_checked(checked, outcomes, columns, brief=brief)
    return rows


def _passed(outcomes: Sequence[RuleOutcome], columns: int, *, brief: bool) -> list[str]:
    """Healthy rules: with their numbers where nothing else needs the room."""
    passed = [o.verdict for o in outcomes if o.verdict.status is Status.PASS]
    if not passed:
        return []
    if brief and any(outcome.unhealthy for outcome in outcomes):
        names = ", ".join(verdict.rule for verdict in passed)
        return [cut(f"PASS {names}", columns)]
    grouped: dict[str, list[str]] = {}
    for verdict in passed:
        grouped.setdefault(verdict.summary, []).append(verdict.rule)
    rows = [
        f"PASS {names[0]}: {visible(summary)}"
        if len(names) == 1
        else f"PASS {len(names)} rules over logs: {visible(summary)}"
        for summary, names in grouped.items()
    ]
    return [cut(row, columns) for row in rows]


def _not_checked(
    checked: Checked, outcomes: Sequence[RuleOutcome], columns: int, *, brief: bool
) -> list[str]:
    skipped = [o.verdict for o in outcomes if o.verdict.status is Status.NOT_RUN]
    rows: list[str] = []
    if skipped:
        names = ", ".join(verdict.rule for verdict in skipped)
        rows.append(cut(f"not checked: {names}", columns))
        ways = dict.fromkeys(verdict.summary for verdict in skipped)
        shown = list(ways)[: 2 if brief else len(ways)]
        rows += [cut(f"  {visible(text)}", columns) for text in shown]
    for word, texts in (("cannot read", checked.unread), ("note", checked.missing)):
        rows += _told(word, texts, columns, most=2 if brief else len(texts))
    return rows


def _told(word: str, texts: Iterable[str], columns: int, *, most: int) -> list[str]:
    given = list(dict.fromkeys(texts))
    rows = [cut(f"{word}: {visible(text)}", columns) for text in given[:most]]
    if len(given) > most:
        rows[-1] = cut(f"{rows[-1][: columns - 12]} (+{len(given) - most})", columns)
    return rows


def _height(rows: Iterable[str], columns: int) -> int:
    return sum(max(1, -(-width(row) // columns)) for row in rows)
