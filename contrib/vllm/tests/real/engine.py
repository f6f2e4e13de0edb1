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
from collections.abc import Iterable, Iterator, Sequence
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
# What vLLM compiles for several workers, even eager ones, does not link in a path with spaces.
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
# The package behind `suffix` brings a plugin that patches other versions of vLLM.
os.environ.setdefault("VLLM_PLUGINS", "")

METHODS: dict[str, dict[str, Any] | None] = {
    "plain": None,
    "ngram": {"method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 5},
    "suffix": {"method": "suffix"},
    "specdec": {"method": "custom_class", "model": "specdec_vllm.Proposer"},
}

DRAFTS = ("vllm:spec_decode_num_draft_tokens", "vllm:spec_decode_num_accepted_tokens")
REUSED = ("vllm:prefix_cache_hits",)


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--requests", type=Path, required=True, help="JSON lines with messages")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--method", choices=METHODS, default="plain")
    parser.add_argument("--drafts", type=int, default=24, help="num_speculative_tokens")
    parser.add_argument("--settings", type=json.loads, default={}, help="specdec's own, as JSON")
    parser.add_argument("--in-flight", type=int, default=1)
    parser.add_argument("--limit", type=int, default=None)
    parser.add_argument("--max-new-tokens", type=int, default=160)
    parser.add_argument("--chunk", type=int, default=None, help="most tokens per pass")
    parser.add_argument("--engine", type=json.loads, default={}, help="more arguments, as JSON")
    parser.add_argument("--chat", action="store_true", help="ask through LLM's chat, with tools=")
    parser.add_argument("--abort", type=int, default=0, help="abort every n-th request midway")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--length", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument(
        "--margins",
        action="store_true",
        help="requests are {ids: [...], tokens: [one, other]}: how near to a tie those two are",
    )
    return parser.parse_args()


def asked(path: Path, limit: int | None) -> Iterator[tuple[Any, Any]]:
    """Messages and tools of the requests."""
    for line in path.read_text(encoding="utf-8").splitlines()[:limit]:
        record = json.loads(line)
        # API-Bank's prompts tell of their tools themselves.
        told = record.get("benchmark") == "api-bank"
        yield record["messages"], None if told else record.get("tools") or None


def prompts(requests: Iterable[tuple[Any, Any]], tokenizer: Any) -> list[list[int]]:
    """Token ids of the requests' prompts."""
    found: list[list[int]] = []
    for messages, tools in requests:
        text = tokenizer.apply_chat_template(
            messages, tools=tools, add_generation_prompt=True, tokenize=False
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
        disable_log_stats=False,
        speculative_config=speculation and {**speculation, "num_speculative_tokens": args.drafts},
        additional_config={"specdec": args.settings} if args.method == "specdec" else {},
        **{"enable_prefix_caching": False, **chunked, **args.engine},
    )


