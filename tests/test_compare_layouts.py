import json

import pytest

from specdec.calls import Call
from specdec.compare.cases import read_cases
from specdec.compare.layouts import LAYOUTS
from specdec.errors import RequestError

ASK = {"role": "user", "content": "How warm is it in Oslo?"}
WEATHER = {
    "name": "get_weather",
    "description": "Current weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
ARGUMENTS = '{"city": "Oslo"}'
CALL = Call("get_weather", {"city": "Oslo"})
ANSWER = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "id": "c1",
            "type": "function",
            "function": {"name": "get_weather", "arguments": ARGUMENTS},
        }
    ],
}
SAID = {"role": "assistant", "content": "Eight degrees.\n"}
BODY = {"model": "m", "messages": [ASK], "tools": [{"type": "function", "function": WEATHER}]}


def write(path, *values):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    return path


def document(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2), encoding="utf-8")
    return path


def choices(message, reason="stop"):
    return {"id": "x", "choices": [{"index": 0, "message": message, "finish_reason": reason}]}


def refused(path, **options):
    with pytest.raises(RequestError) as error:
        read_cases(path, **options)
    return str(error.value)


# OpenAI.


@pytest.mark.parametrize(
    "line",
    [
        {**BODY, "messages": [ASK, ANSWER]},
        {"messages": [ASK, ANSWER], "tools": BODY["tools"], "parallel_tool_calls": False},
        {"messages": [ASK, ANSWER], "functions": [WEATHER]},
        {"request": BODY, "response": choices(ANSWER)},
        {"request": json.dumps(BODY), "response": json.dumps(choices(ANSWER))},
        {"request": BODY, "response": ANSWER},
        {"request": {"body": BODY}, "response": {"status_code": 200, "body": choices(ANSWER)}},
        {
            "request": BODY,
            "response": choices(
                {
                    "role": "assistant",
                    "function_call": {"name": "get_weather", "arguments": ARGUMENTS},
                }
            ),
        },
        {"custom_id": "7", "body": BODY, "response": {"body": choices(ANSWER)}},
    ],
)
def test_a_logged_answer_with_calls_is_the_reference(tmp_path, line):
    (case,) = read_cases(write(tmp_path / "log", line))
    assert case.messages == (ASK,)
    assert [tool.to_openai()["function"] for tool in case.tools] == [WEATHER]
    assert case.calls == (CALL,)
    assert case.output is None


def test_a_logged_answer_in_text_is_kept_as_it_is(tmp_path):
    line = {"request": BODY, "response": choices(SAID, "length")}
    (case,) = read_cases(write(tmp_path / "log", line))
    assert (case.id, case.calls, case.output) == ("x", (), "Eight degrees.\n")
    assert case.extra == {"model": "m", "finish_reason": "length"}


def test_a_request_alone_has_no_answer(tmp_path):
    path = write(
        tmp_path / "log",
        BODY,
        {"custom_id": "q", "method": "POST", "url": "/v1/chat/completions", "body": BODY},
    )
    first, second = read_cases(path)
    assert (first.id, second.id) == ("request-1", "q")
    assert (first.calls, first.output, first.messages) == ((), None, (ASK,))


def test_only_the_last_message_is_the_answer(tmp_path):
    line = {"model": "m", "messages": [ASK, ANSWER, {"role": "tool", "content": "8"}, SAID, ASK]}
    (case,) = read_cases(write(tmp_path / "log", line))
    assert len(case.messages) == 5
    assert case.output is None
    assert case.messages[1]["tool_calls"][0]["function"]["arguments"] == {"city": "Oslo"}
    assert case.messages[1]["content"] == ""


def test_older_calls_in_the_conversation_become_todays(tmp_path):
    called = {"role": "assistant", "function_call": {"name": "get_weather", "arguments": ARGUMENTS}}
    result = {"role": "function", "name": "get_weather", "content": "8"}
    (case,) = read_cases(write(tmp_path / "log", {"model": "m", "messages": [ASK, called, result]}))
    function = {"name": "get_weather", "arguments": {"city": "Oslo"}}
    assert case.messages[1:] == (
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
        },
        {"role": "tool", "name": "get_weather", "content": "8", "tool_call_id": "call_1"},
    )


