"""Tools are read off the prompt's own tokens, and what one request taught serves the next."""

import json
import subprocess
import sys

import numpy as np
import pytest
from specdec_vllm.batch import Batch
from specdec_vllm.reading import PromptCodec, Reader

import specdec
from specdec.hf.codec import HFCodec
from specdec.hf.tools import tokenizer_format

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Lisbon", "unit": "celsius"}}'


def a_tool(name="get_weather", more=()):
    properties = {
        "city": {"type": "string"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        **{f"slot_{i}": {"type": "string"} for i in more},
    }
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": f"What {name.replace('_', ' ')} says.",
            "parameters": {
                "type": "object",
                "properties": properties,
                "required": ["city", "unit"],
            },
        },
    }


@pytest.fixture
def reader(tokenizer):
    form = tokenizer_format(tokenizer)
    assert form is not None
    end = tokenizer.eos_token_id
    return Reader(PromptCodec(tokenizer), form, frozenset({end}), len(tokenizer))


@pytest.fixture
def prompt(tokenizer):
    def made(content, tools):
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": content}],
            tools=tools,
            add_generation_prompt=True,
            tokenize=False,
        )
        return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])

    return made


@pytest.fixture
def calling(served, tokenizer, prompt):
    """A request that is answered with a call."""

    def made(content="Weather in Lisbon in celsius?", tools=None):
        answer = CALL + "\n</tool_call>"
        ids = tokenizer(answer, add_special_tokens=False)["input_ids"]
        return served(prompt(content, tools or [a_tool()]), (*ids, tokenizer.eos_token_id))

    return made


def a_batch(reader, drafter="schema", **options):
    return Batch(
        specdec.parse(drafter),
        reader,
        **{"drafts": 16, "length": 200_000, "overhead": 200.0, **options},
    )


def test_a_request_has_the_tools_and_the_format_of_its_prompt(reader, prompt):
    request = reader.request(prompt("Hello", [a_tool(), a_tool("send_mail")]), 10)
    assert [tool.name for tool in request.tools] == ["get_weather", "send_mail"]
    assert request.call_format.parse(CALL + "\n</tool_call>")[0].name == "get_weather"


def test_a_prompt_without_tools_has_none(reader, prompt):
    assert reader.request(prompt("Hello", None), 10).tools == ()


def test_a_prompt_is_decoded_once(reader, prompt, monkeypatch):
    decoded = []
    decode = HFCodec.decode

    def noted(self, ids):
        decoded.append(len(ids))
        return decode(self, ids)

    monkeypatch.setattr(HFCodec, "decode", noted)
    tokens = prompt("Hello " * 300, [a_tool()])
    specdec.parse("fallback(schema, schema)").start(reader.request(tokens, 10))
    assert decoded.count(len(tokens)) == 1


def test_the_schema_of_a_tool_in_the_prompt_is_drafted(reader, calling, engine):
    request = calling()
    host = engine(a_batch(reader), width=4000)
    host.add(request)
    host.run()
    # 90 characters, each a token; most are the format's and the schema's.
    assert host.accepted > 0.7 * len(request.output)


def test_equal_tools_are_compiled_once(reader, calling, engine, monkeypatch):
    compiled = []
    compile_tool = specdec.calls.compile_tool
    monkeypatch.setattr(
        specdec.calls, "compile_tool", lambda tool: compiled.append(tool.name) or compile_tool(tool)
    )
    tools = [a_tool(f"tool_{i}") for i in range(5)] + [a_tool()]
    requests = [calling(f"Weather {i} in Lisbon in celsius?", tools) for i in range(8)]
    host = engine(a_batch(reader), width=8000)
    host.add(*requests)
    host.run()
    assert sorted(compiled) == sorted(tool["function"]["name"] for tool in tools)


def test_five_hundred_tools(reader, calling, engine):
    tools = [a_tool(f"tool_{i}", more=range(i % 5)) for i in range(499)] + [a_tool()]
    requests = [calling(f"Weather {i} in Lisbon in celsius?", tools) for i in range(2)]
    host = engine(a_batch(reader), width=200_000, rows=2)
    host.add(*requests)
    host.run()
    assert host.accepted > 0.6 * sum(len(r.output) for r in requests)


def test_an_output_that_ended_with_a_call_is_remembered(reader, calling, engine):
    drafter = specdec.parse("retrieval(from_start=true)")
    host = engine(Batch(drafter, reader, drafts=16, length=4000, overhead=200.0), width=4000)
    for i, content in enumerate(("Weather in Lisbon in celsius?", "Lisbon in celsius!")):
        request = calling(content)
        before = host.accepted
        host.add(request)
        host.run()
        host.remove(request)
        assert len(drafter.memory) == i + 1
    assert host.accepted - before > 0.9 * (len(request.output) - 1) * 16 / 17


def test_an_output_that_was_given_up_is_not_remembered(reader, calling, engine):
    drafter = specdec.parse("retrieval")
    host = engine(Batch(drafter, reader, drafts=16, length=4000, overhead=200.0), width=4000)
    request = calling()
    host.add(request)
    for _ in range(3):
        host.step()
    host.remove(request)
    other = calling("Weather in Lisbon in celsius, please?")
    other.output = other.output[:-1] * 30
    host.add(other)
    for _ in range(300):
        host.step()
    assert len(drafter.memory) == 0


WORKER = """
import json, sys
import numpy as np
from transformers import PreTrainedTokenizerFast
from specdec_vllm.batch import Batch
from specdec_vllm.reading import PromptCodec, Reader
from specdec_vllm.settings import DEFAULT_DRAFTER
from specdec.hf.codec import HFCodec
from specdec.hf.tools import tokenizer_format
import specdec

folder, requests = sys.argv[1], json.loads(sys.argv[2])
tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
stops = frozenset({tokenizer.eos_token_id})
reader = Reader(PromptCodec(tokenizer), tokenizer_format(tokenizer), stops, len(tokenizer))
batch = Batch(specdec.parse(DEFAULT_DRAFTER), reader, drafts=8, length=4000, overhead=200.0)
tokens, drafts = np.zeros((len(requests), 4000), dtype=np.int32), []
for at in range(80):
    for i, (prompt, output) in enumerate(requests):
        row = [*prompt, *output[: at + 1]]
        tokens[i, : len(row)] = row
    lengths = np.array([len(p) + min(at + 1, len(o)) for p, o in requests])
    drafts.append(batch.propose([o[at : at + 1] for _, o in requests], lengths, tokens))
print(json.dumps(drafts))
"""


def test_workers_propose_the_same(tokenizer, calling, tmp_path):
    """Whatever order their sets are in."""
    tokenizer.save_pretrained(tmp_path)
    tools = [a_tool(f"tool_{i}") for i in range(12)] + [a_tool()]
    requests = [calling(f"{i}: weather in Lisbon in celsius?", tools) for i in range(3)]
    told = json.dumps([(r.prompt, r.output) for r in requests])
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(tmp_path), told],
            env={"PYTHONHASHSEED": seed, "PATH": ""},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "2")
    ]
    said = [worker.communicate()[0] for worker in workers]
    assert said[0] == said[1]
    assert np.mean([bool(draft) for call in json.loads(said[0]) for draft in call]) > 0.5
