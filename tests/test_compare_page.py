"""The page of a comparison: complete in itself, honest about what is missing, seen in a browser."""

import functools
import io
import re
import shutil
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser

import attrs
import pytest

from specdec.errors import RequestError, SpecdecError
from specdec.request import Phases, Result, SourceCount

pytest.importorskip("cattrs", reason="pip install 'specdec-core[compare]'")
pytest.importorskip("jinja2", reason="pip install 'specdec-core[compare]'")
pytest.importorskip("matplotlib", reason="pip install 'specdec-core[compare]'")
pytest.importorskip("scipy", reason="intervals need scipy")

from specdec.compare.arm import GENERATE, PLAIN, Arm
from specdec.compare.canvas import labels, shortened, wrapped
from specdec.compare.departure import Departure, Gap
from specdec.compare.failure import Failure
from specdec.compare.figures import PICTURES
from specdec.compare.interval import Interval
from specdec.compare.outcome import Outcome
from specdec.compare.page import ROOM, check_installed, page, plain, within, write_page
from specdec.compare.palette import HUES, MOST_SOURCES, OTHERS, TARGET, arm_looks, source_looks
from specdec.compare.report import report_of
from specdec.compare.table import number
from specdec.compare.verdict import verdict

LONG = "merge(retrieval(from_start=true), schema, token-recycling)"
STACKS = (("pld", "16"), ("toolspec", "measured"), (LONG, "measured"))
SETTINGS = {
    "model": "tiny",
    "threads": 1,
    "warm": False,
    "budgets": ["16", "measured"],
    "versions": {"torch": "2.9.0", "deep": {"er": None}},
}
BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


def result_of(request, case, place, timed=True):
    """An output of 24 tokens, drafted the better the greater the place of the arm."""
    size = 24
    accepted = []
    while (left := size - sum(accepted) - len(accepted)) > 0:
        accepted.append(min(place + (case + len(accepted)) % 3, left - 1) if place else 0)
    nodes = tuple(4 + n for n in accepted) if place else (0,) * len(accepted)
    sources = {f"source-{place}": SourceCount(sum(nodes), sum(accepted))} if place else {}
    steps = len(accepted) - 1
    return Result(
        request,
        tuple(range(case, case + size)),
        "stop_id",
        len(accepted),
        accepted[0] + 1,
        tuple(accepted),
        nodes,
        sources,
        Phases(forward=0.1, draft=0.001 * place) if timed else Phases(),
        Phases(forward=0.02 * steps, draft=0.001 * steps, verify=0.001) if timed else Phases(),
    )


def report(requests=6, stacks=STACKS, *, timed=True, replay=False, settings=SETTINGS, change=None):
    """A report on made-up outcomes; `change` may turn each into another."""
    plain_names = (PLAIN,) if replay else (GENERATE, PLAIN)
    arms = [Arm(name, "", None) for name in plain_names]
    arms += [Arm(name, budget, None) for name, budget in stacks]
    outcomes = []
    for case in range(requests):
        for place, arm in enumerate(arms, start=1 - len(plain_names)):
            made = result_of(f"r{case}", case, max(place, 0), timed)
            outcomes.append(Outcome(arm.key, case, f"r{case}", 9, made))
    if change is not None:
        outcomes = [change(outcome) for outcome in outcomes]
    return report_of(arms, outcomes, settings, replay=replay, timed=timed)


@functools.cache
def usual():
    return report()


VOID = {"meta", "link", "br", "wbr", "hr", "img", "input"}


