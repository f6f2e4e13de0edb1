"""The table of the benchmarks says what was measured and fits where it is shown."""

import json

from bench import report

PLAIN = {"plain": True, "mat": 1.0, "steps": 50, "identical": "2/2"}


def entry(name, median, group="generate: demo", **info):
    stats = {"median": median, "iqr": median / 10, "rounds": 3}
    return {"name": f"test_{name}", "group": group, "stats": stats, "extra_info": info}


def results(*entries):
    machine = {"python_version": "3.11.7", "torch": "2.13.0", "threads": 1, "dtype": "float32"}
    return {"machine_info": machine, "benchmarks": list(entries)}


GENERATED = results(
    entry("a[1]", 4.0, row="generate()", decode_seconds=3.0, **PLAIN),
    entry("a[2]", 5.0, row="none", decode_seconds=2.0, **PLAIN),
    entry(
        "a[3]",
        2.0,
        row="merge(retrieval(from_start=true), schema, token-recycling)",
        decode_seconds=0.5,
        mat=4.25,
        steps=8,
        nodes_per_step=63.5,
        acceptance=0.125,
        identical="2/2",
        by_source={"schema": {"proposed": 64, "accepted": 8}},
    ),
    entry("a[4]", 2.0, row="schema", decode_seconds=1e-5, mat=None, steps=0),
    entry("propose[b]", 2.5e-5, "propose", p99_seconds=0.0123, start_seconds=1.5e-3),
    entry("build", 6.4e-5, "tree", size=64, unit="node"),
)


def test_speed_ups_are_over_the_faster_row_without_drafts():
    generate, none, merge, _, propose, build = report.rows(GENERATED)
    assert (generate.speedup, none.speedup, merge.speedup) == (1.0, 0.8, 2.0)
    assert (generate.decode_speedup, none.decode_speedup, merge.decode_speedup) == (2 / 3, 1.0, 4.0)
    assert propose.speedup is build.speedup is None


def test_no_speed_up_of_decoding_is_given_where_the_prompts_passes_wrote_everything():
    assert report.rows(GENERATED)[3].decode_speedup is None


def test_the_table_fits_into_130_columns_and_holds_every_group_and_figure(monkeypatch):
    monkeypatch.setenv("COLUMNS", "130")
    shown = report.text(GENERATED)
    assert max(map(len, shown.splitlines())) <= 130
    assert "Python 3.11.7, torch 2.13.0, threads 1, model in float32" in shown
    for text in ("generate: demo", "propose", "tree", "4.25", "63.5", "12 %", "2.00x", "4.00x"):
        assert text in shown
    for text in ("p99 12.3 ms, start 1.5 ms", "1 us/node", "2/2 identical", "propose: b"):
        assert text in shown


def test_markdown_has_a_table_for_each_group_of_the_columns_it_fills():
    page = report.markdown(GENERATED)
    assert "| benchmark | median | iqr | rounds | more |\n| --- | ---: |" in page
    assert "schema 8/64" in page
    assert page.count("\n## ") == 3


def test_times_are_shown_in_the_unit_that_suits_them():
    shown = [report.seconds(value) for value in (3e-9, 4.2e-5, 0.0123, 9.87, 1234.0)]
    assert shown == ["3 ns", "42 us", "12.3 ms", "9.87 s", "1234 s"]


def test_saved_figures_are_read_back(tmp_path, capsys):
    file = tmp_path / "saved.json"
    file.write_text(json.dumps(GENERATED))
    report.main(file)
    assert "generate: demo" in capsys.readouterr().out
