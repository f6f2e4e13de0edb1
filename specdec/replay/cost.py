"""What a run would have taken, had a model run its passes."""

from __future__ import annotations

import attrs

from specdec.budget import CostCurve
from specdec.request import Result


def modelled(
    result: Result, prompt_length: int, curve: CostCurve, *, prompt_seconds: float | None = None
) -> Result:
    """`result` with the time of its passes as a model would have taken, from a cost curve.

    Drafting, verifying and observing stay as they were measured.

    Args:
        result: What came out of a run, such as one on a `ReplayTarget` without a model.
        prompt_length: Tokens of the request's prompt.
        curve: What a pass costs.
        prompt_seconds: Seconds of a pass over this prompt without a draft, which the curve does
            not say; a draft that rides on it costs the curve's slope for each node. Without it
            the prompt's phases stay as they are, and only the decode phases can be compared.
    """
    forward, cached = 0.0, prompt_length
    # Whatever was committed in a pass, its last token is the next root, which is not cached yet.
    for accepted, nodes in zip(result.accepted, result.nodes[1:], strict=False):
        cached += accepted
        forward += float(curve.costs(cached, nodes)[nodes])
        cached += 1
    decode = attrs.evolve(result.decode_phases, forward=forward)
    if prompt_seconds is None or not result.passes:
        return attrs.evolve(result, decode_phases=decode)
    forward = prompt_seconds + curve.slope() * result.nodes[0]
    prompt = attrs.evolve(result.prompt_phases, forward=forward)
    return attrs.evolve(result, decode_phases=decode, prompt_phases=prompt)