def test_text_in_parts_is_joined(tmp_path):
    parts = [{"type": "text", "text": "How warm "}, {"type": "text", "text": "is it?"}]
    (case,) = read_cases(
        write(tmp_path / "log", {**BODY, "messages": [{"role": "user", "content": parts}]})
    )
    assert case.messages == ({"role": "user", "content": "How warm is it?"},)
    parts.append({"type": "image_url", "image_url": {"url": "data:,"}})
    path = write(tmp_path / "log", {**BODY, "messages": [{"role": "user", "content": parts}]})
    assert "line 1: message 1: expected text as content, or a list of text parts" in refused(path)


def test_batch_answers_are_joined_to_their_requests(tmp_path):
    folder = tmp_path / "batch"
    write(folder / "input.jsonl", *({"custom_id": name, "body": BODY} for name in "ab"))
    failed = {"custom_id": "a", "response": None, "error": {"code": "batch_expired"}}
    fine = {"custom_id": "b", "response": {"status_code": 200, "body": choices(SAID)}}
    output = write(folder / "output.jsonl", fine, failed)
    first, second = read_cases(folder)
    assert (first.id, first.output) == ("a", None)
    assert first.extra["error"] == {"code": "batch_expired"}
    assert (second.id, second.output) == ("b", "Eight degrees.\n")
    assert "line 1: an answer to 'b', whose request is in none of the files" in refused(output)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"custom_id": "q", "url": "/v1/embeddings", "body": {}}, "a request to /v1/embeddings"),
        ({"request": {"input": "x"}}, 'chat-completion request with "messages", the request has'),
        ({"request": "GET /"}, 'expected JSON under "request"'),
        ({"request": BODY, "response": [1]}, 'expected an object under "response"'),
        ({"request": BODY, "response": {"a": 1}}, 'expected a response with "choices"'),
        ({"request": BODY, "response": {"choices": [{"delta": {}}]}}, 'an object under "message"'),
        ({"messages": [SAID]}, "the only message is the assistant's"),
        (
            {
                "request": BODY,
                "response": choices(
                    {
                        "role": "assistant",
                        "function_call": {"name": "get_weather", "arguments": '{"city": "Os'},
                    }
                ),
            },
            "an answer that was cut is no reference",
        ),
    ],
)
def test_a_log_that_cannot_be_read_is_refused(tmp_path, line, message):
    found = refused(write(tmp_path / "log", line))
    assert "log, line 1: " in found
    assert message in found


# BFCL.

QUESTION = {
    "id": "live_simple_3-1-0",
    "question": [[{"role": "user", "content": "Rent a red boat for two hours."}]],
    "function": [
        {
            "name": "boat.rent",
            "description": "Rent a boat.",
            "parameters": {
                "type": "dict",
                "required": ["hours", "where"],
                "properties": {
                    "hours": {"type": "float"},
                    "where": {"type": "tuple", "items": {"type": "float"}},
                    "type": {"type": "String", "enum": ["red", "blue"]},
                    "extras": {"type": "HashMap", "properties": {"sail": {"type": "any"}}},
                    "crew": {"type": "ArrayList", "items": {"type": "char"}, "required": []},
                    "note": {"type": "string", "optional": True},
                },
            },
        }
    ],
}
TRUTH = [
    {
        "boat.rent": {
            "hours": [2, 2.0],
            "where": [[1.5, 2]],
            "type": ["", "green", "red"],
            "extras": [{"sail": ["yes", "no"], "oars": [""]}],
            "note": ["", None],
        }
    }
]


