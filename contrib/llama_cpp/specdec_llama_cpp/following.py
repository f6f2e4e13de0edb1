"""Following: one request, recognised by the ids that the host shows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from specdec.proposing import ChainSession
from specdec.report import parting


class Following:
    """One request's drafts, kept in step with a host that says nothing but ids.

    Args:
        session: The drafts of a request whose prompt is all that stood there before the first
            token written.
    """

    def __init__(self, session: ChainSession) -> None:
        self.session = session
        self._seen = np.array(session.tokens, dtype=np.intc)

    def take(self, ids: npt.NDArray[np.intc]) -> bool:
        """Commit what the pass wrote that `ids` show, if one pass can have led to them.

        Args:
            ids: Prompt and output so far, in memory of our own.

        Returns:
            False if they belong to another request, or to this one after a cut or a shift.
        """
        known = len(self._seen)
        fresh = tuple(ids[known:].tolist())
        # One pass commits a part of the draft and one token more; a new prompt that begins with
        # all that was said before brings more than that, or other tokens.
        accepted = len(fresh) - 1
        if accepted < 0 or fresh[:accepted] != self.session.chain.tokens[:accepted]:
            return False
        if not np.array_equal(ids[:known], self._seen):
            return False
        self.session.commit(fresh, accepted)
        self._seen = ids
        return True

    def finish(self, rest: Sequence[int], ended: bool) -> None:
        """End the request.

        Args:
            rest: What the last pass wrote, which the host never shows.
            ended: Whether the model came to an end of its own.
        """
        accepted = parting(rest, self.session.chain.tokens)
        whole = accepted >= len(rest) - 1
        if rest and whole:
            self.session.commit(rest, accepted)
        self.session.finish("stop_id" if ended and whole else "length")
