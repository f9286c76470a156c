"""The HTML report, opened in a real browser: drawn points, hover, zoom, toggles, keys, themes; nothing is fetched."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcjob.cli import main
from tests.hpcjob.report.browser import Browser, find_browser
from tests.hpcjob.report.test_plot import HOSTILE
from tests.hpcjob.report.written import loaded, neox_line, saved, write

pytestmark = pytest.mark.ci

STEPS = range(10, 1010, 10)
CHART = 'document.querySelector(`figure[data-name="loss"] svg.chart`)'


def losses(seed: int) -> dict[int, str]:
    """A loss as it stands in a log for each step: falling, noisy, with a spike and a NaN."""
    noise = random.Random(seed)
    told = {step: f"{2 + 8 * math.exp(-step / 200) + noise.gauss(0, 0.02):.6E}" for step in STEPS}
    return told | {700: "5.500000E+00", 900: "nan"}


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A report of two runs, one with a Japanese and hostile name, opened."""
    find_browser()
    folder = tmp_path_factory.mktemp("page")
    first = [neox_line(step, loss) for step, loss in losses(1).items() if step <= 600] + [saved(600), loaded(600)]
    write(folder / "a.log", [*first, *(neox_line(step, loss) for step, loss in losses(1).items() if step > 600)])
    name = "実験" + HOSTILE.replace("/", "\N{DIVISION SLASH}")
    write(folder / f"{name}.log", [neox_line(step, loss) for step, loss in losses(2).items()])
    page = folder / "report.html"
    assert main(["plot", str(folder / "a.log"), str(folder / f"{name}.log"), "-o", str(page)]) == 0
    with Browser(folder) as browser:
        browser.open(page)
        yield browser
        assert browser.complaints() == []
        assert set(browser.requested()) <= {page.resolve().as_uri(), "data:,"}


@pytest.fixture(autouse=True)
def whole(opened: Browser) -> None:
    """Every test begins with the whole run, all shown, the mouse elsewhere."""
    opened.mouse("mouseMoved", 2, 2)
    opened.run("document.activeElement.blur(); document.getElementById('reset').click()")
    opened.run("for (const box of document.querySelectorAll('input[type=checkbox]'))"
               "if (box.checked === (box.id === 'log')) box.click()")  # fmt: skip
    opened.run("const slider = document.getElementById('smoothing'); slider.value = 0;"
               "slider.dispatchEvent(new Event('input'))".replace("const ", "window."))  # fmt: skip
    opened.run(f"{CHART}.scrollIntoView({{block: 'center'}})")


def scale(browser: Browser, axis: str) -> tuple[float, float]:
    """Return offset and factor from a position in the loss chart to a value, by two labels of the axis."""
    at = "Number(one.getAttribute('x'))" if axis == "x" else "Number(one.getAttribute('y')) - 4"
    ticks = browser.run(
        f"[...{CHART}.querySelectorAll('.{axis}-tick')].map((one) => [{at}, Number(one.dataset.value)])"
    )
    (first, low), (last, high) = ticks[0], ticks[-1]
    factor = (high - low) / (last - first)
    return low - first * factor, factor


def drawn(browser: Browser, run: int, kind: str = "curve") -> list[tuple[float, float]]:
    """Return the points of a run's curve in the loss chart, in numbers of its axes."""
    path = browser.run(f"{CHART}.querySelector('path.{kind}[data-run=\"{run}\"]').getAttribute('d')")
    (x0, x), (y0, y) = scale(browser, "x"), scale(browser, "y")
    return [(x0 + x * float(one), y0 + y * float(two)) for one, two in re.findall(r"[ML]([-\d.]+) ([-\d.]+)", path)]


def place(browser: Browser, step: float) -> tuple[float, float]:
    """Return where a step is in the loss chart, in the window."""
    box = browser.run(
        f"(() => {{ const box = {CHART}.getBoundingClientRect(); return [box.left, box.top, box.height] }})()"
    )
    offset, factor = scale(browser, "x")
    return box[0] + (step - offset) / factor, box[1] + box[2] / 2


def tip(browser: Browser) -> str | None:
    """Return the words of the tip of the loss chart; None while it is hidden."""
    element = 'document.querySelector(`figure[data-name="loss"] .tip`)'
    told: str | None = browser.run(f"{element}.hidden ? null : {element}.innerText")
    return told


@pytest.mark.parametrize("run", [0, 1])
def test_the_points_are_those_of_the_log(opened: Browser, run: int) -> None:
    """Every finite loss of the log is a point of the curve, where the axes say, within a hundredth of a pixel."""
    wanted = [(step, float(text)) for step, text in losses(run + 1).items() if text != "nan"]
    points = drawn(opened, run)
    assert len(points) == len(wanted)
    (_, x), (_, y) = scale(opened, "x"), scale(opened, "y")
    for (step, loss), (drawn_step, drawn_loss) in zip(wanted, points, strict=True):
        assert drawn_step == pytest.approx(step, abs=abs(x) * 0.02)
        assert drawn_loss == pytest.approx(loss, abs=abs(y) * 0.02)