def test_bfcl_takes_the_first_acceptable_values_and_its_types(tmp_path):
    path = write(tmp_path / "BFCL_v9_live_simple.json", QUESTION)
    write(tmp_path / "possible_answer" / path.name, {"id": QUESTION["id"], "ground_truth": TRUTH})
    (case,) = read_cases(path)
    assert (case.id, case.benchmark, case.split) == (QUESTION["id"], "bfcl", "live_simple")
    assert case.extra == {"possible_answer": TRUTH}
    arguments = {"hours": 2, "where": [1.5, 2], "type": "red", "extras": {"sail": "yes"}}
    assert case.calls == (Call("boat.rent", arguments),)
    assert case.tools[0].parameters == {
        "type": "object",
        "required": ["hours", "where"],
        "properties": {
            "hours": {"type": "number"},
            "where": {"type": "array", "items": {"type": "number"}},
            "type": {"type": "string", "enum": ["red", "blue"]},
            "extras": {"type": "object", "properties": {"sail": {}}},
            "crew": {"type": "array", "items": {"type": "string"}},
            "note": {"type": "string"},
        },
    }
    write(tmp_path / "possible_answer" / path.name, {"id": "another", "ground_truth": TRUTH})
    assert "is not in possible_answer/BFCL_v9_live_simple.json" in refused(path)


def test_bfcl_without_answers_has_no_calls(tmp_path):
    old = {"question": "Rent a boat.", "function": QUESTION["function"][0]}
    first, second = read_cases(write(tmp_path / "irrelevance.json", QUESTION, old))
    assert first.calls == ()
    assert second.id == "irrelevance_1"
    assert second.messages == ({"role": "user", "content": "Rent a boat."},)


def test_bfcl_sets_that_run_tools_are_refused(tmp_path):
    agentic = {"id": "memory_0", "question": QUESTION["question"], "involved_classes": ["A"]}
    assert "'memory_0' is of a multi-turn or agentic" in refused(write(tmp_path / "a", agentic))
    turns = {**QUESTION, "question": QUESTION["question"] * 2}
    assert "is of a multi-turn or agentic set" in refused(write(tmp_path / "a", turns))
    answers = write(tmp_path / "a", {"id": "x", "ground_truth": TRUTH})
    assert "answers without questions; name the file" in refused(answers)


# ToolAlpaca.

OPENAPI = {
    "openapi": "3.0.0",
    "paths": {
        "/boats/{id}": {
            "get": {
                "operationId": "getBoat",
                "parameters": [
                    {"$ref": "#/components/parameters/id"},
                    {"name": "full", "in": "query", "schema": {"type": "boolean"}},
                ],
            }
        },
        "/boats": {
            "post": {
                "requestBody": {
                    "content": {
                        "application/json": {"schema": {"$ref": "#/components/schemas/Boat"}}
                    }
                }
            }
        },
    },
    "components": {
        "parameters": {
            "id": {
                "name": "id",
                "in": "path",
                "required": True,
                "description": "Which.",
                "schema": {"type": "integer"},
            }
        },
        "schemas": {
            "Boat": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string"},
                    "next": {"$ref": "#/components/schemas/Boat"},
                },
            }
        },
    },
}


def golden(*pairs):
    return [{"Action": action, "Action_Input": given} for action, given in pairs]


def alpaca(**changes):
    return {
        "Name": "Boats",
        "Category": "Sea",
        "Documentation": json.dumps(OPENAPI),
        "NLDocumentation": "...",
        "Function_Description": {
            "getBoat": 'Get a boat.\nParameters: {"id": "Required. integer."}\nOutput: One.',
            "addBoat": "Add a boat.\nParameters: {}",
            "sink": "Sink it.",
            "components": "",
        },
        "Function_Projection": {"getBoat": ["/boats/{id}", "get"], "addBoat": ["/boats", "post"]},
        "Instructions": ["Show boat 3.", "Add Ada, then show it."],
        "Golden_Answers": [
            golden(("getBoat", '{"id": 3}')),
            golden(
                ("addBoat", '{"name": "name": "Ada"}'),
                ("[Optional]getBoat", '{"id": ${id from addBoat, "full": {yes or no}}'),
            ),
        ],
        **changes,
    }


