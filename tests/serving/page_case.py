"""A real browser for the tests of the page; `server_case` has the server."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd
from playwright.sync_api import BrowserContext, Page, Request, Response, Route, expect

import ecoc

CHROMIUM = "/usr/bin/chromium"
HOSTILE = [
    "<img src=x onerror=\"document.body.dataset.hacked='1'\">",
    "<script>document.body.dataset.hacked='1'</script>",
    "\u202egnihtemos\u202e desrever",
    "long " * 2000,
    "wide" * 2500,
    "</title></table><h1>not a heading",
    "{{7*7}} ${7*7} &lt;b&gt;",
    '" onfocus="document.body.dataset.hacked=1" autofocus x="',
]


class Visitor:
    """A page in the browser that remembers what went wrong on it."""

    def __init__(self, context: BrowserContext, address: str) -> None:
        self.page: Page = context.new_page()
        self.page.set_default_timeout(20_000)
        self.address = address
        self.problems: list[str] = []
        self.foreign: list[str] = []
        self.page.on("console", lambda message: self._heard(message.type, message.text))
        self.page.on("pageerror", lambda error: self._heard("error", str(error)))
        self.page.on("dialog", lambda dialog: self._heard("error", "a dialog was opened"))
        self.page.on("request", self._requested)

    def _heard(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.problems.append(f"{kind}: {text}")

    def _requested(self, request: Request) -> None:
        if not request.url.startswith((self.address, "data:,")):
            self.foreign.append(request.url)

    def open(self) -> Page:
        """Open the page and wait until it shows a list."""
        self.page.goto(self.address)
        self.page.wait_for_selector("#rows tr")
        return self.page

    def text(self, selector: str) -> str:
        """What an element shows."""
        return self.page.inner_text(selector)

    def listed(self) -> list[str]:
        """Ids of the list."""
        return self._ids("#rows tr")

    def history(self) -> list[str]:
        """Ids of the history."""
        return self._ids("#events li")

    def matches(self, text: str) -> list[str]:
        """Search for a text; ids of the items in the list below the field."""
        with self.page.expect_response(lambda response: _is_search(response, text)):
            self.page.fill("#search", text)
        expect(self.page.locator("#search-status")).not_to_have_text("Searching…")
        return self._ids("#matches li")

    def add(self, text: str) -> str:
        """Search for a text and add the first item; its id."""
        item = self.matches(text)[0]
        with self.answered():
            self.page.press("#search", "Enter")
        return item

    @contextmanager
    def answered(self) -> Iterator[None]:
        """A new list arrives within the block and is drawn, and the sphere after it."""
        has_sphere = self.page.is_visible("#sphere")
        with self.page.expect_response(_is_list) as answer:
            if has_sphere:
                with self.page.expect_response(_is_action):
                    yield
            else:
                yield
        wanted = [item["item"] for item in answer.value.json()[0]["items"]]
        self.page.wait_for_function(
            "ids => ids.join() === [...document.querySelectorAll('#rows tr')].map(row => row.dataset.item).join()",
            arg=wanted,
        )

    def set_weight(self, w: float) -> None:
        """Move the slider to a weight."""
        place = WEIGHTS.index(w)
        with self.answered():
            self.page.fill("#weight", str(place))
        assert self.text("#weight-shown") == f"{w:g}"

    def point(self, name: str) -> tuple[float, float] | None:
        """Where the action, or that of the cloned policy, is drawn; none if it is not."""
        dot = self.page.locator(f"#{name}")
        if dot.get_attribute("visibility") == "hidden":
            return None
        return float(dot.get_attribute("data-x") or "nan"), float(dot.get_attribute("data-y") or "nan")

    def play(self, users: int = 1) -> None:
        """Play sessions and wait until all steps are drawn."""
        self.page.select_option("#users", str(users))
        self.page.click("#play")
        expect(self.page.locator("#session-status")).to_contain_text("Reward after")

    def _ids(self, selector: str) -> list[str]:
        ids: list[str] = self.page.locator(selector).evaluate_all("rows => rows.map(row => row.dataset.item)")
        return ids


WEIGHTS = (0, 0.1, 0.2, 0.5, 1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 200, 500, 1000)


def _is_search(response: Response, text: str) -> bool:
    return response.url.endswith(f"/v1/items?limit=8&query={quote(text)}")


def _is_list(response: Response) -> bool:
    return response.url.endswith("/v1/recommend") and response.ok


def _is_action(response: Response) -> bool:
    return response.url.endswith("/v1/sphere") and response.request.method == "POST"


def spoil(route: Route) -> None:
    """Send a body to the real server that it refuses."""
    route.continue_(post_data='{"history": 5}')


def hostile_run(base: Path) -> tuple[Path, Path]:
    """A dataset whose titles attack a page, and a short run on it. It is no built-in world."""
    users = 20
    rows = [
        (f"u{user}", f"i{(user * 7 + step * 3) % 24}", 1_600_000_000 + user * 100 + step, "buy" if step % 3 else "view")
        for user in range(users)
        for step in range(12)
    ]
    log = pd.DataFrame(rows, columns=["user", "item", "time", "event"])
    titles = [HOSTILE[item] if item < len(HOSTILE) else f"Plain thing {item}" for item in range(24)]
    log["title"] = [titles[int(item[1:])] for item in log["item"]]
    columns: dict[str, Any] = {name: name for name in ("user", "item", "time", "title")}
    data = ecoc.prepare(log, base / "hostile-data", feedback="event", reward="view=0,buy=1", threads=1, **columns)
    config = {"encoder": {"dim": 8, "length": 12}, "train": {"max_steps": 10, "threads": 1, "counts": "off"}}
    ecoc.train(data, base / "hostile", method="ecoc", config=config)
    return base / "hostile-data", base / "hostile"
