"""The pages of `--report` in a browser: filters, keys, the map, both themes, phones, paper; and nothing comes from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, browser_test, opened
from page_samples import adoption_page_of, check_page_of, comparison_page_of, conversion_page_of, write_model, write_project

from mplint.findings import Confidence, Finding, Location, Severity

pytestmark = [pytest.mark.browser, browser_test, pytest.mark.timeout(120)]

PHONE = {"width": 390, "height": 844}
MAP = "page.maps[0]"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with opened(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folders = {name: tmp_path_factory.mktemp(name) for name in ("check", "convert", "adopt", "compare")}
    write_model(write_project(folders["check"]) / "model.onnx")
    return {
        "check": check_page_of(folders["check"], "--policy", "mixed_float16"),
        "convert": conversion_page_of(folders["convert"], 8),
        "adopt": adoption_page_of(folders["adopt"]),
        "compare": comparison_page_of(folders["compare"], error="ValueError", lost=90),
    }


@pytest.fixture(params=("check", "convert", "adopt", "compare"))
def path(request: pytest.FixtureRequest, pages: dict[str, str]) -> str:
    return pages[request.param]


def test_nothing_is_loaded_and_nothing_of_others_runs(browser: Browser, path: str) -> None:
    browser.requests(), browser.complaints()
    browser.open(path)
    for key in ("t", "?"):
        browser.keys(key)
    assert browser.requests() == [Path(path).resolve().as_uri()]
    assert browser.complaints() == []
    assert browser.run("return document.images.length") == 0


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 768, 1440])
def test_a_page_fits_its_window(browser: Browser, path: str, width: int, dark: bool) -> None:
    browser.open(path, width=width, dark=dark)
    assert browser.run("return document.documentElement.scrollWidth") == width
    ground = browser.run("return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert (sum(ground) < 200) is dark


def test_the_theme_can_be_switched_and_is_kept(browser: Browser, pages: dict[str, str]) -> None:
    browser.open(pages["adopt"])
    assert browser.find("#theme").get_attribute("aria-pressed") == "false"
    browser.find("#theme").click()
    assert browser.run("return document.documentElement.dataset.theme") == "dark"
    browser.show_until(pages["adopt"], "return document.querySelector('#theme').getAttribute('aria-pressed') === 'true'")
    browser.keys("t")
    assert browser.run("return document.documentElement.dataset.theme") == "light"


def test_text_can_be_read_in_both_themes(browser: Browser, path: str) -> None:
    contrast = """
        const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
        const linear = (v) => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
        const light = ([r, g, b]) => .2126 * linear(r) + .7152 * linear(g) + .0722 * linear(b);
        const ground = (one) => {
          for (; one; one = one.parentElement) {
            const color = getComputedStyle(one).backgroundColor;
            if (/^rgb\\(/.test(color)) return numbers(color);
          }
          return [255, 255, 255];
        };
        const poor = [];
        for (const one of document.querySelectorAll("p, dt, dd, a, h1, h2, h3, h4, td, th, summary, .tag, .count, .nr, button")) {
          const color = getComputedStyle(one).color;
          if (!one.textContent.trim() || !one.checkVisibility() || !/^rgb\\(/.test(color)) continue;
          const [a, b] = [light(numbers(color)), light(ground(one))].sort((x, y) => y - x);
          const contrast = (a + .05) / (b + .05);
          if (contrast < 4.4) poor.push(`${one.className || one.tagName} ${one.textContent.trim().slice(0, 30)} ${contrast.toFixed(2)}`);
        }
        return poor;
    """
    browser.open(path)
    for theme in ("light", "dark"):
        assert browser.run(f"document.documentElement.dataset.theme = '{theme}'; {contrast}") == []


def test_findings_are_filtered_by_severity_rule_and_text(browser: Browser, pages: dict[str, str]) -> None:
    browser.open(pages["check"])
    everything = browser.shown(".card")
    assert everything > 3
    browser.find("[data-severity-toggle=error]").click()
    assert browser.shown(".card.error") == 0 and 0 < browser.shown(".card") < everything
    browser.find("[data-clear]").click()
    browser.find("[data-rule-toggle=MP304]").click()
    assert browser.shown(".card") == 1 and "1 of " in browser.find("#count").text
    browser.keys("c", "/")
    browser.keys("masked_fill")
    assert browser.shown(".card") == 1 and browser.shown(".card[data-code=MP204]") == 1
    browser.keys(" and no such word")
    assert browser.shown("#none-left") == 1


def test_findings_are_grouped_and_stepped_through_by_keys(browser: Browser, pages: dict[str, str]) -> None:
    browser.open(pages["check"])
    files = browser.shown(".group")
    browser.keys("r")
    rules = browser.shown(".group")
    assert rules == len({card.get_attribute("data-code") for card in browser.driver.find_elements("css selector", ".card")}) != files
    browser.keys("f")
    assert browser.shown(".group") == files
    browser.keys("j")
    first = browser.run("return document.activeElement.dataset.number")
    browser.keys("j")
    assert browser.run("return document.activeElement.dataset.number") != first
    browser.keys("k")
    assert browser.run("return document.activeElement.dataset.number") == first


def test_an_address_of_a_finding_shows_it_whatever_is_filtered(browser: Browser, pages: dict[str, str]) -> None:
    browser.open(pages["check"])
    browser.find("[data-rule-toggle=MP304]").click()
    hidden = browser.run("return document.querySelector('.card[hidden]').id")
    browser.run("location.hash = arguments[0]; dispatchEvent(new Event('hashchange'))", hidden)
    assert browser.shown(f"#{hidden}") == 1 and browser.run("return document.activeElement.id") == hidden


def test_the_list_of_shortcuts_opens_and_closes(browser: Browser, pages: dict[str, str]) -> None:
    browser.open(pages["check"])
    browser.keys("?")
    assert browser.shown("#help") == 1 and "next finding" in browser.find("#help").text
    browser.keys("\ue00c")  # Escape
    assert browser.shown("#help") == 0


def test_everything_can_be_reached_by_tab_and_has_a_name(browser: Browser, path: str) -> None:
    browser.open(path)
    browser.keys("\ue004")
    assert browser.run("return document.activeElement.className") == "skip-link"
    nameless = """
        return [...document.querySelectorAll("button, a[href], input, canvas, [role=application]")].filter((one) =>
          !(one.textContent.trim() || one.getAttribute("aria-label"))).map((one) => one.outerHTML)
    """
    assert browser.run(nameless) == []
    assert browser.run("return [...document.querySelectorAll('[tabindex]')].filter((one) => one.tabIndex > 0).length") == 0


def test_the_map_tells_of_a_chosen_operation_why_it_is_what_it_is(browser: Browser, pages: dict[str, str]) -> None:
    browser.open(pages["convert"])
    browser.find("[data-map-search]").send_keys("sqrt\n")
    told = browser.find(".detail").text
    assert "/head/Sqrt" in told and "float32[4, 8]" in told and "Comes from" in told
    assert "in float16 the epsilon 1e-09 is 0" in told
    browser.find(".detail .link").click()
    browser.find(".detail .link").click()
    assert "</script><img src=x" in browser.find(".detail h3").text


def test_the_map_is_drawn_moved_and_zoomed(browser: Browser, pages: dict[str, str]) -> None:
    browser.open(pages["convert"])
    colors = """
        const {canvas, context} = page.maps[0];
        const found = new Set(), {data} = context.getImageData(0, 0, canvas.width, canvas.height);
        for (let at = 0; at < data.length; at += 4) found.add((data[at] << 16) + (data[at + 1] << 8) + data[at + 2]);
        return found.size;
    """
    assert browser.run(f"{MAP}.draw(); {colors}") > 5
    whole = browser.run(f"return {MAP}.view")
    browser.find("canvas").click()
    browser.keys("+", "+")
    near = browser.run(f"return {MAP}.view")
    assert near["scale"] == pytest.approx(whole["scale"] * 1.96)
    browser.keys("\ue014")  # right
    assert browser.run(f"return {MAP}.view.x") > near["x"]
    browser.keys("0")
    assert browser.run(f"return {MAP}.view") == whole
    browser.keys("]")
    assert browser.run(f"return {MAP}.selected.id") == 0
    browser.find("[data-widen]").click()
    assert browser.run("return document.querySelector('.map').getBoundingClientRect().height") == 900


def test_a_click_on_the_map_chooses_what_lies_there(browser: Browser, pages: dict[str, str]) -> None:
    browser.open(pages["convert"])
    place = f"""
        const m = {MAP}, node = m.nodes.find((one) => one.n.endsWith("layers.2/dense/MatMul")), box = m.canvas.getBoundingClientRect();
        m.canvas.scrollIntoView({{block: "center"}});
        return [(node.left + 64 - m.view.x) * m.view.scale - box.width / 2, (node.top + 17 - m.view.y) * m.view.scale - box.height / 2];
    """
    x, y = browser.run(place)
    from selenium.webdriver import ActionChains

    ActionChains(browser.driver).move_to_element_with_offset(browser.find("canvas"), round(x), round(y)).click().perform()
    assert "/encoder/layers.2/dense/MatMul" in browser.find(".detail h3").text
    told = browser.find(".detail").text
    assert "Weights" in told and "values from" in told and "on the samples" in told and browser.shown(".detail .range") > 0


def test_six_thousand_operations_are_drawn_in_the_time_of_a_frame(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_model(tmp_path / "model.onnx", 2000, evil=False)
    page = check_page_of(tmp_path)
    assert Path(source).exists()
    browser.open(page)
    assert browser.run(f"return {MAP}.nodes.length") > 6000
    median = f"""
        const m = {MAP}, times = [];
        for (const scale of [1, 2, 6, 20, 60]) {{
          m.fit(); m.zoom(scale);
          for (let at = 0; at < 20; at++) {{
            m.pan(5, 3);
            const begun = performance.now();
            m.draw();
            times.push(performance.now() - begun);
          }}
        }}
        return times.sort((a, b) => a - b)[times.length >> 1];
    """
    assert browser.run(median) < 16


def test_a_finding_in_a_model_and_its_node_lead_to_each_other(browser: Browser, pages: dict[str, str]) -> None:
    browser.open(pages["check"])
    link = browser.find("[data-to-node]")
    node = link.get_attribute("data-to-node")
    browser.run("arguments[0].scrollIntoView({block: 'center'})", link)
    link.click()
    assert browser.find(".detail h3").text == node and browser.find(".detail a[href^='#finding-']").text


def test_curves_are_read_by_keys_and_by_pointing(browser: Browser, pages: dict[str, str]) -> None:
    from selenium.webdriver import ActionChains

    browser.open(pages["compare"])
    browser.keys("c")
    browser.keys("\ue014", "\ue014")  # right
    told = browser.find("[data-chart='0'] .readout")
    assert told.text == "Step 2: float32 1.818 · mixed_float16 1.818 · mixed_bfloat16 1.818"
    browser.keys("\ue010")  # End
    assert told.text == "Step 119: float32 0.2878 · mixed_float16 no number · mixed_bfloat16 0.2878"
    browser.keys("c", "\ue011")
    assert "Step 0: mixed_float16 32,768" in browser.find("[data-chart='1'] .readout").text
    plane = browser.find("[data-chart='0'] .plane")
    browser.run("arguments[0].scrollIntoView({block: 'center'})", plane)
    ActionChains(browser.driver).move_to_element(plane).perform()
    assert told.text.startswith(("Step 59", "Step 60"))


def test_policies_are_hidden_and_shown(browser: Browser, pages: dict[str, str]) -> None:
    browser.open(pages["compare"])
    lines = browser.shown("path.line")
    browser.find("[data-policy=mixed_bfloat16]").click()
    assert browser.shown("path.line") == lines - 2 and browser.shown("[data-of=mixed_bfloat16]") == 0
    browser.keys("c", "\ue014")
    assert "bfloat16" not in browser.find("[data-chart='0'] .readout").text
    browser.keys("3")
    assert browser.shown("path.line") == lines


def test_a_printed_page_shows_all_and_no_controls(browser: Browser, path: str) -> None:
    browser.open(path, dark=True)
    browser.run("dispatchEvent(new Event('beforeprint'))")
    assert browser.shown("details:not([open])") == 0
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": []})
    assert browser.shown(".bar") == browser.shown(".side") == 0
    assert sum(browser.run("return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")) == 765
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    browser.run("dispatchEvent(new Event('afterprint'))")


def test_thousands_of_findings_are_filtered_at_once(browser: Browser, tmp_path: Path) -> None:
    from mplint.config import Config
    from mplint.engine.run import CheckResult
    from mplint.report.formats import Reported
    from mplint.report.page import check_page
    from mplint.report.style import Style

    source = tmp_path / "a.py"
    source.write_text("x = 1\n" * 3000, encoding="utf-8")
    findings = tuple(
        Finding("MP304", "clip", Severity.WARNING, Confidence.HIGH, f"number {line}", Location(str(source), line, 1, line, 6), str(line))
        for line in range(1, 3001)
    )
    html, faults = check_page(Reported(CheckResult(findings, 1), Config(), {}, (), Style()))
    assert faults == []
    (tmp_path / "page.html").write_text(html, encoding="utf-8")
    browser.open(str(tmp_path / "page.html"))
    spent = """
        const search = document.getElementById("search"), begun = performance.now();
        search.value = "number 2999"; search.dispatchEvent(new Event("input"));
        return performance.now() - begun;
    """
    assert browser.run(spent) < 1000
    assert browser.shown(".card") == 1