def test_hover_tells_the_number(opened: Browser) -> None:
    """Under the mouse stand the numbers of both runs, digit by digit; a NaN is named; away from it nothing is shown."""
    for step in (10, 430, 700, 900, 1000):
        opened.mouse("mouseMoved", *place(opened, step + 2))
        told = tip(opened)
        assert told is not None
        assert told.startswith(f"iteration {step}\n")
        for run in (1, 2):
            text = losses(run)[step]
            assert ("not finite" if text == "nan" else f"{float(text):.9g}") in told
    assert opened.run("document.querySelectorAll('line.cursor').length") == opened.run(
        "document.querySelectorAll('figure').length"
    )
    opened.mouse("mouseMoved", 2, 2)
    assert tip(opened) is None


def test_keys_step_through_all_points(opened: Browser) -> None:
    """The chart can be read without a mouse: each point is said in words."""
    opened.run(f"{CHART}.focus()")
    opened.key("Home")
    for step, text in list(losses(1).items())[:5]:
        said = opened.run("document.getElementById('said').textContent")
        assert said.startswith(f"iteration {step}, a {float(text):.9g}")
        opened.key("ArrowRight")
    opened.key("End")
    assert opened.run("document.getElementById('said').textContent").startswith("iteration 1000, a ")
    opened.key("Escape")
    assert tip(opened) is None


def test_zoom(opened: Browser) -> None:
    """Dragging zooms all charts, and no more points are drawn than are in view; a double click shows all again."""
    start, end = place(opened, 300), place(opened, 500)
    opened.drag(start, end)
    low, high = opened.run(f"[Number({CHART}.dataset.xLow), Number({CHART}.dataset.xHigh)]")
    assert (low, high) == (pytest.approx(300, abs=3), pytest.approx(500, abs=3))
    views = opened.run("[...document.querySelectorAll('svg.chart')].map((one) => one.dataset.xLow)")
    assert len(set(views)) == 1
    before, after = max(step for step in STEPS if step < low), min(step for step in STEPS if step >= high)
    assert [round(step) for step, _ in drawn(opened, 0)] == list(range(before, after + 10, 10))
    middle = place(opened, 400)
    for count in (1, 2):
        opened.mouse("mousePressed", *middle, button="left", clickCount=count)
        opened.mouse("mouseReleased", *middle, button="left", clickCount=count)
    assert opened.run(f"Number({CHART}.dataset.xHigh)") == 1000
    opened.run(f"{CHART}.focus()")
    opened.key("+")
    assert opened.run(f"Number({CHART}.dataset.xHigh)") < 1000
    opened.key("0")
    assert opened.run(f"Number({CHART}.dataset.xHigh)") == 1000


def test_marks_and_their_toggles(opened: Browser) -> None:
    """The spike, the NaN, the restart and the checkpoint stand where they were, and go when they are switched off."""
    found = f"(kind) => [...{CHART}.querySelectorAll(kind)].map((one) => Number(one.dataset.x))"
    marks = {"spikes": ["circle.spike", "path.bad"], "restarts": ["line.restart"], "checkpoints": ["path.checkpoint"]}
    wanted = {"circle.spike": [700, 700], "path.bad": [900, 900], "line.restart": [600], "path.checkpoint": [600]}
    for box, kinds in marks.items():
        for kind in kinds:
            assert opened.run(f"({found})('{kind}')") == wanted[kind]
        opened.run(f"document.getElementById('{box}').click()")
        for kind in kinds:
            assert opened.run(f"({found})('{kind}')") == []


def test_runs_can_be_switched_off(opened: Browser) -> None:
    """A run that is switched off is drawn in no chart."""
    count = "document.querySelectorAll('path.curve[data-run=\"1\"]').length"
    assert opened.run(count) > 3
    opened.run("document.querySelector('#runs input[data-run=\"1\"]').click()")
    assert opened.run(count) == 0
    assert opened.run("document.querySelectorAll('path.curve[data-run=\"0\"]').length") > 3


def test_logarithmic_and_smooth(opened: Browser) -> None:
    """On a logarithmic scale equal factors are equal heights; the smoothed curve is the debiased exponential mean."""
    opened.run("document.getElementById('log').click()")
    ticks = opened.run(
        f"[...{CHART}.querySelectorAll('.y-tick')].map((one) => [one.dataset.value, one.getAttribute('y')])"
    )
    places = [(math.log(float(value)), float(y)) for value, y in ticks]
    slopes = [(y - places[0][1]) / (value - places[0][0]) for value, y in places[1:]]
    assert len(slopes) >= 2
    assert slopes == pytest.approx([slopes[0]] * len(slopes), rel=1e-3)
    opened.run("document.getElementById('log').click()")
    opened.run("const slider = document.getElementById('smoothing'); slider.value = 0.5;"
               "slider.dispatchEvent(new Event('input'))".replace("const ", "window."))  # fmt: skip
    mean, weight, wanted = 0.0, 0.0, []
    for text in losses(1).values():
        if text != "nan":
            mean, weight = 0.5 * mean + 0.5 * float(text), 0.5 * weight + 0.5
            wanted.append(mean / weight)
    _, factor = scale(opened, "y")
    assert [loss for _, loss in drawn(opened, 0, "smooth")] == pytest.approx(wanted, abs=abs(factor) * 0.02)


