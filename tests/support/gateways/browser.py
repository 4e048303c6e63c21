"""Opens a real dashboard in a real Chromium. Reports errors, requests to other hosts, and accessibility and layout
faults."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from app.dashboard.session_cookie import COOKIE
from tests.support.gateways.live_gateway import ADMIN_TOKEN, Gateway

WIDE = {"width": 1440, "height": 900}
FULL_HD = {"width": 1920, "height": 1080}
DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
TIMEOUT_MS = 90_000
"""Long enough for a busy machine."""


@contextmanager
def sign_in(gateway: Gateway, token: str = ADMIN_TOKEN) -> Iterator[httpx.Client]:
    """Yield a client that has signed in as a browser would. ``client.headers`` contains the CSRF token that changes
    require."""
    with httpx.Client(base_url=f"http://127.0.0.1:{gateway.port}", timeout=30) as client:
        form = client.get("/dashboard/sign-in").text
        answer = client.post("/dashboard/sign-in", data={"csrf": csrf_of(form), "token": token})
        assert answer.status_code == 303, answer.text
        client.headers["x-csrf-token"] = csrf_of(client.get("/dashboard/system").text)
        yield client


def csrf_of(page: str) -> str:
    """Return the CSRF token in the first form of a page."""
    return page.partition('name="csrf" value="')[2].partition('"')[0]


@contextmanager
def chromium() -> Iterator[Any]:
    """Yield a headless Chromium. Skips the test if Chromium or the extra is missing."""
    playwright = pytest.importorskip("playwright.sync_api", reason="pages in a browser: needs the extra 'browser'")
    names = ("chromium", "chromium-browser", "google-chrome")
    path = os.environ.get("GROUNDLANE_TEST_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip("pages in a browser: no Chromium here (apt-get install chromium)")
    with playwright.sync_playwright() as driver:
        options = {"args": ["--no-sandbox", "--disable-dev-shm-usage"], "timeout": TIMEOUT_MS}
        browser = driver.chromium.launch(executable_path=path, **options)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def open_page(browser: Any, gateway: Gateway, client: httpx.Client | None, **options: Any) -> Iterator[Any]:
    """Yield a page in a new browser context, signed in as ``client``. Fails at the end if there was an error on the
    console, a response with a status of 500 or higher, or a request to another host. ``options`` are the context's,
    such as ``viewport``.

    ``page.wait_for_function`` doesn't work: it evaluates a string in the page, which the content security policy
    forbids."""
    host = f"127.0.0.1:{gateway.port}"
    context = browser.new_context(
        base_url=f"http://{host}", **{"viewport": DESKTOP, "reduced_motion": "reduce", **options}
    )
    context.set_default_timeout(TIMEOUT_MS)
    if client is not None:
        # Copy only the session cookie, because another test may have chosen a theme with the same client.
        context.add_cookies([{"name": COOKIE, "value": client.cookies[COOKIE], "url": f"http://{host}/dashboard"}])
    page = context.new_page()
    faults: list[str] = []

    def got(response: Any) -> None:
        # A page that reports errors in a form isn't a fault; a missing file is.
        pages = response.request.resource_type in ("document", "fetch", "xhr")
        if response.status >= (500 if pages else 400):
            faults.append(f"{response.status}: {response.url}")

    def said(message: Any) -> None:
        # Failed responses are handled above.
        if message.type == "error" and "Failed to load resource" not in message.text:
            faults.append(f"console: {message.text}")

    def sent(request: Any) -> None:
        if urlsplit(request.url).netloc != host:
            faults.append(f"another host: {request.url}")

    page.on("console", said)
    page.on("pageerror", lambda error: faults.append(f"script: {error}"))
    page.on("response", got)
    page.on("request", sent)
    try:
        yield page
        if faults:
            raise AssertionError("\n".join(faults))
    finally:
        context.close()


def check(page: Any) -> None:
    """Check that the page has no serious accessibility violations (axe-core) or layout faults, and doesn't scroll
    sideways."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-core: needs the extra 'browser'")
    found = axe.Axe().run(page).response["violations"]
    serious = [
        f"{each['id']}: {each['help']}: {[node['html'][:200] for node in each['nodes'][:3]]}"
        for each in found
        if each["impact"] in ("serious", "critical")
    ]
    wider = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    faults = [*serious, *page.evaluate(_LAYOUT_FAULTS), *([f"{wider} px wider than the screen"] if wider > 0 else ())]
    if faults:
        raise AssertionError("\n".join(faults))


_LAYOUT_FAULTS = """() => {
  const faults = [];
  // A basis meant as a width becomes a height in a column, and leaves a gap.
  for (const child of document.querySelectorAll("main *")) {
    const { display, flexDirection } = getComputedStyle(child.parentElement);
    const basis = getComputedStyle(child).flexBasis;
    if (display === "flex" && flexDirection === "column" && parseFloat(basis) > 0 && basis.endsWith("px"))
      faults.push(`flex-basis ${basis} in a column: ${child.outerHTML.slice(0, 120)}`);
  }
  // The last row of a grid of equal panels must be full.
  for (const grid of document.querySelectorAll(".columns.even")) {
    const missing = grid.getBoundingClientRect().right - grid.lastElementChild.getBoundingClientRect().right;
    if (missing > 2) faults.push(`${missing} px beside the last of ${grid.children.length} panels`);
  }
  // The page uses the width of the screen.
  const main = document.querySelector("body:not(.alone) main");
  const unused = main ? innerWidth - main.getBoundingClientRect().right : 0;
  if (unused > innerWidth / 8) faults.push(`${unused} px unused on the right`);
  // A name in a table has one line.
  for (const name of document.querySelectorAll("table .name, table th[scope=row] a"))
    if (name.getClientRects().length > 2) faults.push(`a name of several lines: ${name.textContent.slice(0, 80)}`);
  return faults;
}"""


def check_everywhere(page: Any) -> None:
    """Run ``check`` on a wide screen, a desktop and a phone, in light and dark, to cover every layout and every
    colour."""
    for viewport, scheme in ((FULL_HD, "dark"), (WIDE, "light"), (DESKTOP, "light"), (PHONE, "dark")):
        page.set_viewport_size(viewport)
        page.emulate_media(color_scheme=scheme)
        check(page)
