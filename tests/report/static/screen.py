"""What a page shows in the browser: its data, its canvases, its controls."""

import numpy as np

VIEWS = {
    "overview": "Overview",
    "curves": "Curves",
    "episodes": "Episode explorer",
    "information": "Information plane",
    "rooms": "Rooms",
    "runs": "Runs",
}


def data_of(page):
    return page.evaluate("data")


def pixels(page, selector):
    """Return what a canvas shows, int [H, W, 3]."""
    read = """c => ({
      w: c.width, h: c.height,
      d: Array.from(c.getContext('2d').getImageData(0, 0, c.width, c.height).data),
    })"""
    found = page.eval_on_selector(selector, read)
    return np.array(found["d"], int).reshape(found["h"], found["w"], 4)[..., :3]


def picture(page, selector):
    return page.eval_on_selector(selector, "c => c.toDataURL()")


def count_colour(page, selector, colour, near=40):
    """Return how many pixels of a canvas are about that colour."""
    wanted = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    count = """(c, [r, g, b, near]) => {
      const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
      let n = 0;
      for (let i = 0; i < d.length; i += 4) {
        const off = Math.abs(d[i] - r) + Math.abs(d[i + 1] - g) + Math.abs(d[i + 2] - b);
        n += d[i + 3] > 127 && off < near;
      }
      return n;
    }"""
    return page.eval_on_selector(selector, count, [*wanted, near])


def until(page, expression, seconds=10):
    """Wait for an expression to become true.

    Playwright's own way evaluates text in the page, which the page's policy forbids.
    """
    for _ in range(20 * seconds):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never true: {expression}")


def pick(page, label, option):
    page.get_by_label(label, exact=True).select_option(option)
