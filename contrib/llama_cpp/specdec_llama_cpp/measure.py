"""``python -m specdec_llama_cpp.measure``: what drafting brings on a machine and what it changes.

Every prompt is continued greedily with and without drafts, in turn, by two `Llama` objects: the
plain one as anybody would make it, the other with a draft model.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import attrs
import numpy as np
import numpy.typing as npt
import typer

from specdec.report import parting
from specdec_llama_cpp.draft import SpecdecDraft


@attrs.frozen
class Written:
    """What came of a prompt.

    Attributes:
        tokens: The tokens, the end of the sequence among them.
        seconds: Until the end.
        first: Seconds until the first token.
    """

    tokens: tuple[int, ...]
    seconds: float
    first: float


@attrs.frozen
class Difference:
    """Where drafting changed an output.

    Attributes:
        place: How many tokens are the same.
        margin: Between the two best logits there, in passes of one token.
        rounding: The largest difference of a logit before that place between passes of one token
            and passes with drafts.
    """

    place: int
    margin: float
    rounding: float

    @property
    def near_tie(self) -> bool:
        """Whether rounding explains it: it can move both logits."""
        return self.margin <= 2 * self.rounding


def write(llm: Any, prompt: Sequence[int], most: int) -> Written:  # noqa: ANN401 - a llama_cpp.Llama
    """Continue a prompt greedily; what the last one had in common with it is not computed again."""
    tokens: list[int] = []
    start = time.perf_counter()
    first = 0.0
    for token in llm.generate(list(prompt), temp=0.0):
        first = first or time.perf_counter() - start
        tokens.append(token)
        if token == llm.token_eos() or len(tokens) == most:
            break
    return Written(tuple(tokens), time.perf_counter() - start, first)


def text_of(llm: Any, written: Written) -> str | None:  # noqa: ANN401 - a llama_cpp.Llama
    """What was written, if it came to an end of its own."""
    if written.tokens[-1] != llm.token_eos():
        return None
    text: bytes = llm.detokenize(list(written.tokens))
    return text.decode("utf-8", "replace")


def difference(
    llm: Any,  # noqa: ANN401 - a llama_cpp.Llama
    prompt: Sequence[int],
    plain: Sequence[int],
    drafted: Sequence[int],
) -> Difference | None:
    """How what was written with drafts differs from what was written without.

    Args:
        llm: The host that wrote `drafted` last; its logits are read.
        prompt: The prompt.
        plain: What was written without drafts.
        drafted: What was written with drafts.
    """
    if plain == drafted:
        return None
    place = parting(plain, drafted)
    before = slice(len(prompt) - 1, len(prompt) + place)
    batched = llm.scores[before].copy()
    llm.reset()
    llm.eval(list(prompt))
    for token in plain[:place]:
        llm.eval([token])
    single: npt.NDArray[np.single] = llm.scores[before]
    second, best = np.partition(single[-1], -2)[-2:]
    return Difference(place, float(best - second), float(np.abs(single - batched).max()))


def main(
    model: Annotated[Path, typer.Argument(help="A GGUF file.")],
    prompts: Annotated[Path, typer.Argument(help="JSON file with a list of texts.")],
    drafter: Annotated[str, typer.Option(help="A stack expression.")] = "toolspec",
    num_pred_tokens: Annotated[int, typer.Option(help="Most tokens drafted for a pass.")] = 10,
    least: Annotated[float, typer.Option(help="Least likelihood of a drafted token.")] = 0.1,
    max_tokens: Annotated[int, typer.Option(help="Most tokens written per prompt.")] = 96,
    n_ctx: Annotated[int, typer.Option(help="Positions of the context.")] = 2048,
    threads: Annotated[int, typer.Option(help="Threads of llama.cpp.")] = 1,
) -> None:
    """Continue prompts with and without drafts, and compare text and time."""
    from llama_cpp import Llama

    draft = SpecdecDraft(drafter, num_pred_tokens=num_pred_tokens, least=least)
    shared: dict[str, Any] = {
        "n_ctx": n_ctx,
        "n_threads": threads,
        "n_threads_batch": threads,
        "verbose": False,
    }
    plain_llm = Llama(str(model), **shared)
    llm = Llama(str(model), **shared, draft_model=draft, logits_all=True)
    draft.attach(llm)
    pairs: list[tuple[Written, Written]] = []
    for number, text in enumerate(json.loads(prompts.read_text(encoding="utf-8")), start=1):
        prompt = llm.tokenize(text.encode(), add_bos=False, special=True)
        plain = write(plain_llm, prompt, max_tokens)
        drafted = write(llm, prompt, max_tokens)
        draft.end(text_of(llm, drafted))
        pairs.append((plain, drafted))
        if found := difference(llm, prompt, plain.tokens, drafted.tokens):
            kind = "near-tie" if found.near_tie else "NOT a near-tie"
            typer.echo(
                f"prompt {number}: differs behind {found.place} tokens, {kind}: margin "
                f"{found.margin:.3f}, rounding {found.rounding:.3f}"
            )
    typer.echo(_summary(pairs, draft))


def _summary(pairs: Sequence[tuple[Written, Written]], draft: SpecdecDraft) -> str:
    same = sum(plain.tokens == drafted.tokens for plain, drafted in pairs)
    report = draft.report
    lines = [f"{same} of {len(pairs)} outputs are equal"]
    for name, which in (("plain", 0), ("drafted", 1)):
        runs = [pair[which] for pair in pairs]
        decode = sum(run.seconds - run.first for run in runs)
        tokens = sum(len(run.tokens) - 1 for run in runs)
        lines.append(
            f"{name}: {sum(run.seconds for run in runs):.2f} s, {decode:.2f} s of it behind the "
            f"first tokens, {1000 * decode / max(tokens, 1):.1f} ms per token"
        )
    faster = [
        (plain.seconds - plain.first) / (drafted.seconds - drafted.first)
        for plain, drafted in pairs
        if len(plain.tokens) > 1 and len(drafted.tokens) > 1
    ]
    if faster:
        lines.append(f"median speed-up behind the first token {statistics.median(faster):.2f}")
    lines.append(
        f"{report.num_accepted_draft_tokens} of {report.num_draft_tokens} drafted tokens accepted, "
        f"{report.mean_acceptance_length:.2f} tokens per pass with a draft"
    )
    lines += [
        f"  {name}: {count.accepted} of {count.proposed}"
        for name, count in report.by_source.items()
    ]
    return "\n".join([*lines, *draft.errors])


if __name__ == "__main__":
    typer.run(main)
