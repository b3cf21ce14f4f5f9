"""What is read from a page that is open in a browser."""

import csv
import io

import numpy as np


def settle(page):
    """Wait until what was asked for is drawn."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def switch(page, **values):
    for name, value in values.items():
        page.locator(f"[name={name}][value={value}]").check(force=True)
    settle(page)


def lines(page, selector):
    """The numbers of the lines that are drawn."""
    return np.array(
        page.evaluate("(s) => [...document.querySelectorAll(s)].map((line) => line.points.y)", selector), float
    )


def over_the_loss(result, **options):
    """The bound as it is drawn: what bounds f − f⋆ has f⋆ added."""
    return result.bound(**options).total.values + (0.0 if "bias" in options else result.optimum().value)


def drawn(page, selector):
    return page.evaluate("(s) => [...document.querySelectorAll(s)].map((line) => line.getAttribute('d'))", selector)


def download(page, button):
    with page.expect_download() as found:
        page.click(button)
    with open(found.value.path(), "rb") as file:
        return file.read()


def table(data):
    return list(csv.DictReader(io.StringIO(data.decode(), newline="")))


def marks(page):
    """Mark and colour of every method by its label."""
    return page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll("#headline .chip")].map((chip) => {
          const mark = chip.querySelector("path").getAttribute("d");
          return [chip.innerText, [mark, chip.querySelector("svg").style.getPropertyValue("--base")]];
        }))"""
    )


def words_at(page, method, rate):
    """What is shown beside a point."""
    page.mouse.move(*_place(page, method, rate))
    return page.inner_text("#loss .tip").splitlines()


def click_point(page, method, rate):
    """Click a point where it is drawn."""
    page.mouse.click(*_place(page, method, rate))


def clear_picks(page):
    """Let go of all picks, also if their chips are renewed between being found and being clicked."""
    page.evaluate("() => document.querySelector('#picks .quiet').click()")
    page.wait_for_function("() => !document.querySelector('#picks .quiet')")


def _place(page, method, rate):
    """Where a point is, after all that was asked of the page is drawn: it draws in the next frame."""
    return page.evaluate(
        """async (point) => {
          await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
          const mark = document.querySelector(`[data-point="${point}"]`);
          mark.scrollIntoView({ block: "nearest" });
          const box = mark.getBoundingClientRect();
          return [box.x + box.width / 2, box.y + box.height / 2];
        }""",
        f"{method},{rate}",
    )