def test_toolalpaca_gives_a_case_for_each_instruction(tmp_path):
    first, second = read_cases(document(tmp_path / "eval_simulated.json", [alpaca()]))
    assert (first.id, first.split) == ("toolalpaca-simulated-00-00", "simulated")
    assert first.messages == ({"role": "user", "content": "Show boat 3."},)
    assert first.calls == (Call("getBoat", {"id": 3}),)
    assert first.extra == {"api": "Boats", "category": "Sea"}
    assert second.calls == (
        Call("addBoat", {"name": "Ada"}),
        Call("getBoat", {"id": "${id from addBoat}", "full": "{yes or no}"}),
    )
    assert second.extra["optional_calls"] == [1]
    get, add, sink = first.tools
    assert (get.name, get.description) == ("getBoat", "Get a boat.")
    assert get.parameters == {
        "type": "object",
        "properties": {
            "id": {"type": "integer", "description": "Which."},
            "full": {"type": "boolean"},
        },
        "required": ["id"],
    }
    assert add.parameters["required"] == ["name"]
    assert (sink.name, sink.parameters) == ("sink", {})


def test_toolalpaca_without_golden_answers_has_no_calls(tmp_path):
    api = alpaca()
    del api["Golden_Answers"], api["Function_Projection"]
    cases = read_cases(document(tmp_path / "train.json", [api]))
    assert [case.calls for case in cases] == [(), ()]
    assert "id" in cases[0].tools[0].parameters["properties"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"Golden_Answers": [[]]}, "2 instructions but 1 golden answers"),
        ({"Golden_Answers": [[], golden(("f", "{1}"))]}, "instruction 1: expected a JSON object"),
        ({"Golden_Answers": [[], [3]]}, 'instruction 1: expected {"Action", "Action_Input"}'),
        ({"Instructions": [1, 2]}, "instruction 0: expected text"),
        ({"Golden_Answers": [[], 3]}, "instruction 1: expected a list of golden answers, got 3"),
        ({"Documentation": "{"}, 'the OpenAPI text under "Documentation"'),
        ({"Documentation": {"paths": 3}}, 'the OpenAPI description under "Documentation" is not'),
        ({"Function_Projection": {"sink": 3}}, "the OpenAPI description"),
    ],
)
def test_toolalpaca_says_what_it_cannot_read(tmp_path, changes, message):
    assert message in refused(document(tmp_path / "eval_real.json", [alpaca(**changes)]))


# API-Bank.

DIALOGUE = [
    {"role": "User", "text": "Book a boat."},
    {"role": "AI", "text": "One moment."},
    {
        "role": "API",
        "api_name": "BookBoat",
        "param_dict": {"size": 2, "when": "noon"},
        "result": {"api_name": "BookBoat", "output": {"ok": True}, "exception": None},
    },
    {"role": "AI", "text": "Done."},
    {"role": "User", "text": "And a car."},
    {"role": "API", "api_name": "BookCar", "param_dict": {}, "result": {"output": "booked"}},
    {"role": "AI", "text": "Done."},
]
DESCRIPTION = {
    "name": "BookBoat",
    "description": "Books a boat.",
    "input_parameters": {
        "size": {"type": "int", "description": "Seats."},
        "when": {"type": "str", "description": "Time."},
    },
    "output_parameters": {},
}
BOAT = {
    "type": "object",
    "properties": {
        "size": {"type": "integer", "description": "Seats."},
        "when": {"type": "string", "description": "Time."},
    },
    "required": ["size", "when"],
}


def test_an_api_bank_dialogue_is_a_case_for_each_call(tmp_path):
    folder = tmp_path / "lv1-lv2-samples" / "level-1-given-desc"
    write(folder / "Boat-level-1-1.jsonl", *DIALOGUE)
    write(folder / "Car-level-1-1.jsonl", *DIALOGUE[4:])
    first, second, third = read_cases(folder)
    assert (first.id, second.id) == ("Boat-level-1-1/0", "Boat-level-1-1/1")
    assert (third.id, third.benchmark, third.split) == ("Car-level-1-1/0", "api-bank", "level-1")
    assert [message["role"] for message in first.messages] == ["user", "assistant"]
    assert first.calls == (Call("BookBoat", {"size": 2, "when": "noon"}),)
    assert second.calls == (Call("BookCar", {}),)
    assert second.messages[2]["tool_calls"][0]["function"]["arguments"]["size"] == 2
    assert second.messages[3]["content"] == '{"ok": true}'
    assert [tool.name for tool in first.tools] == ["BookBoat", "BookCar"]
    assert first.tools[0].parameters["properties"]["size"] == {"type": "integer"}
    assert first.extra == {"inferred_tools": ["BookBoat", "BookCar"]}