_NAMED = ("checkbox", "button", "slider", "table", "form", "region", "image", "link", "heading")


def _luminance(colour: str) -> float:
    parts = [int(one) / 255 for one in re.findall(r"\d+", colour)[:3]]
    linear = [one / 12.92 if one <= 0.03928 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, two: str) -> float:
    high, low = sorted((_luminance(one), _luminance(two)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("system", ["light", "dark"])
@pytest.mark.parametrize("chosen", ["system", "light", "dark"])
def test_themes(opened: Browser, system: str, chosen: str) -> None:
    """The page follows the system or the button; text has a contrast of 4.5, curves of 3 (WCAG 2.2, AA)."""
    opened.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": system}])
    while opened.run("document.getElementById('theme').textContent") != f"Theme: {chosen}":
        opened.run("document.getElementById('theme').click()")
    style = "getComputedStyle(document.querySelector('{}')).{}"
    page = opened.run(style.format("body", "backgroundColor"))
    panel = opened.run(style.format("figure", "backgroundColor"))
    assert (_luminance(page) < 0.1) == ((system if chosen == "system" else chosen) == "dark")
    for kind, where in (("body", page), ("th", page), (".help", page), ("figcaption small", panel)):
        assert _contrast(opened.run(style.format(kind, "color")), where) >= 4.5, kind
    assert _contrast(opened.run(style.format("svg.chart text", "fill")), panel) >= 4.5
    for number in range(8):
        probe = f"Object.assign(document.querySelector('h1'), {{}}).style.color = 'var(--c{number})'"
        opened.run(probe)
        assert _contrast(opened.run(style.format("h1", "color")), panel) >= 3, number
    assert _contrast(opened.run(style.format("circle.spike", "stroke")), panel) >= 3
    opened.run("document.querySelector('h1').style.color = ''")


def test_names_and_roles(opened: Browser) -> None:
    """What assistive technology is told: each chart is an image with its name, each control has its label."""
    nodes = opened.call("Accessibility.getFullAXTree")["nodes"]
    told = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node.get("ignored")]
    charts = [name for role, name in told if role in ("image", "img")]
    assert "Loss (nats/token)" in charts
    assert len(charts) == opened.run("document.querySelectorAll('figure').length")
    boxes = [name.strip() for role, name in told if role == "checkbox"]
    assert {"spikes", "restarts", "checkpoints", "log scale", "a"} <= set(boxes)
    assert [(role, name) for role, name in told if role in _NAMED and not name.strip()] == []
    assert opened.run("[...document.querySelectorAll('fieldset')].every((one) => one.querySelector('legend'))")
    assert opened.run("document.querySelectorAll('h1').length") == 1
    assert opened.run("document.documentElement.lang") == "en"
    headers = opened.run("[...document.querySelectorAll('table')].every((one) => one.caption && one.tHead)")
    assert headers


def test_a_hostile_name_does_nothing(opened: Browser) -> None:
    """It is shown as it is; nothing of it has become an element, and no script of it ran."""
    label = opened.run("document.querySelector('#runs label:nth-of-type(2) span').textContent")
    assert label == "実験" + HOSTILE.replace("/", "\N{DIVISION SLASH}")
    assert opened.run("document.images.length") == 0
    assert opened.run("document.scripts.length") == 2


def test_the_policy_holds(opened: Browser) -> None:
    """A script or a picture that got into the page by other ways would not run or load."""
    before = len(opened.events)
    ran = opened.run(
        "(() => { const one = document.createElement('script'); one.textContent = 'window.ran = 1';"
        "document.body.append(one); one.remove(); return window.ran === undefined })()"
    )
    assert ran
    loaded_picture = opened.run(
        "new Promise((done) => { const one = new Image(); one.onload = () => done(true);"
        "one.onerror = () => done(false); one.src = 'http://127.0.0.1:9/x.png' })"
    )
    assert loaded_picture is False
    said: list[object] = []
    while len(said) < 2:  # one for the script, one for the picture
        opened.run("0")
        said = [told for told in opened.events[before:] if "Content Security Policy" in str(told)]
    del opened.events[before:]


def test_a_narrow_window(opened: Browser, tmp_path: Path) -> None:
    """On a small screen nothing is wider than the window; the charts are drawn anew."""
    opened.call("Emulation.setDeviceMetricsOverride", width=380, height=700, deviceScaleFactor=1, mobile=False)
    width = f"Number({CHART}.getAttribute('viewBox').split(' ')[2])"
    opened.until(f"{width} < 380")
    assert opened.run("document.documentElement.scrollWidth") <= 380
    opened.call("Emulation.clearDeviceMetricsOverride")
    opened.until(f"{width} > 380")
