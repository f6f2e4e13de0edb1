import json
import subprocess
import sys
import warnings
from pathlib import Path

import attrs
import pytest

from bench.coverage.cases import SHARED
from specdec.calls import Call, Tool
from specdec.compare import layouts
from specdec.compare.cases import LAYOUTS, Case, bfcl_files, read_cases
from specdec.compare.layouts.uniform import cases_of
from specdec.errors import RequestError

DATA = SHARED / "data"
ASK = {"role": "user", "content": "Go."}
FUNCTION = {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}
TOOL = Tool("f", "", FUNCTION["parameters"])
RECORD = {
    "id": "r",
    "messages": [ASK],
    "tools": [{"type": "function", "function": FUNCTION}],
    "calls": [{"name": "f", "arguments": {"a": 1}}, {"name": "f", "arguments": {}}],
}
ASKED = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {"a": 1}}}],
}
ANSWERED = {"role": "tool", "name": "f", "content": "done"}


def shared(name):
    path = DATA / name
    if not path.is_file():
        pytest.skip(f"needs {path}; set SPECDEC_SHARED")
    return path


def package():
    try:
        return bfcl_files()
    except RequestError as error:
        pytest.skip(str(error))


def write(path, *values):
    path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    return path


def refused(path, **options):
    with pytest.raises(RequestError) as error:
        read_cases(path, **options)
    return str(error.value)


# Uniform records.


def test_a_record_is_one_case():
    calls = (Call("f", {"a": 1}), Call("f", {}))
    assert list(cases_of(RECORD)) == [Case("r", (ASK,), (TOOL,), calls)]


def test_a_trajectory_is_one_case_per_turn_with_calls():
    more = [ASKED, ANSWERED, {"role": "assistant", "content": "Done."}, ASK, ASKED]
    first, second = cases_of({**RECORD, "trajectory": more})
    assert (first.id, second.id) == ("r/0", "r/1")
    assert first.messages == (ASK,)
    assert second.messages == (ASK, *more[:-1])
    assert first.calls == second.calls == (Call("f", {"a": 1}),)


def test_a_trajectory_without_calls_is_still_a_case():
    (case,) = cases_of({**RECORD, "trajectory": [{"role": "assistant", "content": "No."}]})
    assert case.id == "r"
    assert len(case.calls) == 2


def test_bare_requests_are_numbered_and_may_hold_an_answer(tmp_path):
    path = write(tmp_path / "r", {"messages": [ASK]}, {"messages": [ASK], "tools": None, "id": 7})
    assert read_cases(path) == (Case("request-1", (ASK,)), Case("7", (ASK,)))
    path = write(tmp_path / "r", {"messages": [ASK], "output": " It's done.\n"})
    assert read_cases(path)[0].output == " It's done.\n"


def test_what_a_record_says_of_itself_is_kept(tmp_path):
    more = {"benchmark": "b", "split": "s", "extra": {"possible_answer": [1]}}
    (case,) = read_cases(write(tmp_path / "r", {**RECORD, **more}))
    assert (case.benchmark, case.split, case.extra) == ("b", "s", {"possible_answer": [1]})


# Files.


def test_the_same_id_twice_is_made_two(tmp_path):
    path = write(tmp_path / "r", RECORD, {**RECORD, "id": "r#2"}, RECORD, RECORD)
    assert [case.id for case in read_cases(path)] == ["r", "r#2", "r#3", "r#4"]


def test_a_mark_and_blank_lines_mean_nothing(tmp_path):
    path = tmp_path / "r.jsonl"
    line = json.dumps(RECORD)
    path.write_bytes(b"\xef\xbb\xbf\r\n" + f"{line}\r\n\n  \n{line}".encode())
    assert len(read_cases(path)) == 2


@pytest.mark.parametrize("indent", [None, 1])
def test_a_list_is_as_good_as_lines(tmp_path, indent):
    path = tmp_path / "r.json"
    path.write_text(json.dumps([RECORD, RECORD], indent=indent))
    assert len(read_cases(path)) == 2
    path.write_text(json.dumps(RECORD, indent=indent))
    assert len(read_cases(path)) == 1


