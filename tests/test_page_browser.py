"""The page of a run in a browser: it opens without a word, draws, zooms, finds, and says what result.json says."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import trainsim as ts
from trainsim.units import format_time

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (pip install playwright)")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed (apt-get install chromium)"),
]
OPTIONS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
NASTY = """</script><img src=x onerror="document.title='broken'">'"&"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=BROWSER, headless=True, args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def run() -> ts.Result:
    return ts.Scenario.load("quickstart").replace({"name": NASTY, "training.global_batch": 32}).run()


@pytest.fixture(scope="module")
def report(run: ts.Result, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run.to_html(tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture
def opened(browser: Any, report: Path) -> Iterator[Callable[..., Any]]:
    """Opens the page; whatever it complains of or asks the network for fails the test."""
    complaints: list[str] = []
    contexts = []

    def open_page(path: Path = report, **options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.add_init_script(SEEN)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: request.url == path.as_uri() or complaints.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_timeout(200)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert [one for one in complaints if not one.startswith("data:")] == []


TIMELINE = "[data-view=timeline]"


def window(page: Any) -> tuple[float, float]:
    page.wait_for_timeout(350)
    shown = page.locator(TIMELINE).evaluate("root => [root.dataset.from, root.dataset.until]")
    return float(shown[0]), float(shown[1])


def colours(page: Any, selector: str = f"{TIMELINE} canvas[tabindex]") -> int:
    """How many colours a canvas has."""
    return int(
        page.locator(selector).evaluate(
            """canvas => {
                const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
                return new Set(new Uint32Array(data.buffer)).size;
            }"""
        )
    )


def pointed(page: Any, x: float, y: float) -> tuple[float, float]:
    """A place in the timeline, as parts of its width and in pixels from its top."""
    canvas = page.locator(f"{TIMELINE} canvas[tabindex]")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    return box["x"] + x * box["width"], box["y"] + y


def test_every_part_is_shown_and_the_name_is_only_text(opened: Callable[..., Any], run: ts.Result) -> None:
    page = opened()
    assert page.title() == NASTY.strip()
    assert page.locator("h1").text_content() == NASTY
    assert page.locator(".live").count() == page.locator(".live.shown").count() == 5
    for view in ("timeline", "areas", "matrix"):
        canvases = page.locator(f"[data-view={view}] canvas")
        assert canvases.count() >= 1
        assert min(colours(page, f"[data-view={view}] canvas >> nth={k}") for k in range(canvases.count())) > 3
    assert not page.locator(".still img").is_visible()


def test_numbers_are_those_of_the_result(opened: Callable[..., Any], run: ts.Result) -> None:
    page, data = opened(), run.to_dict()
    tiles = dict(zip(*[page.locator(f".tile {part}").all_text_contents() for part in ("span", "b")], strict=True))
    assert tiles["step time"] == format_time(data["step_time_s"])
    assert tiles["MFU"] == f"{data['mfu']:.1%}"
    assert tiles["bubble"] == f"{data['bubble']['fraction']:.1%}"
    assert tiles["memory"] == f"{data['memory']['peak_bytes'] / 2**30:.1f} GiB"
    assert window(page)[1] == pytest.approx(data["step_time_s"] * 1e9, abs=2)
    count = page.locator(TIMELINE).evaluate(
        "root => JSON.parse(root.querySelector('script').textContent).chains.reduce((n, c) => n + c.run.size, 0)"
    )
    rows = [len(run.trace.rows(run.trace.number[int(run.trace.rank_class[r]), c]).run) for r in run.pipeline
            for c in run.trace.chain_names(r)]  # fmt: skip
    assert count == sum(rows)


def test_keys_buttons_wheel_and_dragging_move_the_window(opened: Callable[..., Any]) -> None:
    page = opened()
    whole = window(page)
    page.mouse.wheel(0, -400)
    assert window(page) == whole  # the page scrolls until somebody clicks
    page.mouse.click(*pointed(page, 0.5, 3))
    page.mouse.move(*pointed(page, 0.5, 40))
    page.mouse.wheel(0, -400)
    zoomed = window(page)
    assert 0 < zoomed[0] < zoomed[1] < whole[1]
    page.keyboard.press("w")
    closer = window(page)
    assert closer[1] - closer[0] < zoomed[1] - zoomed[0]
    page.keyboard.press("d")
    later = window(page)
    assert later[0] > closer[0]
    assert later[1] - later[0] == pytest.approx(closer[1] - closer[0], rel=1e-6)
    page.mouse.move(*pointed(page, 0.5, 40))
    page.mouse.down()
    page.mouse.move(*pointed(page, 0.7, 40), steps=4)
    page.mouse.up()
    assert window(page)[0] < later[0]
    page.keyboard.press("0")
    assert window(page) == whole
    page.get_by_role("button", name="Zoom in (w)").click()
    half = window(page)
    assert half[1] - half[0] == pytest.approx(whole[1] / 2, rel=1e-6)
    page.locator("canvas.map").click(position={"x": 800, "y": 8})
    assert window(page)[0] > half[0]


def test_a_search_finds_what_is_in_the_trace_and_jumps(opened: Callable[..., Any], run: ts.Result) -> None:
    page = opened()
    search = page.get_by_role("searchbox")
    trace = run.trace
    spans = [(trace.labels[k], m) for r in run.pipeline for c in trace.chain_names(r)
             for k, m in zip(*[column.tolist() for column in trace.spans(r, c)[:2]], strict=True)]  # fmt: skip
    for text, wanted in (
        ("microbatch 3", sum(m == 3 for _, m in spans)),
        ("layer 5", sum(label.layer == 5 for label, _ in spans)),
        ("all_reduce mb 2", sum(m == 2 and "all_reduce" in f"{label.name} {label.payloads}" for label, m in spans)),
        ("no such thing", 0),
    ):
        search.fill(text)
        page.wait_for_timeout(300)
        said = page.locator("output").text_content()
        assert said == (f"{wanted:,} found" if wanted else "nothing found")
    search.fill("microbatch 3")
    search.press("Enter")
    first = page.locator(".details").text_content()
    assert "microbatch 3" in first
    search.press("Enter")
    assert page.locator(".details").text_content() != first
    inside = window(page)
    assert inside[1] - inside[0] < run.duration * 1e9


def test_the_pointer_is_told_what_is_there(opened: Callable[..., Any], run: ts.Result) -> None:
    page = opened()
    page.mouse.move(*pointed(page, 0.5, 36))
    page.wait_for_timeout(100)
    said = page.locator(f"{TIMELINE} .tip").text_content()
    assert f"rank {run.pipeline[0]}" in said
    assert any(label.name in said for label in run.trace.labels)
    page.mouse.click(*pointed(page, 0.5, 36))
    assert page.locator(".details b").text_content() in {label.name for label in run.trace.labels}
    for view in ("areas", "matrix"):
        canvas = page.locator(f"[data-view={view}] canvas").first
        canvas.scroll_into_view_if_needed()
        canvas.hover(position={"x": 120, "y": 80})
        assert page.locator(f"[data-view={view}] .tip").first.is_visible()


def test_kinds_and_the_critical_path_change_the_picture(opened: Callable[..., Any]) -> None:
    page = opened()
    before = page.locator(f"{TIMELINE} canvas[tabindex]").screenshot()
    page.get_by_role("button", name="Draw the critical path").click()
    page.wait_for_timeout(200)
    along = page.locator(f"{TIMELINE} canvas[tabindex]").screenshot()
    assert along != before
    page.get_by_role("button", name="Show forward").click()
    page.wait_for_timeout(200)
    assert page.locator(f"{TIMELINE} canvas[tabindex]").screenshot() != along


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_follow_the_system_until_somebody_chooses(opened: Callable[..., Any], scheme: str) -> None:
    page = opened(color_scheme=scheme)

    def paper() -> str:
        return str(
            page.evaluate("getComputedStyle(document.querySelector('main')).getPropertyValue('--paper')")
        ).strip()

    first = paper()
    assert (first == "#fff") == (scheme == "light")
    page.get_by_role("button", name="Light or dark").click()
    assert (paper() == "#fff") != (first == "#fff")


def test_without_scripts_the_pictures_and_all_tables_are_there(opened: Callable[..., Any]) -> None:
    page = opened(java_script_enabled=False)
    assert page.locator("img[alt='Gantt chart']").is_visible()
    assert page.locator(".level").first.is_visible()
    assert page.get_by_text("micro_batch").first.is_visible()


def test_on_paper_the_picture_stands_for_the_timeline(opened: Callable[..., Any]) -> None:
    page = opened()
    page.emulate_media(media="print")
    assert page.locator("img[alt='Gantt chart']").is_visible()
    assert not page.locator(TIMELINE).is_visible()
    paper = page.pdf()
    assert paper.startswith(b"%PDF")
    assert len(paper) > 50_000


def test_a_narrow_screen_needs_no_scrolling_sideways(opened: Callable[..., Any]) -> None:
    page = opened(viewport={"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert colours(page) > 10


SEEN = """const assign = Object.assign;
Object.assign = (target, ...given) => {
    if (given[0] && given[0].drawSpans) window.timelinePrototype = target;
    return assign(target, ...given);
};"""
"""Lets a test see how the timeline draws: scripts of the page name nothing outside themselves."""
READS = """async () => {
    const counting = (column, count) => new Proxy(column, {
        get(column, key) {
            if (key >= "0" && key < "a") count.reads++;
            return column[key];
        } });
    const draw = timelinePrototype.draw;
    const count = { reads: 0, spans: 0, draws: 0 };
    timelinePrototype.draw = function (...given) {
        const whole = this.lanes.map((lane) => [lane, lane.start, lane.end]);
        for (const [lane, start, end] of whole) {
            lane.start = counting(start, count);
            lane.end = counting(end, count);
        }
        draw.apply(this, given);
        for (const [lane, start, end] of whole) Object.assign(lane, { start, end });
        count.spans = whole.reduce((sum, [lane]) => sum + lane.count, 0);
        count.draws++;
    };
    document.querySelector("[aria-label='Light or dark']").click();
    await new Promise((done) => setTimeout(done, 500));
    return [count.reads / count.draws, count.spans];
}"""
"""Changes the colours and gives how often a redraw of the whole step reads a start or an end of a span, and how many
spans there are."""


def test_a_redraw_reads_as_much_of_many_spans_as_of_few(opened: Callable[..., Any], tmp_path: Path) -> None:
    base = ts.Scenario.load("quickstart")
    read, spans = [], []
    for batch in (64, 1024):
        run = base.replace({"training.global_batch": batch}).run()
        page = opened(run.to_html(tmp_path / f"{batch}.html"))
        of_redraw, of_page = page.evaluate(READS)
        read.append(of_redraw)
        spans.append(of_page)
    assert spans[1] > 10 * spans[0] > 0
    assert 0 < read[1] < 2 * read[0]