def test_api_bank_takes_its_schemas_from_the_repository(tmp_path):
    apis = tmp_path / "apis"
    apis.mkdir()
    (apis / "api.py").write_text("class API:\n    pass\n")
    described = {key: DESCRIPTION[key] for key in ("description", "input_parameters")}
    lines = "".join(f"    {key} = {value!r}\n" for key, value in described.items())
    (apis / "book_boat.py").write_text(f"class BookBoat(API):\n{lines}    database = f()\n")
    path = write(tmp_path / "samples" / "level-1" / "a.jsonl", *DIALOGUE[:4])
    (case,) = read_cases(path)
    assert (case.tools[0].description, case.tools[0].parameters) == ("Books a boat.", BOAT)
    assert case.extra == {}


def test_an_api_bank_plan_is_a_case_for_each_call(tmp_path):
    plan = {
        "requirement": " Book a boat. ",
        "response": "Done.",
        "apis": [
            {
                "api_name": "ToolSearcher",
                "input": {"keywords": "boat"},
                "output": {"api_name": "ToolSearcher", "output": DESCRIPTION, "exception": None},
            },
            {"api_name": "BookBoat", "input": {"size": 2, "when": "x"}, "output": {"output": "ok"}},
        ],
    }
    first, second = read_cases(document(tmp_path / "level-3.json", [plan]))
    assert (first.id, first.split, second.id) == ("level-3-0/0", "level-3", "level-3-0/1")
    assert first.messages == ({"role": "user", "content": "Book a boat."},)
    assert [tool.name for tool in second.tools] == ["ToolSearcher", "BookBoat"]
    assert second.tools[1].parameters == BOAT
    assert second.extra == {"inferred_tools": ["ToolSearcher"]}
    assert json.loads(second.messages[-1]["content"])["name"] == "BookBoat"


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        (
            "API-Request: [BookBoat(size=2, when='noon')]",
            [Call("BookBoat", {"size": 2, "when": "noon"})],
        ),
        ("API-Request: [BookBoat()]", [Call("BookBoat", {})]),
        (
            "API-Request: [BookBoat(when='Ann's day', size='2')]",
            [Call("BookBoat", {"when": "Ann's day", "size": "2"})],
        ),
        ("API-Request: [BookBoat(2, when=])]", []),
        ("API-Request: [BookBoat('noon')]", []),
        ("AI: It is booked.", []),
    ],
)
def test_an_api_bank_prompt_keeps_its_text(tmp_path, text, calls):
    prompt = {
        "file": "Boat-level-1-1.jsonl",
        "id": 2,
        "instruction": f"Write a request.\n{json.dumps(DESCRIPTION)}",
        "input": "User: Book a boat.\nGenerate API Request:\n",
        "expected_output": text,
    }
    (case,) = read_cases(document(tmp_path / "level-1-api.json", [prompt]))
    assert (case.id, case.split) == ("Boat-level-1-1/2", "level-1")
    assert [message["role"] for message in case.messages] == ["system", "user"]
    assert case.messages[1]["content"] == prompt["input"]
    assert case.tools[0].parameters == BOAT
    assert list(case.calls) == calls
    assert case.output == text


def test_api_bank_prompts_for_training_are_read_too(tmp_path):
    searcher = {"apiCode": "ToolSearcher", "description": "", "parameters": {"k": {"type": "str"}}}
    found = f"API-Request: [ToolSearcher(k='boat')]->{DESCRIPTION!r}"
    prompt = {
        "instruction": "Write a request.",
        "input": f"{json.dumps(searcher)}\nUser: Book a boat.\n{found}\nGenerate API Request: ",
        "output": "API-Request: [BookBoat(size=2)]",
    }
    (case,) = read_cases(document(tmp_path / "lv3-api-train.json", [prompt]))
    assert [tool.name for tool in case.tools] == ["ToolSearcher", "BookBoat"]
    assert (case.split, case.calls) == ("level-3", (Call("BookBoat", {"size": 2}),))