class Stopwatch:
    """Times an engine's passes and the calls of its proposer."""

    def __init__(self, llm: Any) -> None:
        self.seconds: list[float] = []
        self.passes: list[tuple[int, float]] = []  # tokens, seconds; without new prompts
        # Several workers are processes of their own.
        worker = getattr(llm.llm_engine.model_executor, "driver_worker", None)
        if worker is None:
            return
        runner = worker.worker.model_runner
        self._run = runner.execute_model
        runner.execute_model = self._timed_pass
        if (drafter := getattr(runner, "drafter", None)) is not None:
            self._ask = drafter.propose
            drafter.propose = self._timed

    def _timed(self, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        drafts = self._ask(*args, **kwargs)
        self.seconds.append(time.perf_counter() - start)
        return drafts

    def _timed_pass(self, scheduled: Any, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        done = self._run(scheduled, *args, **kwargs)
        if scheduled.total_num_scheduled_tokens and not scheduled.scheduled_new_reqs:
            seconds = time.perf_counter() - start
            self.passes.append((scheduled.total_num_scheduled_tokens, seconds))
        return done

    def summary(self) -> dict[str, float]:
        """Milliseconds per call of the proposer."""
        if not self.seconds:
            return {}
        cuts = statistics.quantiles(self.seconds, n=100) if len(self.seconds) > 1 else [0.0] * 99
        return {
            "calls": len(self.seconds),
            "median_ms": 1000 * statistics.median(self.seconds),
            "p99_ms": 1000 * cuts[98],
            "max_ms": 1000 * max(self.seconds),
        }

    def cost(self) -> dict[str, float]:
        """What passes cost: the line through their times, and its `overhead` (see Settings)."""
        if len({tokens for tokens, _ in self.passes}) < 2:
            return {}
        line = statistics.linear_regression(*zip(*self.passes, strict=True))
        return {
            "passes": len(self.passes),
            "ms": 1000 * line.intercept,
            "ms_per_token": 1000 * line.slope,
            "overhead": line.intercept / line.slope,
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


def chat(
    llm: Any, requests: Iterable[tuple[Any, Any]], *, most: int
) -> list[tuple[list[int], list[int]]]:
    """Prompts and outputs of the requests, each with its own tools: what `LLM.chat` does.

    All are handed over at once; the engine takes as many as it may have in flight.
    """
    from vllm import SamplingParams

    params = SamplingParams(temperature=0.0, max_tokens=most)
    for messages, tools in requests:
        llm.enqueue_chat(messages, params, tools=tools, use_tqdm=False)
    done = llm.wait_for_completion(use_tqdm=False)
    return [(list(d.prompt_token_ids), list(d.outputs[0].token_ids)) for d in done]


def counted(llm: Any, names: Iterable[str]) -> dict[str, int]:
    """Counters of the engine."""
    return {m.name: int(m.value) for m in llm.get_metrics() if m.name in names}


def margins(llm: Any, path: Path) -> list[float]:
    """How far each prefix's worse token of the two told is below the best, in log-probability."""
    from vllm import SamplingParams

    told = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    params = SamplingParams(temperature=0.0, max_tokens=1, logprobs=20)
    asked = [{"prompt_token_ids": record["ids"]} for record in told]
    found: list[float] = []
    for record, output in zip(told, llm.generate(asked, params, use_tqdm=False), strict=True):
        scores = {t: p.logprob for t, p in output.outputs[0].logprobs[0].items()}
        worse = min(scores.get(token, float("-inf")) for token in record["tokens"])
        found.append(max(scores.values()) - worse)
    return found


def main() -> None:
    """Decode the requests and write down what came out."""
    args = options()
    llm = engine(args)
    if args.margins:
        args.out.write_text(json.dumps(margins(llm, args.requests)), encoding="utf-8")
        return
    requests = list(asked(args.requests, args.limit))
    ids = prompts(requests, llm.get_tokenizer())
    list(serve(llm, [ids[0][:64]], in_flight=1, most=4))  # warm
    watch = Stopwatch(llm)
    rounds = []
    outputs: dict[int, list[int]] = {}
    for _ in range(args.rounds):
        start = time.perf_counter()
        if args.chat:
            pairs = chat(llm, requests, most=args.max_new_tokens)
            ids, outputs = [ask for ask, _ in pairs], dict(enumerate(out for _, out in pairs))
        else:
            most, abort = args.max_new_tokens, args.abort
            outputs = dict(serve(llm, ids, in_flight=args.in_flight, most=most, abort=abort))
        rounds.append(time.perf_counter() - start)
    tokens = sum(map(len, outputs.values()))
    report = {
        "method": args.method,
        "seconds": rounds,
        "tokens": tokens,
        "tokens_per_second": [tokens / seconds for seconds in rounds],
        "proposals": watch.summary(),
        "cost": watch.cost(),
        "drafts": counted(llm, DRAFTS),
        "reused": counted(llm, REUSED),
        "prompts": ids,
        "outputs": [outputs[i] for i in range(len(ids))],
    }
    args.out.write_text(json.dumps(report), encoding="utf-8")
    print({key: value for key, value in report.items() if key not in ("prompts", "outputs")})


if __name__ == "__main__":
    main()
