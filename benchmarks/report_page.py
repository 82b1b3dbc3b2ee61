"""How long the timeline of report.html takes to redraw while it is dragged: ``python -m benchmarks.report_page``.

In headless Chromium, which draws without a GPU; milliseconds of a redraw, the median and the slowest of forty, at the
whole step of BLOOM (603,000 spans) zoomed in further and further. Needs ``pip install '.[test]'`` and Chromium.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from statistics import median

from playwright.sync_api import Page, sync_playwright

import trainsim as ts

ZOOMS = (1, 4, 4, 8)
"""Presses of the button that zooms in, before each measurement."""
DRAG = """async () => {
    const root = document.querySelector("[data-view=timeline]");
    const canvas = root.querySelector("canvas[tabindex]");
    const send = (type, x) => canvas.dispatchEvent(new PointerEvent(type, {
        pointerId: 1, clientX: x, clientY: canvas.getBoundingClientRect().top + 200, bubbles: true }));
    canvas.setPointerCapture = () => {};
    const times = [];
    send("pointerdown", 700);
    for (let k = 0; k < 40; k++) {
        send("pointermove", 700 - 8 * k);
        await new Promise(requestAnimationFrame);
        await new Promise(requestAnimationFrame);
        times.push(Number(root.dataset.redrawMs));
    }
    send("pointerup", 300);
    return times;
}"""


def main() -> None:
    """A line for each zoom."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as started:
        report = ts.Scenario.load("bloom_3d").run().to_html(Path(folder) / "report.html")
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(report.as_uri())
        print("| zoom | median | slowest |\n|---|--:|--:|")
        for zoom in ZOOMS:
            print(_line(page, zoom))
        browser.close()


def _line(page: Page, zoom: int) -> str:
    for _ in range(zoom):
        page.get_by_role("button", name="Zoom in (w)").click()
        page.wait_for_timeout(220)
    root = page.locator("[data-view=timeline]")
    start, until = (float(root.get_attribute(f"data-{end}") or 0) for end in ("from", "until"))
    times = page.evaluate(DRAG)
    return f"| {(until - start) / 1e9:.2f} s | {median(times):.1f} ms | {max(times):.1f} ms |"


if __name__ == "__main__":
    main()
