r"""One vLLM engine, one list of requests, one JSON file of what came out and how long it took.

Run in a process of its own, so that engines do not share anything::

    python contrib/vllm/tests/real/engine.py --model demo --method specdec \
        --requests api_bank_60.jsonl --out out.json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

# The engine lives in this process: its proposer can be asked how long it took.
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# The threads of vLLM's own n-gram proposer otherwise slow every pass down, ten times on 2 cores.
os.environ.setdefault("NUMBA_NUM_THREADS", "1")
# 500 tools take more than the demo model's positions: nonsense comes out, the same nonsense.
os.environ.setdefault("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "1")

METHODS: dict[str, dict[str, Any] | None] = {
    "plain": None,
    "ngram": {"method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 5},
    "suffix": {"method": "suffix"},
    "specdec": {"method": "custom_class", "model": "specdec_vllm.Proposer"},
}


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--requests", type=Path, required=True, help="JSON lines with messages")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--method", choices=METHODS, default="plain")
    parser.add_argument("--drafts", type=int, default=8, help="num_speculative_tokens")
    parser.add_argument("--settings", type=json.loads, default={}, help="specdec's own, as JSON")
    parser.add_argument("--in-flight", type=int, default=1)
    parser.add_argument("--limit", type=int, default=None)
    parser.add_argument("--max-new-tokens", type=int, default=160)
    parser.add_argument("--chunk", type=int, default=None, help="most tokens per pass")
    parser.add_argument("--abort", type=int, default=0, help="abort every n-th request midway")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--length", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument(
        "--margins",
        action="store_true",
        help="requests are {ids: [...]}: how close the two best are",
    )
    return parser.parse_args()


def prompts(path: Path, tokenizer: Any, limit: int | None) -> list[list[int]]:
    """Token ids of the requests' prompts."""
    found: list[list[int]] = []
    for line in path.read_text(encoding="utf-8").splitlines()[:limit]:
        record = json.loads(line)
        # API-Bank's prompts tell of their tools themselves.
        tools = None if record.get("benchmark") == "api-bank" else record.get("tools")
        text = tokenizer.apply_chat_template(
            record["messages"], tools=tools or None, add_generation_prompt=True, tokenize=False
        )
        found.append(tokenizer(text, add_special_tokens=False)["input_ids"])
    return found


def engine(args: argparse.Namespace) -> Any:
    """The engine that the options ask for."""
    from vllm import LLM

    speculation = METHODS[args.method]
    chunked: dict[str, Any] = {}
    if args.chunk:
        chunked = {"enable_chunked_prefill": True, "max_num_batched_tokens": args.chunk}
    return LLM(
        model=args.model,
        dtype=args.dtype,
        max_model_len=args.length,
        max_num_seqs=max(args.in_flight, 2),
        enforce_eager=True,
        enable_prefix_caching=False,
        disable_log_stats=False,
        speculative_config=speculation and {**speculation, "num_speculative_tokens": args.drafts},
        additional_config={"specdec": args.settings} if args.method == "specdec" else {},
        **chunked,
    )


class Stopwatch:
    """Times the calls of an engine's proposer."""

    def __init__(self, llm: Any) -> None:
        self.seconds: list[float] = []
        runner = llm.llm_engine.model_executor.driver_worker.worker.model_runner
        drafter = getattr(runner, "drafter", None)
        if drafter is not None:
            self._ask = drafter.propose
            drafter.propose = self._timed

    def _timed(self, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        drafts = self._ask(*args, **kwargs)
        self.seconds.append(time.perf_counter() - start)
        return drafts

    def summary(self) -> dict[str, float]:
        """Milliseconds per call."""
        if not self.seconds:
            return {}
        cuts = statistics.quantiles(self.seconds, n=100) if len(self.seconds) > 1 else [0.0] * 99
        return {
            "calls": len(self.seconds),
            "median_ms": 1000 * statistics.median(self.seconds),
            "p99_ms": 1000 * cuts[98],
            "max_ms": 1000 * max(self.seconds),
        }


def serve(
    llm: Any,
    ids: Sequence[list[int]],
    *,
    in_flight: int,
    most: int,
    abort: int = 0,
) -> Iterator[tuple[int, list[int]]]:
    """Decode greedily with so many requests in flight; yields indices and outputs.

    With `abort`, every so many-th request is given up after a few passes; its output is what was
    written by then.
    """
    from vllm import SamplingParams

    engine, waiting = llm.llm_engine, list(enumerate(ids))[::-1]
    params = SamplingParams(temperature=0.0, max_tokens=most)
    running: dict[str, int] = {}
    passes: dict[str, int] = {}
    written: dict[str, list[int]] = {}
    while waiting or running:
        while waiting and len(running) < in_flight:
            index, prompt = waiting.pop()
            name = f"r{index}"
            engine.add_request(name, {"prompt_token_ids": prompt}, params)
            running[name], passes[name], written[name] = index, 0, []
        for output in engine.step():
            name = output.request_id
            if name not in running:
                continue
            written[name] = list(output.outputs[0].token_ids)
            passes[name] += 1
            give_up = abort and running[name] % abort == abort - 1 and passes[name] == 3
            if give_up and not output.finished:
                engine.abort_request([name])
            if output.finished or give_up:
                yield running.pop(name), written[name]


def drafted(llm: Any) -> dict[str, int]:
    """Drafted and accepted tokens, as the engine counts them."""
    kept = ("vllm:spec_decode_num_draft_tokens", "vllm:spec_decode_num_accepted_tokens")
    return {m.name: int(m.value) for m in llm.get_metrics() if m.name in kept}


def margins(llm: Any, path: Path) -> list[float]:
    """By how much the best next token of each prefix beats the second best, in log-probability."""
    from vllm import SamplingParams

    lines = path.read_text(encoding="utf-8").splitlines()
    told = [{"prompt_token_ids": json.loads(line)["ids"]} for line in lines]
    params = SamplingParams(temperature=0.0, max_tokens=1, logprobs=2)
    found: list[float] = []
    for output in llm.generate(told, params, use_tqdm=False):
        best = sorted((p.logprob for p in output.outputs[0].logprobs[0].values()), reverse=True)
        found.append(best[0] - best[1])
    return found


def main() -> None:
    """Decode the requests and write down what came out."""
    args = options()
    llm = engine(args)
    if args.margins:
        args.out.write_text(json.dumps(margins(llm, args.requests)), encoding="utf-8")
        return
    ids = prompts(args.requests, llm.get_tokenizer(), args.limit)
    list(serve(llm, [ids[0][:64]], in_flight=1, most=4))  # warm
    watch = Stopwatch(llm)
    rounds = []
    outputs: dict[int, list[int]] = {}
    for _ in range(args.rounds):
        start = time.perf_counter()
        outputs = dict(
            serve(llm, ids, in_flight=args.in_flight, most=args.max_new_tokens, abort=args.abort)
        )
        rounds.append(time.perf_counter() - start)
    tokens = sum(map(len, outputs.values()))
    report = {
        "method": args.method,
        "seconds": rounds,
        "tokens": tokens,
        "tokens_per_second": [tokens / seconds for seconds in rounds],
        "proposals": watch.summary(),
        "drafts": drafted(llm),
        "prompts": ids,
        "outputs": [outputs[i] for i in range(len(ids))],
    }
    args.out.write_text(json.dumps(report), encoding="utf-8")
    print({key: value for key, value in report.items() if key not in ("prompts", "outputs")})


if __name__ == "__main__":
    main()