def test_api_bank_marks_optional_arguments_in_words(tmp_path):
    about = {"size": {"type": "int"}, "when": {"type": "str", "description": "[Optional] Time."}}
    prompt = {
        "instruction": json.dumps({**DESCRIPTION, "input_parameters": about}),
        "input": "User: Book a boat.",
        "expected_output": "API-Request: [BookBoat(size=2)]",
    }
    (case,) = read_cases(document(tmp_path / "a.json", [prompt]))
    assert case.tools[0].parameters["required"] == ["size"]


def test_api_bank_prompts_with_the_answer_apart(tmp_path):
    row = {
        "system": "Tools:\n1. Name: BookBoat\nDescription: Books a boat.\nParameters: "
        + repr(DESCRIPTION["input_parameters"]),
        "user": "<user>Book a boat.</user>",
        "answer": [{"name": "BookBoat", "parameters": {"size": 2}}],
        "other": {"sample_id": 4, "api_id": 1},
    }
    (case,) = read_cases(document(tmp_path / "level-3-api_processed.json", [row]))
    assert case.id == "level-3-api_processed-4/1"
    assert (case.tools[0].name, case.tools[0].parameters) == ("BookBoat", BOAT)
    assert case.calls == (Call("BookBoat", {"size": 2}),)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([DIALOGUE[0], DIALOGUE[1]], "a dialogue without a call of an API"),
        ([DIALOGUE[2]], "nothing is said before the first call"),
        ([DIALOGUE[0], {"role": "API", "api_name": "f"}], 'expected an object under "param_dict"'),
        ([DIALOGUE[0], {"role": "Nurse", "text": "?"}], "is not of the layout 'api_bank'"),
        ([{"requirement": "x", "apis": [3]}], 'expected an object with "api_name", got 3'),
    ],
)
def test_api_bank_says_what_it_cannot_read(tmp_path, lines, message):
    assert message in refused(write(tmp_path / "a.jsonl", *lines))


# ToolBench.

API = {
    "category_name": "Sea",
    "tool_name": "Boats & Ships",
    "api_name": "/boats/:id",
    "api_description": "One boat.",
    "required_parameters": [
        {"name": "id", "type": "NUMBER", "description": "Which.", "default": 3}
    ],
    "optional_parameters": [
        {"name": "Full Text", "type": "DATE", "description": "", "default": ""}
    ],
    "method": "GET",
}
FINISH = {
    "name": "Finish",
    "description": "End.",
    "parameters": {
        "type": "object",
        "properties": {"answer": {"type": "string"}},
        "required": [],
        "optional": [],
    },
}


def test_toolbench_queries_offer_tools_by_their_function_names(tmp_path):
    query = {"api_list": [API, API], "query": "Show boat 3.", "relevant APIs": [["B", "b"]]}
    bare = {"query": "Again.", "api_list": [{"tool_name": "2 Boats", "api_name": "from"}]}
    rows = [{**query, "query_id": 12}, {**bare, "query_id": 12}]
    first, second = read_cases(document(tmp_path / "G1_query.json", rows))
    assert (first.id, second.id, first.benchmark) == ("12", "12#2", "toolbench")
    assert first.messages == ({"role": "user", "content": "Show boat 3."},)
    assert first.extra == {"relevant_apis": [["B", "b"]]}
    (tool,) = first.tools
    assert (tool.name, tool.description) == ("boats_id_for_boats_ships", "One boat.")
    assert tool.parameters == {
        "type": "object",
        "properties": {
            "is_id": {"type": "integer", "description": "Which.", "example_value": 3},
            "full_text": {"type": "string", "description": ""},
        },
        "required": ["is_id"],
    }
    assert (second.tools[0].name, second.tools[0].parameters) == ("is_from_for_get_2_boats", {})


