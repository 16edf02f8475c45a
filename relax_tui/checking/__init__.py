"""The guide's checks over whatever a person has: runs, dumps, logs, JSONL, or all.

    paths ── inputs ─┬─► parts ──► evidence of each rollout ──► rules ─────┬─► Checked
                     └─► logs ───► evidence of all logs ──────► log rules ─┘

`relax-tui check` prints what comes out; the console shows the same verdicts of a run
that another engine made.
"""