def test_a_line_may_hold_what_python_takes_for_a_line_break(tmp_path):
    path = tmp_path / "r"
    message = {"role": "user", "content": "a\u2028b\x85c"}
    path.write_text(
        json.dumps({"messages": [message]}, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    assert read_cases(path)[0].messages == (message,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", r"file .*r is empty; expected JSON objects"),
        (b" \n\n", r"file .*r is empty"),
        (b"[]", r"is an empty list"),
        (b'{"messages": [\n{}\n{"a": 1}', r"line 1 is not JSON"),
        (b'{"messages": [\n{"a": 1},\n]', r"is not JSON: .* at line 3, column 1"),
        (b"hello", r"line 1 is not JSON: Expecting value at column 1; mend or remove the line"),
        (b"[1]", r"entry 1: expected a JSON object, got 1"),
        (b"3", r"line 1: expected a JSON object, got 3"),
        (b"\xff\xfe{\x00", r"is UTF-16 text; save it as UTF-8"),
        (b'{"a": "\xe9"}', r"is not UTF-8 text: .*; save it as UTF-8"),
        (b'{"a": 1, "b": 2}', r'line 1: an object with the keys "a", "b" is of no known layout'),
        (b"{}", r"an object with no keys is of no known layout; expected one of uniform: "),
        (b"[" * 99999, r"not JSON: it is nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", r"line 1 is not JSON: .*digits"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path, text, message):
    path = tmp_path / "r"
    path.write_bytes(text)
    with pytest.raises(RequestError, match=message):
        read_cases(path)


def test_a_broken_line_is_named(tmp_path):
    path = write(tmp_path / "r", RECORD)
    with path.open("a") as file:
        file.write('\n{"messages": [\n')
    assert "r, line 3 is not JSON: Expecting value" in refused(path)


def test_a_line_of_another_kind_is_named(tmp_path):
    path = write(tmp_path / "r", RECORD, {"question": "?", "function": []})
    assert "line 2: an object with the keys" in refused(path)
    assert "is not of the layout 'uniform'; expected {" in refused(path)


def test_what_is_not_there_is_named(tmp_path):
    assert "nope cannot be read: No such file" in refused(tmp_path / "nope")
    assert "holds no .json or .jsonl file" in refused(tmp_path)


def test_an_unknown_layout_is_named(tmp_path):
    message = refused(write(tmp_path / "r", RECORD), layout="unifrom")
    assert "no layout 'unifrom'; did you mean 'uniform'?; expected one of uniform, op" in message


def test_a_layout_that_is_asked_for_is_the_one_that_reads(tmp_path):
    path = write(tmp_path / "r", RECORD)
    assert read_cases(path, layout="uniform") == read_cases(path)
    assert "is not of the layout 'bfcl'; expected" in refused(path, layout="bfcl")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"messages": []}, r'line 1: "messages" is an empty list'),
        ({"messages": [{"content": "x"}]}, r'message 1: expected an object with a text "role"'),
        ({"messages": [{"role": "user", "content": 3}]}, r"message 1: expected text as content"),
        ({"tools": {"f": 1}}, r'expected a list under "tools", got'),
        ({"tools": [{"f": 1}]}, r"line 1: a tool must be an object with a string 'name'"),
        ({"calls": [3]}, r"expected a call"),
        ({"calls": [{"name": "f", "arguments": "{"}]}, r"call of 'f': expected a JSON object"),
        ({"calls": [{"arguments": {}}]}, r'expected text under "name", the object has the keys'),
        ({"output": 3}, r'expected text under "output"'),
        ({"extra": 3}, r'expected an object under "extra", got 3'),
    ],
)
def test_a_field_that_is_not_as_expected_is_named(tmp_path, change, message):
    with pytest.raises(RequestError, match=message):
        read_cases(write(tmp_path / "r", {**RECORD, **change}))


def test_a_tool_listed_twice_is_one_and_two_of_a_name_are_refused(tmp_path):
    twice = {**RECORD, "tools": [FUNCTION, FUNCTION]}
    assert read_cases(write(tmp_path / "r", twice))[0].tools == (TOOL,)
    other = {**RECORD, "tools": [FUNCTION, {**FUNCTION, "description": "Another."}]}
    assert "two tools are named 'f'" in refused(write(tmp_path / "r", other))


def test_every_layout_is_named_once():
    assert len(set(LAYOUTS)) == len(LAYOUTS) == len(layouts.LAYOUTS)
    assert set(LAYOUTS) == {"uniform", "openai", "bfcl", "toolalpaca", "api_bank", "toolbench"}


def test_reading_needs_neither_torch_nor_transformers():
    code = (
        "import sys, specdec.compare.cases; assert not {'torch', 'transformers'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[1])


# Real files, where they are.


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("api_bank", 597),
        ("api_bank_60", 60),
        ("bfcl", 2501),
        ("bfcl_multi_turn", 875),
        ("toolalpaca", 214),
        ("toolbench", 507),
    ],
)
def test_the_shared_data_is_read_whole(name, count):
    cases = read_cases(shared(f"{name}.jsonl"))
    assert len(cases) == len({case.id for case in cases}) == count
    assert all(case.calls and case.tools and case.benchmark for case in cases)


def test_the_package_gives_what_the_shared_data_holds():
    files = package()
    known = {case.id: case for case in read_cases(shared("bfcl.jsonl"))}
    checked = 0
    for path in files.values():
        for case in read_cases(path):
            other = known.get(f"bfcl-{case.id}")
            if other is not None:
                checked += 1
                assert case == attrs.evolve(other, id=case.id)
    assert checked == len(known)


def test_the_package_is_read_as_a_folder():
    files = package()
    with pytest.warns(UserWarning, match=r"no single-turn questions: .*multi_turn_base\.json"):
        cases = read_cases(next(iter(files.values())).parent)
    assert len(cases) == sum(len(read_cases(path)) for path in files.values())


def test_api_bank_prompts_give_the_tools_of_the_shared_data(tmp_path):
    known = read_cases(shared("api_bank.jsonl"))
    prompts = [
        {
            "system": case.messages[0]["content"],
            "user": case.messages[1]["content"],
            "answer": [{"name": c.name, "parameters": dict(c.arguments)} for c in case.calls],
            "other": case.extra["other"],
        }
        for case in known
    ]
    path = tmp_path / "level-1-api_processed.json"
    path.write_text(json.dumps(prompts))
    cases = read_cases(path)
    assert [case.calls for case in cases] == [case.calls for case in known]
    assert [case.messages for case in cases] == [case.messages for case in known]
    assert [case.tools for case in cases] == [case.tools for case in known]
    assert {case.split for case in cases} == {"level-1"}


def test_a_missing_package_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RequestError, match=r"are not installed; run: pip install .*bfcl-eval"):
        bfcl_files()


def test_no_warning_without_a_reason(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_cases(write(tmp_path / "r.jsonl", RECORD).parent)
