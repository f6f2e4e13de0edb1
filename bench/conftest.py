"""One torch thread, so that another load on the machine does not ruin the figures."""

import torch

torch.set_num_threads(1)


def pytest_report_header(config):
    return f"torch {torch.__version__}, {torch.get_num_threads()} thread"
