"""SGLang as the rollout engine: a server of our own, spoken to over HTTP.

| module       | what is there                                                        |
|--------------|----------------------------------------------------------------------|
| environment  | the interpreter that runs SGLang, and a command that makes one       |
| cpu          | what SGLang needs on a machine without a GPU                         |
| command      | arguments and environment of the server's process                    |
| server       | the process: start, readiness, death, end of the whole tree          |
| watch        | says when a server has ended or stalled                              |
| api          | its HTTP endpoints, as far as they are used                          |
| capabilities | what this server can do                                              |
| answers      | what ``/generate`` answers, as a `GenerateOutput`                    |
| gate         | holds requests at a pause and at a weight update                     |
| weights      | updates, each verified by what the server then holds                 |
| push         | the memory that weights are sent through                             |
| inside       | runs in the server's own processes: `loader` and `witness`           |
| engine       | all of it behind `relax.backends.rollout.RolloutBackend`             |
"""