def test_toolbench_answers_give_a_case_for_each_conversation(tmp_path):
    called = {
        "role": "assistant",
        "content": None,
        "function_call": {"name": "Finish", "arguments": '{"answer": "Ada"}'},
    }
    answer = {
        "query": "Show it.",
        "function": [FINISH],
        "train_messages": [[ASK, called], [ASK, SAID]],
    }
    folder = tmp_path / "G1_answer"
    document(folder / "10_DFS.json", {"win": True, "answer_generation": answer})
    given_up = {**answer, "train_messages": []}
    document(folder / "11_DFS.json", {"win": False, "answer_generation": given_up})
    first, second, third = read_cases(folder)
    assert (first.id, second.id, third.id) == ("10_DFS/0", "10_DFS/1", "11_DFS")
    assert (first.messages, first.calls) == ((ASK,), (Call("Finish", {"answer": "Ada"}),))
    assert (second.calls, second.output) == ((), "Eight degrees.\n")
    assert third.messages == ({"role": "user", "content": "Show it."},)
    assert first.tools[0].parameters == {
        "type": "object",
        "properties": {"answer": {"type": "string"}},
    }


def test_toolbench_converted_answers_are_requests(tmp_path):
    entries = {"3": {"query": "Show it.", "available_tools": [FINISH], "answer": {}}}
    (case,) = read_cases(write(tmp_path / "G1_tool.json", entries))
    assert (case.id, case.calls, case.tools[0].name) == ("3", (), "Finish")


def test_toolbench_conversations_keep_their_text(tmp_path):
    def turn(role, value):
        return {"from": role, "value": value}

    written = '\nThought: \nAction: Finish\nAction Input: {\n  "answer": "Ada"\n}'
    conversations = [
        turn("system", f"Use tools.\nYou have access to the following APIs: {[FINISH]!r}"),
        turn("user", "Show it."),
        turn("assistant", "\nThought: \nAction: look\nAction Input: {}"),
        turn("function", "[]"),
        turn("assistant", written),
    ]
    cut = [*conversations[:-1], turn("assistant", written[:-3])]
    rows = [{"id": "Step 2: Show it.", "conversations": rows} for rows in (conversations, cut)]
    first, second = read_cases(document(tmp_path / "toolllama_train.json", rows))
    assert first.id == "Step 2: Show it."
    assert [message["role"] for message in first.messages] == [
        "system",
        "user",
        "assistant",
        "tool",
    ]
    assert (first.output, first.calls) == (written, (Call("Finish", {"answer": "Ada"}),))
    assert first.tools[0].name == "Finish"
    assert (second.output, second.calls) == (written[:-3], ())


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"api_list": [3], "query": "x"}, 'expected an object with "api_name", got 3'),
        (
            {"api_list": [{}], "query": "x"},
            'expected text under "api_name", the object has no keys',
        ),
        ({"answer_generation": {}}, 'expected a list under "function"'),
        ({"conversations": []}, '"conversations" is an empty list'),
        ({"conversations": [3]}, 'expected an object with "from", got 3'),
        (
            {
                "conversations": [
                    {"from": "system", "value": "the following APIs: [oops]"},
                    {"from": "user", "value": "x"},
                ]
            },
            "the list of tools in the system's turn cannot be read",
        ),
    ],
)
def test_toolbench_says_what_it_cannot_read(tmp_path, row, message):
    assert message in refused(write(tmp_path / "a.json", row))


# All.


@pytest.mark.parametrize(
    "sample",
    [
        BODY,
        {"messages": [ASK]},
        {"messages": [ASK, SAID]},
        {"messages": [ASK], "output": "x"},
        {"messages": [ASK], "calls": [], "model": "m"},
        {"messages": [ASK], "request": {}},
        {"request": BODY},
        {"custom_id": "a", "response": None},
        QUESTION,
        {"id": "x", "ground_truth": TRUTH},
        alpaca(),
        *DIALOGUE[:3],
        {"requirement": "x", "apis": []},
        {"instruction": "x", "input": "y", "output": "z"},
        {"system": "x", "user": "y", "answer": []},
        {"api_list": [], "query": "x"},
        {"answer_generation": {}},
        {"conversations": []},
    ],
)
def test_a_record_is_of_exactly_one_layout(sample):
    assert sum(bool(layout.recognises(sample)) for layout in LAYOUTS) == 1


@pytest.mark.parametrize("sample", [None, 1, "x", [], [ASK], {}, {"messages": "x"}, {"a": {}}])
def test_anything_else_is_of_none(sample):
    assert not any(layout.recognises(sample) for layout in LAYOUTS)
