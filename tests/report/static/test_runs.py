"""runs.js in a browser: runs are filtered, and their command is copied."""

from tests.report.static.screen import pick


def test_runs_are_filtered_and_their_command_copied(report, open_page):
    page = open_page(report / "one.html", "runs", permissions=["clipboard-read", "clipboard-write"])
    assert page.locator("details.run").count() == 11
    page.fill("input[type=search]", "random-box rnd")
    assert page.locator("details.run").count() == 2
    page.click("details.run >> nth=0")
    command = page.inner_text("details.run pre")
    assert command.startswith("ssedb train --env rooms-small --noise random-box --bonus rnd")
    page.click("text=Copy the command")
    page.wait_for_selector("button:text-is('Copied')")
    assert page.evaluate("navigator.clipboard.readText()") == command
    inside = page.inner_text("details.run .inside")
    for word in ("torch", "rollout_steps", "feature_dim", "num_envs"):
        assert word in inside
    page.fill("input[type=search]", "")
    pick(page, "Status", "failed")
    assert page.locator("details.run").count() == 1
    page.click("details.run")
    assert "cannot be read by this version" in page.inner_text("details.run .inside")