class Reader(HTMLParser):
    """Tags, ids, addresses and texts by the tag around them; fails on tags that do not nest."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.ids, self.addresses = Counter(), [], []
        self.texts = {}
        self._open, self._parts = [], []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag, attrs):
        self.tags[tag] += 1
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("src", "href", "xlink:href", "action", "data", "poster", "srcset"):
                self.addresses.append(value)
            assert not name.startswith("on"), f"<{tag}> has a script in {name}"
        if tag not in VOID:
            self._open.append(tag)
            self.texts.setdefault(tag, []).append("")
            self._parts.append((tag, len(self.texts[tag]) - 1))

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag
        self._parts.pop()

    def handle_data(self, data):
        for tag, place in self._parts:
            self.texts[tag][place] += data


@pytest.fixture
def no_figures(monkeypatch):
    """Pages without figures, where a test is about the rest."""
    monkeypatch.setattr("specdec.compare.page.PICTURES", ())


@pytest.fixture(scope="module")
def whole():
    return page(usual())


def test_nothing_outside_the_page_is_needed(whole):
    read = Reader(whole)
    assert all(address.startswith("#") for address in read.addresses)
    assert not re.search(r"url\((?!#)|@import|<script|<link|<iframe|<object", whole)
    targets = [address[1:] for address in read.addresses] + re.findall(r"url\(#([^)]*)\)", whole)
    assert targets
    assert set(targets) <= set(read.ids)


def test_an_id_is_given_once(whole):
    ids = Reader(whole).ids
    assert sorted(set(ids)) == sorted(ids)


def test_every_figure_has_its_caption_and_text_that_stays_text(whole):
    read = Reader(whole)
    assert read.tags["figure"] == read.tags["figcaption"] == read.tags["svg"] == len(PICTURES)
    for picture, figure in zip(PICTURES, read.texts["figure"], strict=True):
        assert picture.title in figure
        assert picture.caption in figure
        assert "pld @ 16" in figure


def test_the_page_reads_in_order(whole):
    order = ["</header>", 'id="results"', 'id="figures"', 'id="failures"', 'id="departures"']
    order += ['id="settings"', 'id="counted"']
    places = [whole.index(mark) for mark in order]
    assert places == sorted(places)


def test_the_table_has_every_arm_and_every_column(whole):
    read = Reader(whole)
    heads = [text for text in read.texts["th"][:15] if text]
    assert heads == [
        *("drafter", "budget", "requests", "failed", "tokens", "steps", "MAT", "nodes / step"),
        *("accepted", "tokens / s", "speed-up", "median", "decode-only", "decode-only median"),
        "identical",
    ]
    assert read.texts["th"][15:20] == [GENERATE, PLAIN, *(name for name, _ in STACKS)]
    assert whole.count("6/6") >= 5


def test_the_same_report_makes_the_same_page(whole):
    assert page(report()) == whole


def test_settings_are_printed_whole(whole):
    read = Reader(whole)
    words = " ".join(read.texts["dl"][0].split())
    for said in ("model tiny", "threads 1", "warm no", "budgets 16, measured", "torch 2.9.0"):
        assert said in words
    assert read.tags["dl"] == 3, "a mapping in a mapping is a list in a list"


def test_markup_in_names_and_errors_is_text():
    evil = "<script>alert('1')</script>&amp; $x_1$ _工具\x1b\ud800"

    def change(outcome):
        if outcome.arm.startswith(evil) and outcome.case == 1:
            return attrs.evolve(outcome, result=None, error=evil)
        return outcome

    text = page(report(stacks=[(evil, "8"), ("pld", "16")], settings={evil: evil}, change=change))
    read = Reader(text)
    assert read.tags["script"] == 0
    assert any(evil in cell for cell in read.texts["td"])
    assert any("<script>" in label and "$x_1$" in label for label in read.texts["text"])


def test_failures_and_departures_are_listed(no_figures):
    def change(outcome):
        if outcome.arm == "pld @ 16" and outcome.case == 2:
            return attrs.evolve(outcome, result=None, error="DrafterError: lost")
        if outcome.arm == "toolspec @ measured" and outcome.case == 4:
            return attrs.evolve(outcome, result=attrs.evolve(outcome.result, tokens=(4, 5, 0)))
        return outcome

    made = report(change=change)
    cells = Reader(page(made)).texts["td"]
    at = cells.index("DrafterError: lost")
    assert (cells[at - 1], cells[at + 1].strip()) == ("r2", "pld @ 16")
    at = cells.index("r4")
    assert [cell.strip() for cell in cells[at : at + 6]] == [
        *("r4", "toolspec @ measured", "2", "-", "-", "not known")
    ]
    assert "1 of 29 outputs differs from the model's own" in verdict(made).sentence
    assert "1 answer is missing" in verdict(made).sentence
    tie = Departure("r4", ("toolspec @ measured",), 2, Gap(0.001, 0.002))
    near = attrs.evolve(made, departures=(tie,))
    assert "near-tie that rounding alone explains" in verdict(near).sentence
    assert "0.0010" in page(near)


def test_findings_are_shown_where_there_are_any(whole, no_figures):
    assert 'id="findings"' not in whole
    text = page(attrs.evolve(usual(), findings=("pld is <slow>",)))
    assert 'id="findings"' in text
    assert "pld is &lt;slow&gt;" in text


def test_a_replay_says_so_and_has_no_figures_of_time():
    text = page(report(timed=False, replay=True))
    read = Reader(text)
    untimed = [picture for picture in PICTURES if not picture.timed]
    assert read.tags["svg"] == len(untimed)
    assert all("Figures of a replay" in caption for caption in read.texts["figcaption"])
    assert "replay" in read.texts["title"][0]
    assert "Figures of a replay" in read.texts["caption"][0]
    assert "no pass of a model was made" in text
    assert "speed-up" not in " ".join(read.texts["th"])


@pytest.mark.parametrize(
    "made",
    [
        report(0),
        report(1),
        report(3, ()),
        report(2, timed=False),
        report(change=lambda outcome: attrs.evolve(outcome, result=None, error="no")),
    ],
    ids=["no request", "one request", "nothing drafted", "no times", "all failed"],
)
def test_what_is_missing_breaks_nothing(made):
    read = Reader(page(made))
    assert read.tags["figcaption"] == read.tags["figure"]
    assert "nan" not in " ".join(read.texts["td"])


def test_figures_without_a_value_are_dashes():
    nan, inf = float("nan"), float("inf")
    made = usual()
    odd = Interval(nan, nan, nan)
    endless = Interval(inf, 0.0, inf)
    rows = [
        attrs.evolve(row, mat=odd, speedup=endless, decode_speedup=odd, median_speedup=None)
        for row in made.rows[:3]
    ]
    wide = Interval(2.0, 0.0, inf)
    rows += [attrs.evolve(made.rows[3], speedup=wide, decode_speedup=None)]
    read = Reader(page(attrs.evolve(made, rows=tuple(rows))))
    assert not re.search(r"\b(nan|inf)", " ".join(read.texts["td"] + read.texts["text"]))
    assert number(nan) == number(inf) == number(None) == "-"


def test_the_verdict_names_the_best_and_what_is_not_settled():
    made = usual()
    base = made.rows[2]
    slow = attrs.evolve(base, decode_speedup=Interval(2, 1.8, 2.2), speedup=Interval(1.9, 1, 2))
    fast = attrs.evolve(
        base, name="hot", decode_speedup=Interval(3, 2.9, 3.1), speedup=Interval(1.5, 1, 2)
    )
    found = verdict(attrs.evolve(made, rows=(slow, fast)))
    assert found.best is fast
    assert found.sentence.startswith(
        "hot @ 16 is the fastest of 2 arms with a speed-up of 3.00x [2.90, 3.10] decode-only"
    )
    assert "pld @ 16 is ahead with 1.90x" in found.sentence
    assert not found.notes
    near = attrs.evolve(fast, name="warm", decode_speedup=Interval(2.9, 2.8, 3.0))
    (note,) = verdict(attrs.evolve(made, rows=(slow, fast, near))).notes
    assert "not settled" in note
    lame = attrs.evolve(base, decode_speedup=Interval(0.9, 0.8, 0.95))
    assert "No drafter is faster" in verdict(attrs.evolve(made, rows=(lame,))).sentence


def test_a_thousand_requests_stay_small():
    made = report(10)
    runs = [attrs.evolve(row.run, results=row.run.results * 200) for row in made.rows]
    long = [
        attrs.evolve(row, run=run, cases=tuple(range(2000)))
        for row, run in zip(made.rows, runs, strict=True)
    ]
    many = tuple(Failure(f"r{n}", ("pld @ 16",), "x" * 500) for n in range(5000))
    text = page(attrs.evolve(made, rows=tuple(long), failures=many))
    assert len(text.encode()) < 1_500_000
    assert "more are in the report's JSON" in text
    assert within(["a" * (ROOM + 1), "b"], len) == (["a" * (ROOM + 1)], 1)


def test_an_arm_keeps_its_look_and_no_two_look_the_same():
    made = report(1, [(f"a{n}", "8") for n in range(12)])
    looks = arm_looks(made.rows)
    assert len(set(looks.values())) == len(made.rows)
    assert [look.colour for look in looks.values()][2:8] == [*HUES]


def test_the_budgets_of_a_stack_share_its_colour():
    made = report(1, [(name, budget) for name in ("a", "b") for budget in ("64", "measured")])
    looks = arm_looks(made.rows)
    assert looks["a @ 64"].colour == looks["a @ measured"].colour == HUES[0]
    assert looks["b @ 64"].colour == looks["b @ measured"].colour == HUES[1]
    assert looks["a @ measured"].dash != looks["a @ 64"].dash
    assert len(set(looks.values())) == len(made.rows)


def test_more_sources_than_colours_share_one():
    made = report(1)
    counts = {f"s{n}": SourceCount(2, 1) for n in range(MOST_SOURCES + 3)}
    row = made.rows[-1]
    results = (attrs.evolve(row.run.results[0], by_source=counts),)
    odd = attrs.evolve(row, run=attrs.evolve(row.run, results=results))
    looks = source_looks([odd])
    assert next(iter(looks)) == TARGET
    assert [*looks][-1] == OTHERS
    assert len(looks) == MOST_SOURCES + 2
    assert len(set(looks.values())) == len(looks)
    assert OTHERS in page(attrs.evolve(made, rows=(*made.rows, odd)))


def test_labels_are_short_and_differ():
    made = labels([LONG + " @ 8", LONG.replace("schema", "schemb") + " @ 8"], 30)
    assert len(set(made)) == 2
    assert all(label.startswith("merge(") and "@ 8" in label for label in made)
    assert len(shortened("x" * 99, 30)) == 30
    assert shortened("a\nb\x00", 9) == "a�b�"
    lines = wrapped(LONG * 3, 20, 2).split("\n")
    assert len(lines) <= 2
    assert max(map(len, lines)) <= 20


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_figures_can_be_saved_elsewhere(picture):
    figure = picture.draw(report(2).rows)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=40)
    assert file.getvalue().startswith(b"\x89PNG")


def test_matplotlib_is_left_as_it_was(whole):
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    page(report(1))
    assert dict(mpl.rcParams) == before


def test_importing_the_page_loads_no_matplotlib():
    code = "import sys, specdec.compare.page; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_settings_in_words():
    assert plain({"a": 1, "b": [True, None]}) == "a: 1, b: yes, -"
    assert plain([]) == plain({}) == plain("") == "-"
    assert plain(0.00001) == "1e-05"
    assert "more" in plain(["case"] * 10_000)


def test_a_page_is_written_whole_or_not_at_all(tmp_path, monkeypatch, no_figures):
    path = tmp_path / "deep" / "page.html"
    write_page(report(1, settings={"model": "half \ud800"}), path)
    before = path.read_bytes()
    assert before.startswith(b"<!DOCTYPE html>")
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(SpecdecError, match=r"pip install 'specdec-core\[compare\]'"):
        write_page(report(1), path)
    assert path.read_bytes() == before
    assert [*path.parent.iterdir()] == [path]
    with pytest.raises(SpecdecError, match="pip install"):
        check_installed()


def test_a_page_that_cannot_be_written_says_why(tmp_path, no_figures):
    (tmp_path / "file").write_text("")
    with pytest.raises(RequestError, match="cannot be written"):
        write_page(report(1), tmp_path / "file" / "page.html")


def browse(path, profile, *options):
    return subprocess.run(
        [
            *(BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
            *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
            *("--disable-dev-shm-usage", f"--user-data-dir={profile}", "--hide-scrollbars"),
            *options,
            path.as_uri(),
        ],
        capture_output=True,
        timeout=60,
        check=True,
    ).stdout.decode()


@pytest.mark.skipif(BROWSER is None, reason="no Chromium or Chrome on the PATH")
def test_a_browser_lays_out_every_figure(tmp_path):
    """A copy of the page measures itself with a script, as the page itself has none."""
    from matplotlib.image import imread

    path, copy = tmp_path / "page.html", tmp_path / "copy.html"
    write_page(usual(), path)
    script = """<script>
    const boxes = [...document.querySelectorAll("svg")].map(one => one.getBoundingClientRect());
    const wide = document.documentElement.scrollWidth > innerWidth;
    const cut = [...document.querySelectorAll("svg text")].filter(one => {
      const a = one.getBoundingClientRect(), b = one.closest("svg").getBoundingClientRect();
      return a.left < b.left - 2 || a.right > b.right + 2 || a.top < b.top - 2
        || a.bottom > b.bottom + 2;
    }).length;
    const shown = boxes.map(b => `${Math.round(b.width)}x${Math.round(b.height)}`).join(" ");
    document.body.dataset.found = `${shown}|${wide}|${cut}`;
    </script></body>"""
    copy.write_text(path.read_text(encoding="utf-8").replace("</body>", script), encoding="utf-8")
    for width in (1200, 500):
        dom = browse(copy, tmp_path / "a", "--dump-dom", f"--window-size={width},900")
        boxes, wide, cut = re.search(r'data-found="([^"]*)"', dom).group(1).split("|")
        sizes = [tuple(map(int, box.split("x"))) for box in boxes.split()]
        assert len(sizes) == len(PICTURES)
        assert all(w >= 500 and h >= 100 for w, h in sizes), sizes
        assert wide == "false", "the page itself must not scroll sideways"
        assert cut == "0", "text runs out of its figure"
    shot = tmp_path / "shot.png"
    browse(path, tmp_path / "a", f"--screenshot={shot}", "--window-size=1200,2400")
    pixels = imread(shot)
    assert len({tuple(pixel) for pixel in pixels[::7, ::7, :3].reshape(-1, 3).round(2)}) > 20
