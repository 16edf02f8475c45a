"""Dumps of upstream Relax, slime and miles → the rows of our step record.

    recognise   which project wrote the file, and what it holds
    rollout     one sample of a rollout dump → one row of samples.arrow
    train       one rank's file → its samples, whatever the layout
    join        all ranks' files → one step: duplicates compared, pieces put together
    step        the files of one step → samples.arrow, logprobs.arrow, train.arrow

Readers see plain values only (`relax.dump.decode`). What is malformed is left out, the
rest of its sample is kept, and a note says what and where.
"""
