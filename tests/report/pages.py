"""What is read from a page that is open in a browser."""

import csv
import io

import numpy as np


def settle(page):
    """Wait until what was asked for is drawn."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def switch(page, **values):
    """Choose a loss, an index or a bias; the last two are in the fold about the theory."""
    if not page.evaluate("() => document.getElementById('theory').open"):
        page.click("#theory > summary")
    for name, value in values.items():
        page.locator(f"[name={name}][value={value}]").check(force=True)
    settle(page)


def lines(page, selector):
    """The numbers of the lines that are drawn."""
    found = page.evaluate("(s) => [...document.querySelectorAll(s)].map((line) => line.points.y)", selector)
    return np.array(found, float)


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
    settle(page)


def clear_picks(page):
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
