"""A real server on a real socket and a real browser, for the tests of the page."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import pandas as pd
from playwright.sync_api import BrowserContext, Page, Request, Response, Route

import ecoc

ECOC = Path(sys.executable).parent / "ecoc"
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


class Server:
    """`ecoc serve` as a process."""

    def __init__(self, model: Path, *options: str, port: int = 0, token: str | None = None) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        environment.pop("ECOC_TOKEN", None)
        if token is not None:
            environment["ECOC_TOKEN"] = token
        arguments = [str(ECOC), "serve", str(model), "--port", str(port), "--no-access-log", "--json", *options]
        self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE, env=environment, text=True)
        assert self.process.stdout is not None
        self.address = _read_json(self.process.stdout)["address"]

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def _read_json(stream: IO[str]) -> dict[str, str]:
    """The first JSON value of a stream; empty lines of an ended process fail."""
    text = ""
    while line := stream.readline():
        text += line
        with suppress(ValueError):
            value: dict[str, str] = json.loads(text)
            return value
    raise AssertionError(f"the server ended: {text}")


@contextmanager
def serving(model: Path, *options: str, port: int = 0, token: str | None = None) -> Iterator[Server]:
    server = Server(model, *options, port=port, token=token)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.stop()


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
        self.settle()
        return self.page

    def settle(self) -> None:
        """Wait until no request is under way."""
        self.page.wait_for_function("() => document.querySelector('#list-box').getAttribute('aria-busy') === 'false'")
        self.page.wait_for_load_state("networkidle")

    def listed(self) -> list[str]:
        """Ids of the list."""
        return [row.get_attribute("data-item") or "" for row in self.page.query_selector_all("#rows tr")]

    def history(self) -> list[str]:
        """Ids of the history."""
        return [row.get_attribute("data-item") or "" for row in self.page.query_selector_all("#events li")]

    def add(self, text: str) -> str:
        """Search for a text and add the first item found; its id."""
        with self.page.expect_response(re.compile(r"/v1/items\?.*query=[^&]")):
            self.page.fill("#search", text)
        self.page.wait_for_function(
            "text => document.querySelector('#found .label')?.textContent.toLowerCase().includes(text)",
            arg=text.lower(),
        )
        item = self.page.get_attribute("#found button", "data-item") or ""
        with self.answered():
            self.page.press("#search", "Enter")
        return item

    @contextmanager
    def answered(self) -> Iterator[None]:
        """A new list arrives within the block."""
        with self.page.expect_response(_is_list):
            yield
        self.settle()

    def action(self) -> tuple[float, float] | None:
        """Where the action is drawn; none if it is not."""
        dot = self.page.locator("#action")
        if dot.get_attribute("visibility") == "hidden":
            return None
        return float(dot.get_attribute("data-x") or "nan"), float(dot.get_attribute("data-y") or "nan")

    def set_weight(self, place: int) -> None:
        """Move the slider."""
        with self.answered():
            self.page.locator("#weight").fill(str(place))

    def is_narrow(self) -> bool:
        """Whether the page needs no scrolling to the side."""
        return bool(self.page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth"))


def _is_list(response: Response) -> bool:
    return response.url.endswith("/v1/recommend") and response.ok


def spoil(route: Route) -> None:
    """Send a body to the real server that it refuses."""
    route.continue_(post_data='{"history": 5}')


def hostile_run(base: Path) -> tuple[Path, Path]:
    """A dataset whose titles attack a page, and a short run on it. It is no built-in world."""
    users = 40
    rows = [
        (f"u{user}", f"i{(user * 7 + step * 3) % 24}", 1_600_000_000 + user * 100 + step, "buy" if step % 3 else "view")
        for user in range(users)
        for step in range(12)
    ]
    log = pd.DataFrame(rows, columns=["user", "item", "time", "event"])
    titles = [HOSTILE[item] if item < len(HOSTILE) else f"Plain thing {item}" for item in range(24)]
    log["title"] = [titles[int(item[1:])] for item in log["item"]]
    data = ecoc.prepare(log, base / "hostile-data", feedback="event", rewards="view=0,buy=1", title="title", threads=1)
    config = {"encoder": {"dim": 8, "length": 12}, "train": {"max_steps": 10, "threads": 1, "counts": "off"}}
    ecoc.train(data, base / "hostile", method="ecoc", config=config)
    return base / "hostile-data", base / "hostile"
