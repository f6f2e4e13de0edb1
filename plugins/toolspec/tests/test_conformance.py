"""The conformance kit, on this plugin."""

from specdec_toolspec import EpisodeMemory, RetrievalDrafter

from specdec.testing import drafter_checks, memory_checks


def anything(request, result):
    """The kit's requests end at their limit and would not be stored otherwise."""
    return True


@drafter_checks(
    RetrievalDrafter,
    lambda: RetrievalDrafter(accept=anything),
    lambda: RetrievalDrafter(accept=anything, from_start=True),
    lambda: RetrievalDrafter(accept=anything, match=(3, 2), context=False, k=3),
    lambda: RetrievalDrafter(accept=anything, memory=EpisodeMemory(entries=2), from_start=True),
    lambda: RetrievalDrafter(store=False),
)
def test_drafter(check):
    check()


@memory_checks(
    EpisodeMemory,
    lambda: EpisodeMemory(entries=8),
    lambda: EpisodeMemory(entries=100, tokens=9000),
)
def test_memory(check):
    check()
