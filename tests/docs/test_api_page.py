"""/docs as a person sees it: opened in a real browser, under the policy that it is served with."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Start
from tests.docs import browser

PROGRAM = browser.found()
BROKEN = """<!doctype html><meta http-equiv="content-security-policy" content="default-src 'none'">
<p id="text">as it was</p><script>document.getElementById("text").textContent = "changed"</script>"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium or Chrome on this machine"),
]


@pytest.fixture
def page(tmp_path: Path) -> Iterator[browser.Page]:
    assert PROGRAM is not None
    with browser.opened(PROGRAM, tmp_path) as opened:
        yield opened


def test_the_page_shows_every_operation_and_complains_of_nothing(page: browser.Page, start: Start) -> None:
    server = start()
    with server.client() as client:
        api = client.get("/openapi.json").raise_for_status().json()
    page.go(f"{server.url}/docs")
    shown = page.value("[...document.querySelectorAll('h3')].filter(e => e.checkVisibility()).map(e => e.innerText)")
    operations = [f"{method.upper()} {path}" for path, item in api["paths"].items() for method in item]
    assert len(operations) > 15
    assert set(operations) <= set(shown)
    assert f"curl -X POST {server.url}/v1/chat/completions" in page.value("document.body.innerText")
    assert page.value("getComputedStyle(document.body).maxWidth") == "960px", "its style is let in by its policy"
    assert page.complaints == []


def test_a_link_leads_to_its_operation_and_its_answers_unfold(page: browser.Page, start: Start) -> None:
    server = start()
    page.go(f"{server.url}/docs")
    top = "document.querySelector(location.hash).getBoundingClientRect().top"
    page.value("document.querySelector('nav a:last-of-type').click()")
    assert page.value(f"location.hash !== '' && {top} < innerHeight")
    page.value("document.querySelector('details summary').click()")
    assert "500" in page.value("document.querySelector('details').innerText")
    assert page.complaints == []


def test_a_page_that_breaks_its_policy_is_heard(page: browser.Page, tmp_path: Path) -> None:
    """So the silence of the others means something."""
    (tmp_path / "broken.html").write_text(BROKEN)
    page.go((tmp_path / "broken.html").as_uri())
    assert page.value("document.getElementById('text').innerText") == "as it was"
    (complaint,) = page.complaints
    assert "Content Security Policy" in complaint
