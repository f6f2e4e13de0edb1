"""The documentation is held to the code."""

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest
import transformers

import specdec
from specdec import hookspecs

ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [*DOCS, *ROOT.glob("*.md"), *(ROOT / "plugins").glob("*/README.md")]
HOOKS = [name for name in dir(hookspecs) if name.startswith(("register_", "on_"))]


def test_the_page_of_public_names_is_what_make_docs_writes():
    spec = importlib.util.spec_from_file_location("interfaces", ROOT / "docs/interfaces.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (ROOT / "docs/interfaces.md").read_text() == module.page()


def test_every_public_name_exists_and_is_documented():
    for name in specdec.__all__:
        thing = getattr(specdec, name)
        if callable(thing) and name not in ("hookimpl", "Decide", "State"):
            assert thing.__doc__, name


def test_there_are_eight_hooks_and_each_is_documented():
    text = (ROOT / "docs/hooks.md").read_text()
    assert len(HOOKS) == 8
    for hook in HOOKS:
        arguments = ", ".join(hookspecs.__dict__[hook].__code__.co_varnames)
        assert f"`{hook}({arguments})`" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_plugin_in_the_guide_is_the_template():
    """What an author reads is what the template holds, and it passes the kit."""
    guide = (ROOT / "docs/write-a-plugin.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", guide, re.S)
    namespace = {}
    exec(blocks[0], namespace)
    from specdec.testing import run_checks

    rows = run_checks(namespace["RepeatLast"])
    assert [row.check for row in rows if not row.ok] == []
    registry = specdec.Registry(None)
    registry.register(type("guide", (), {"register_drafters": namespace["register_drafters"]}), "g")
    assert specdec.parse("repeat", registry)


def test_the_project_file_in_the_guide_is_that_of_the_template():
    guide = (ROOT / "docs/write-a-plugin.md").read_text()
    shown = tomllib.loads(re.search(r"```toml\n(.*?)```", guide, re.S)[1])
    template = tomllib.loads((ROOT / "contrib/template/pyproject.toml").read_text())
    for table in ("build-system", "tool"):
        assert shown[table] == template[table]
    for key, value in shown["project"].items():
        assert template["project"][key] == value


def test_every_test_that_is_named_exists():
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", (ROOT / "docs/elsewhere.md").read_text())
    assert len(named) > 25
    for file, test in named:
        path = ROOT / (file if "/" in file else f"tests/{file}")
        assert f"def {test}(" in path.read_text(), (file, test)


def test_expressions_in_the_documentation_can_be_read():
    from specdec.expression import read

    found = 0
    for page in PAGES:
        for expression in re.findall(r'parse\("([^"]+)"\)', page.read_text()):
            read(expression)
            found += 1
    assert found >= 4


def test_the_error_shown_in_the_guide_is_the_real_one():
    pytest.importorskip("specdec_pld")
    shown = re.search(
        r"```text\n(drafter 'pld'.*?)```", (ROOT / "docs/compose.md").read_text(), re.S
    )
    with pytest.raises(specdec.ExpressionError) as caught:
        specdec.parse("pld(ngrams=3)")
    assert str(caught.value).strip() == shown[1].strip()


def test_the_readme_runs(tiny_folder, capsys):
    """The README's Python, on a tiny model in place of the path."""
    pytest.importorskip("specdec_pld")
    pytest.importorskip("specdec_token_recycling")
    pytest.importorskip("specdec_toolspec")
    text = (ROOT / "README.md").read_text()
    load, inside = re.findall(r"```python\n(.*?)```", text, re.S)
    exec(load.replace("path/to/model", str(tiny_folder)), {})  # our own documentation
    assert "tokens per forward pass" in capsys.readouterr().out
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny_folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_folder)
    inputs = tokenizer(["Hello!"], return_tensors="pt")
    known = {"model": model, "tokenizer": tokenizer, "tools": [], "inputs": inputs}
    model.generation_config.pad_token_id = 0
    exec(inside, known)
    assert known["speculation"].results


def test_the_project_names_no_machine_and_no_tool_of_its_making():
    words = ("/wo" + "rk/", "/ro" + "ot/", "/tm" + "p/", "pypi" + ".org", "registry." + "npmjs")
    for page in PAGES:
        for word in words:
            assert word not in page.read_text(), (page, word)
