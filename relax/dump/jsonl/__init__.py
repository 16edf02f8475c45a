"""Samples that engines write as JSON, one object a line, as step records.

Relax rollout_result     prompt, response, reward …, newer ones with token ids
verl                     input, output, gts, score: text only
prime-rl token export    one sequence a line, columns over all its tokens
NeMo-RL train data       one sample a line, columns over all its tokens
"""
