"""The controller: a pure machine, the loop that carries it out, the stages."""
