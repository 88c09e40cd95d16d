"""rooms.js in a browser: maps of visits and of the bonus along training."""

from tests.report.static.screen import count_colour, pick, picture, until


def test_rooms_maps_move_with_the_slider(report, open_page):
    page = open_page(report / "one.html", "rooms")
    heat, slider = "#view-rooms canvas >> nth=0", "#view-rooms input[type=range]"
    pick(page, "Task", "rooms-small, random-box")
    assert page.locator("#view-rooms canvas").count() == 2
    assert page.get_attribute(heat, "data-steps") == "256"
    blank = count_colour(page, heat, "#ffffff", 1)
    page.fill(slider, "0")
    assert page.get_attribute(heat, "data-steps") == "0"
    assert "after 0 steps" in page.inner_text("#view-rooms")
    assert count_colour(page, heat, "#ffffff", 1) > blank + 1000  # cells that were not visited yet
    early = picture(page, heat)
    page.click("#view-rooms button:text-is('Bonus')")
    assert picture(page, heat) != early
    assert "bonus of db by cell after 0 steps" in page.get_attribute(heat, "aria-label")
    pick(page, "Seed", "1")
    assert "db, seed 1" in page.inner_text("#view-rooms")
    page.hover(heat)
    page.click("#view-rooms button:has-text('Play')")
    until(page, "Number(document.querySelector('#view-rooms input[type=range]').value) > 4")
    page.click("#view-rooms button:has-text('Pause')")
    assert "Without snapshots" in page.inner_text("#view-rooms")
    assert "stopped" in page.inner_text("#view-rooms p:has-text('Without snapshots')")
