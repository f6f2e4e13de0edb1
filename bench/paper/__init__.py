"""The ToolSpec paper's experiments (arXiv 2604.13519) as one command, on a small model.

    python -m bench.paper --quick     # a few requests of each data set: does it run?
    python -m bench.paper             # 30 requests of each data set
    python -m bench.paper --full      # all of them

Every experiment keeps what it measured in a file of its own, and an interrupted one what it has
done so far, so the command goes on where it stopped. When all are done, tables and figures are
written to ``docs/paper.md``, each beside the paper's own figure.
"""
