"""The page of a server in a real browser: what it does, on which screens, by which keys, and when things fail."""

import json
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from page_case import CHROMIUM, HOSTILE, Visitor, hostile_run, spoil
from playwright.sync_api import Browser, Page, Route, expect, sync_playwright
from server_case import Server, serving

import ecoc
from ecoc.serving.play import MOST_USERS

TOKEN = "a-token-of-the-tests"
Visit = Callable[..., Visitor]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not Path(CHROMIUM).exists():
        pytest.fail("chromium is not installed; apt-get install --no-install-recommends chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visit]:
    """Opens a page of a server in a browser of its own. Nothing may go wrong on it that the test does not expect."""
    visitors: list[Visitor] = []
    contexts = []

    def open_page(server: Server, *, width: int = 1280, **options: Any) -> Visitor:
        motion = options.pop("reduced_motion", "reduce")
        context = browser.new_context(viewport={"width": width, "height": 900}, reduced_motion=motion, **options)
        contexts.append(context)
        visitors.append(Visitor(context, server.address))
        return visitors[-1]

    yield open_page
    for context in contexts:
        context.close()
    for visitor in visitors:
        assert visitor.foreign == []
        assert visitor.problems == []


@pytest.fixture(scope="module")
def world_server(models: Path) -> Iterator[Server]:
    with serving(models / "ecoc-bundle") as server:
        yield server


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hostile_run(tmp_path_factory.mktemp("hostile"))[1]


@dataclass
class Fitting:
    """What the page of a model of a plain log showed while the simulator was fitted, and afterwards."""

    server: Server
    reason: str
    has_form: bool
    history: list[str]


@pytest.fixture(scope="module")
def fitting(hostile: Path, browser: Browser) -> Iterator[Fitting]:
    """A model of a plain log, opened for the first time. The fit takes seconds, so it is done once."""
    with serving(hostile) as server:
        context = browser.new_context(reduced_motion="reduce")
        visitor = Visitor(context, server.address)
        page = visitor.open()
        expect(page.locator("#session-off")).not_to_have_text("Loading…")
        reason, has_form = visitor.text("#session-off"), page.is_visible("#session-form")
        visitor.add("i3")
        expect(page.locator("#session-form")).to_be_visible(timeout=60_000)
        history = visitor.history()
        assert visitor.problems == visitor.foreign == []
        context.close()
        yield Fitting(server, reason, has_form, history)


@pytest.fixture(scope="module")
def hostile_server(fitting: Fitting) -> Server:
    return fitting.server


def request(server: Server, path: str, body: object = None, token: str | None = None) -> Any:
    """What the server answers to a program."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    with server.client(headers=headers) as client:
        answer = client.get(path) if body is None else client.post(path, json=body)
    assert answer.is_success, answer.text
    return answer.json()


# ------------------------------------------------------------------------------------------------ what it does


def test_a_list_follows_the_history(world_server: Server, visit: Visit) -> None:
    """The history is built by search, by feedback, by order; each change gives the list that the route gives."""
    visitor = visit(world_server)
    page = visitor.open()
    assert "The history is empty, so these are popular items" in visitor.text("#list-status")
    assert visitor.text("#no-events").startswith("No events yet")
    first, second = visitor.add("i0012"), visitor.add("i0034")
    assert visitor.history() == [first, second] == ["i0012", "i0034"]
    with visitor.answered():
        page.select_option("#events li:nth-child(2) select", "buy")
    chosen = page.input_value("#feedback")
    history = [{"item": first, "feedback": chosen}, {"item": second, "feedback": "buy"}]
    wanted = {"history": history, "rank_by": "blend", "w": 10.0}
    answer = request(world_server, "/v1/recommend", wanted)
    assert visitor.listed() == [item["item"] for item in answer["items"]]
    best = answer["items"][0]
    assert page.locator("#rows tr").first.locator("td, th").all_inner_texts()[1:4] == [
        f"{best['title']}\n{best['item']}",
        f"{best['score']:.3f}".replace("-", "−"),
        f"{best['value']:.2f}".replace("-", "−"),
    ]
    page.click("#request summary")
    sent = visitor.text("#request-text").partition("'")[2].rpartition("'")[0]
    assert json.loads(sent) == wanted | {"k": 10, "exclude_seen": True, "w": 10}

    with visitor.answered():
        page.click("#events li:nth-child(2) .up")
    assert visitor.history() == [second, first]
    with visitor.answered():
        page.click("#rows tr:nth-child(3) .add")
    assert len(visitor.history()) == 3
    with visitor.answered():
        page.select_option("#count", "50")
    assert len(visitor.listed()) == 50
    assert not set(visitor.history()) & set(visitor.listed())
    with visitor.answered():
        page.uncheck("#exclude-seen")
    assert len(visitor.listed()) == 50
    with visitor.answered():
        page.click("#events li:nth-child(1) .remove")
    assert len(visitor.history()) == 2
    with visitor.answered():
        page.click("#clear")
    assert visitor.history() == []
    with visitor.answered():
        page.click("#example")
    assert len(visitor.history()) == 3


def test_search_says_what_it_does(world_server: Server, visit: Visit) -> None:
    visitor = visit(world_server)
    page = visitor.open()
    assert visitor.matches("i0012") == ["i0012"]
    assert visitor.text("#search-status") == "1 item. Enter adds the marked one."
    assert visitor.matches("no such item") == []
    assert visitor.text("#search-status") == "No item matches."
    assert len(visitor.matches("i00")) == 8
    assert "The first 8 of 100 items" in visitor.text("#search-status")
    page.press("#search", "Escape")
    assert page.is_hidden("#popup")


def test_the_weight_ranks_at_once(world_server: Server, visit: Visit) -> None:
    """Every weight gives the list of the blend with it; marks compare it with the supervised policy; 0 is that one."""
    visitor = visit(world_server)
    page = visitor.open()
    item = visitor.add("i0012")
    history = [{"item": item, "feedback": page.input_value("#feedback")}]
    cloned = request(world_server, "/v1/recommend", {"history": history, "rank_by": "policy", "k": 100})
    rank = {item["item"]: place for place, item in enumerate(cloned["items"])}
    lists = []
    for w in (0, 0.5, 1000):
        visitor.set_weight(w)
        answer = request(world_server, "/v1/recommend", {"history": history, "rank_by": "blend", "w": w})
        lists.append([item["item"] for item in answer["items"]])
        assert visitor.listed() == lists[-1]
        marks = page.locator("#rows .shift").evaluate_all("all => all.map(mark => mark.firstChild?.textContent || '')")
        shifts = [(rank.get(item, 100) - place, item in rank) for place, item in enumerate(lists[-1])]
        assert marks == [
            "" if by == 0 else f"{'▲' if by > 0 else '▼'}{abs(by)}{'' if is_known else '+'}" for by, is_known in shifts
        ]
    assert lists[0] == [item["item"] for item in cloned["items"][:10]]
    assert lists[0] != lists[2]


def test_the_action_moves_on_the_sphere(world_server: Server, visit: Visit) -> None:
    visitor = visit(world_server)
    page = visitor.open()
    expect(page.locator("#sphere-items circle")).to_have_count(200)
    expect(page.locator("#sphere-status")).to_contain_text("there is no action yet")
    assert visitor.point("action") is None
    points = []
    for item in ("i0012", "i0034", "i0056"):
        visitor.add(item)
        expect(page.locator(f"#sphere .past[data-item={item}]")).to_have_count(1)
        action, cloned = visitor.point("action"), visitor.point("cloned")
        assert action is not None
        assert cloned is not None
        assert action[0] ** 2 + action[1] ** 2 <= 1
        points.append(action)
    assert len(set(points)) == 3
    assert "it moved by" in visitor.text("#sphere-status")
    marked = page.locator("#sphere .listed").evaluate_all("dots => dots.map(dot => dot.dataset.item)")
    assert sorted(marked) == sorted(visitor.listed())
    visitor.set_weight(0)
    assert visitor.point("action") == visitor.point("cloned") != points[-1]
    page.hover("#rows tr:nth-child(2)")
    title = page.inner_text("#rows tr:nth-child(2) .title")
    expect(page.locator("#sphere .name")).to_have_text(title if len(title) <= 36 else f"{title[:35]}…")
    page.mouse.move(0, 0)
    expect(page.locator("#sphere .name")).to_be_hidden()


def test_an_item_on_the_sphere_can_be_added(world_server: Server, visit: Visit) -> None:
    visitor = visit(world_server)
    page = visitor.open()
    expect(page.locator("#sphere-items circle")).to_have_count(200)
    with visitor.answered():
        page.locator("#sphere-items circle").nth(17).click()
    assert len(visitor.history()) == 1


def test_a_session_is_drawn_as_it_goes(world_server: Server, visit: Visit) -> None:
    """Both policies meet the same users; the curves grow step by step and end at the sum of rewards."""
    visitor = visit(world_server, reduced_motion="no-preference")
    page = visitor.open()
    visitor.set_weight(5)
    page.select_option("#users", "1")
    page.fill("#seed", "3")
    page.click("#play")
    lengths: list[int] = []
    for _ in range(3):
        page.wait_for_function(
            "shown => Number(document.querySelector('#session').dataset.step) > shown", arg=len(lengths)
        )
        points = page.get_attribute("#curve-blend", "points") or ""
        lengths.append(len(points.split()))
    assert lengths == sorted(set(lengths)), "the curve grows"
    answer = request(world_server, "/v1/play", {"w": 5, "users": 1, "seed": 3})
    expect(page.locator("#session-status")).to_contain_text("Reward after 17 of 17 steps")
    for policy in answer["policies"]:
        assert len((page.get_attribute(f"#curve-{policy['name']}", "points") or "").split()) == 18
        assert page.text_content(f"#chart .total.{policy['name']}") == f"{policy['cumulative'][-1]:.1f}"
    assert page.locator("#step-rows tr").count() == 3 + 17
    assert page.locator("#steps-head th").all_inner_texts() == ["Step", "ECoC, w = 5", "Supervised policy"]
    page.click("#play")
    page.click("#stop")
    assert "of 17 steps" in visitor.text("#session-status")
    assert page.is_hidden("#stop")


def test_model_and_latency_are_shown(world_server: Server, visit: Visit) -> None:
    visitor = visit(world_server)
    page = visitor.open()
    info = request(world_server, "/v1/page")
    assert visitor.text("#model-name") == info["model"]["name"]
    assert visitor.text("#model-version") == info["model"]["version"]
    assert visitor.text("#model-method") == "ecoc, sasrec"
    assert visitor.text("#model-items") == "200"
    expect(page.locator("#latency")).to_have_text(re.compile(r"^\d+(\.\d)? ms$"))


# ------------------------------------------------------------------------------------------------ screens and keys

CUT_OFF = """() => {
  const cut = [];
  for (const element of document.querySelectorAll("body *")) {
    const box = element.getBoundingClientRect();
    if (!box.width || element.closest(".skip, .sr, svg *")) continue;
    if (box.left < -1 || box.right > innerWidth + 1)
      cut.push(`${element.tagName}.${element.className} ${element.textContent.slice(0, 40)}`);
  }
  for (const box of document.querySelectorAll(".scroll"))
    if (box.scrollWidth > box.clientWidth + 1) cut.push(`${box.id} scrolls sideways`);
  if (document.documentElement.scrollWidth > innerWidth) cut.push("the page scrolls sideways");
  return cut;
}"""


def test_every_width_is_enough(hostile_server: Server, visit: Visit) -> None:
    """Also with endless titles, a list of all items, and a played session."""
    visitor = visit(hostile_server, width=1280)
    page = visitor.open()
    for item in ("i3", "i4", "i0"):
        visitor.add(item)
    with visitor.answered():
        page.select_option("#count", "50")
    visitor.play()
    page.click("#request summary")
    visitor.matches("i")
    for width in (1920, 1280, 768, 390, 360):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function(
            "() => (chart => chart.viewBox.baseVal.width <= chart.clientWidth + 1)(document.querySelector('#chart'))"
        )
        assert page.evaluate(CUT_OFF) == [], width
    page.evaluate("() => { document.querySelector('#session-note').style.minWidth = '30rem'; }")
    assert page.evaluate(CUT_OFF) != [], "a paragraph that is too wide is noticed"


FAINT = """() => {
  const numbers = color => color.match(/[\\d.]+/g).map(Number);
  const light = color => {
    const linear = v => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = numbers(color).slice(0, 3).map(v => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const under = element => {
    for (; element; element = element.parentElement) {
      const color = getComputedStyle(element).backgroundColor;
      if ((numbers(color)[3] ?? 1) === 1) return color;
    }
    return "rgb(255, 255, 255)";
  };
  const faint = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.getBoundingClientRect().width) continue;
    if (element.closest("noscript, button:disabled, .skip")) continue;
    const style = getComputedStyle(element);
    const front = element.closest("svg") ? style.fill : style.color;
    const [a, b] = [light(front), light(under(element))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) faint.push(`${element.textContent.slice(0, 30)} ${front} on ${under(element)}`);
  }
  return faint;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_are_readable(world_server: Server, visit: Visit, scheme: str) -> None:
    visitor = visit(world_server, color_scheme=scheme)
    page = visitor.open()
    visitor.add("i0012")
    visitor.play(MOST_USERS)
    visitor.matches("i00")
    shade = sum(page.evaluate("() => getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")[:3])
    assert shade > 700 if scheme == "light" else shade < 100
    assert page.evaluate(FAINT) == []


def test_faint_text_would_be_noticed(world_server: Server, visit: Visit) -> None:
    page = visit(world_server).open()
    page.evaluate("() => { document.querySelector('#list-title').style.color = 'rgb(180, 180, 180)'; }")
    assert page.evaluate(FAINT) == ["Recommendations rgb(180, 180, 180) on rgb(255, 255, 255)"]


FOCUSED = """() => {
  const element = document.activeElement;
  const box = element.getBoundingClientRect();
  const style = getComputedStyle(element);
  const isMarked = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1;
  const isSeen = box.width > 0 && box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth;
  return [element.id || element.className || element.tagName, isMarked && isSeen];
}"""


def tab_to(page: Page, name: str) -> list[str]:
    """Press Tab until an element has the focus; the names of all that had it. Each must be visibly marked."""
    names: list[str] = []
    while not names or names[-1] != name:
        page.keyboard.press("Tab")
        focused, is_visible = page.evaluate(FOCUSED)
        assert is_visible, f"{focused}: the focus cannot be seen"
        names.append(focused)
        assert len(names) < 80, f"{name} cannot be reached: {names}"
    return names


def test_everything_works_by_keyboard(world_server: Server, visit: Visit) -> None:
    """From the search to a played session, without a pointer."""
    visitor = visit(world_server)
    page = visitor.open()
    tab_to(page, "skip")
    page.keyboard.press("Enter")
    assert page.evaluate("() => document.activeElement.id") == "search"
    page.keyboard.type("i001")
    expect(page.locator("#matches li")).to_have_count(8)
    expect(page.locator("#match-0")).to_have_attribute("aria-selected", "true")
    for key in ("ArrowDown", "ArrowDown", "ArrowUp"):
        page.keyboard.press(key)
    assert page.get_attribute("#search", "aria-activedescendant") == "match-1"
    item = page.get_attribute("#match-1", "data-item")
    with visitor.answered():
        page.keyboard.press("Enter")
    assert visitor.history() == [item]
    assert page.is_hidden("#popup")
    page.keyboard.type("i0020")  # replaces the text
    expect(page.locator("#match-0")).to_have_attribute("data-item", "i0020")
    with visitor.answered():
        page.keyboard.press("Enter")
    assert visitor.history() == [item, "i0020"]
    assert visitor.text("#history-status").endswith("added.")

    tab_to(page, "feedback")
    tab_to(page, "down")  # of the first event
    with visitor.answered():
        page.keyboard.press("Enter")
    assert visitor.history() == ["i0020", item]
    assert page.evaluate(FOCUSED) == ["up", True], "the last event cannot go further down"
    tab_to(page, "weight")
    before = visitor.listed()
    with visitor.answered():
        page.keyboard.press("Home")
    assert visitor.text("#weight-shown") == "0"
    assert visitor.listed() != before
    tab_to(page, "exclude-seen")
    tab_to(page, "add")
    with visitor.answered():
        page.keyboard.press("Enter")
    assert len(visitor.history()) == 3
    assert page.evaluate(FOCUSED)[0] == "add", "the focus stays in the list"
    tab_to(page, "SUMMARY")
    page.keyboard.press("Enter")
    tab_to(page, "request-text")
    tab_to(page, "seed")
    tab_to(page, "play")
    page.keyboard.press("Enter")
    expect(page.locator("#session-status")).to_contain_text("Reward after 17 of 17 steps")
    tab_to(page, "steps-box")


def test_changes_are_read_aloud(world_server: Server, visit: Visit) -> None:
    page = visit(world_server).open()
    for region in ("search-status", "list-status", "history-status", "sphere-status", "session-status"):
        expect(page.locator(f"#{region}")).to_have_attribute("role", "status")
    for region in ("offline", "list-error", "session-error", "token-note"):
        expect(page.locator(f"#{region}")).to_have_attribute("role", "alert")


# ------------------------------------------------------------------------------------------------ safety


def attack(visitor: Visitor) -> list[str]:
    """Visit every place that shows titles; titles, or parts of them, that became markup or ran."""
    page = visitor.open()
    for item in ("i0", "i1", "i5"):
        visitor.add(item)
    with visitor.answered():
        page.select_option("#count", "50")
    with visitor.answered():
        page.uncheck("#exclude-seen")
    visitor.matches("i")
    for seed in range(3):
        page.fill("#seed", str(seed))
        visitor.play()
    for row in page.locator("#rows tr").all()[:8]:
        row.hover()
    titles = page.locator("#rows .title").evaluate_all("titles => titles.map(title => title.textContent)")
    damage = [title[:40] for title in HOSTILE if title.strip() not in titles]
    elements = "() => [...document.querySelectorAll('main img, main script, main h1, [onfocus], [onerror]')]"
    damage += page.evaluate(f"{elements}.map(element => element.tagName)")
    page.wait_for_timeout(200)  # a picture that is not there fails a moment later
    if page.evaluate("() => document.body.dataset.hacked") is not None:
        damage.append("a title ran")
    return damage


def test_hostile_titles_stay_text(hostile_server: Server, visit: Visit) -> None:
    visitor = visit(hostile_server)
    assert attack(visitor) == []
    assert visitor.page.locator("#step-rows .title").count() > 0


AS_MARKUP = "Object.assign(el('bdi', { class: 'title' }), { innerHTML: item.title || item.item })"


def careless(route: Route) -> None:
    """The script of the page, but with titles as markup."""
    answer = route.fetch()
    script = answer.text()
    title = 'el("bdi", { class: "title" }, item.title || item.item)'
    assert title in script
    route.fulfill(response=answer, body=script.replace(title, AS_MARKUP))


def without_policy(route: Route) -> None:
    """The page without its Content-Security-Policy."""
    answer = route.fetch()
    headers = {name: text for name, text in answer.headers.items() if name != "content-security-policy"}
    route.fulfill(response=answer, headers=headers)


@pytest.mark.parametrize("has_policy", [True, False])
def test_a_careless_page_would_be_noticed(hostile_server: Server, visit: Visit, has_policy: bool) -> None:
    """Titles as markup fail the check above. They run only without the policy: it is a second wall."""
    visitor = visit(hostile_server)
    visitor.page.route("**/dom.js", careless)
    if not has_policy:
        visitor.page.route(f"{hostile_server.address}/", without_policy)
    damage = attack(visitor)
    assert "IMG" in damage
    assert ("a title ran" in damage) is not has_policy
    assert any("Content Security Policy" in problem for problem in visitor.problems) is has_policy
    visitor.problems.clear()


class _Markup(HTMLParser):
    """Collects what a strict policy forbids."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: list[str] = []
        self.is_script = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.is_script = tag == "script"
        self.refused += [f"{tag} {name}" for name in given if name == "style" or name.startswith("on")]
        self.refused += [f"{tag} {given[name]}" for name in ("src", "href") if ":" in (given.get(name) or "")]
        if tag == "style" or (self.is_script and not given.get("src")):
            self.refused.append(tag)

    def handle_data(self, data: str) -> None:
        if self.is_script and data.strip():
            self.refused.append("inline script")


def refused_markup(text: str) -> list[str]:
    markup = _Markup()
    markup.feed(text)
    return markup.refused


def test_policy_and_markup_are_strict(world_server: Server) -> None:
    with world_server.client() as client:
        answer = client.get("/")
    policy, text = answer.headers["Content-Security-Policy"], answer.text
    rules = {rule.split()[0]: rule.split()[1:] for rule in policy.split(";")}
    assert rules["default-src"] == ["'none'"]
    assert {source for sources in rules.values() for source in sources} <= {"'none'", "'self'", "data:"}
    assert {"base-uri", "form-action", "frame-ancestors"} <= set(rules)
    assert refused_markup(text) == ["link data:,"], "an empty icon, so that none is requested"
    careless_page = (
        "<p style='a' onclick='b'><script>c</script><script src='https://x.example/y'></script><style></style>"
    )
    assert refused_markup(careless_page) == [
        "p style", "p onclick", "script", "inline script", "script https://x.example/y", "style",
    ]  # fmt: skip


# ------------------------------------------------------------------------------------------------ when things fail


def test_a_refusal_is_shown(world_server: Server, visit: Visit) -> None:
    visitor = visit(world_server)
    page = visitor.open()
    page.route("**/v1/recommend", spoil)
    page.select_option("#count", "5")
    expect(page.locator("#list-error")).to_be_visible()
    assert visitor.text("#list-error").startswith("The server refused this: Expected")
    page.unroute("**/v1/recommend")
    with visitor.answered():
        page.select_option("#count", "20")
    assert page.is_hidden("#list-error")
    page.route("**/v1/play", spoil)
    page.click("#play")
    expect(page.locator("#session-error")).to_be_visible()
    assert visitor.text("#session-error").startswith("The server refused this: Object contains unknown field")
    page.unroute("**/v1/play")
    visitor.play()
    assert page.is_hidden("#session-error")
    assert len(visitor.problems) == 2
    assert all("status of 400" in problem for problem in visitor.problems)
    visitor.problems.clear()


def test_a_busy_server_is_shown(world_server: Server, visit: Visit) -> None:
    """More sessions than the server accepts at once: 503. The page says so and goes on by itself."""
    visitor = visit(world_server)
    page = visitor.open()

    is_over = threading.Event()

    def flood() -> None:
        end = time.monotonic() + 20
        while not is_over.is_set() and time.monotonic() < end:
            client.post("/v1/play", json={"users": MOST_USERS})

    with world_server.client() as client, ThreadPoolExecutor(40) as pool:
        for _ in range(40):
            pool.submit(flood)
        try:
            page.fill("#search", "i0001")
            page.wait_for_timeout(500)
            page.fill("#search", "i0002")
            expect(page.locator("#offline")).to_be_visible(timeout=15_000)
            assert visitor.text("#offline").startswith("The server is busy (")
        finally:
            is_over.set()
    expect(page.locator("#offline")).to_be_hidden(timeout=20_000)
    assert visitor.matches("i0012") == ["i0012"]
    assert all("status of 503" in problem for problem in visitor.problems)
    visitor.problems.clear()


def test_a_stopped_server_is_shown_until_it_is_back(models: Path, visit: Visit) -> None:
    """And a method without item vectors: no sphere, no weight, and the page says why."""
    with serving(models / "markov-bundle") as server:
        visitor = visit(server)
        page = visitor.open()
        expect(page.locator("#sphere-status")).to_have_text(
            "Method markov has no item vectors, so there is no sphere to draw."
        )
        assert page.is_hidden("#sphere")
        assert page.is_hidden("#weight")
        visitor.add("i0012")
        visitor.play()
        assert page.locator("#steps-head th").all_inner_texts() == ["Step", "This policy"]
    page.click("#clear")
    expect(page.locator("#offline")).to_contain_text(
        "The server does not answer. This page tries again every 2 seconds."
    )
    assert visitor.text("#list-status") == "The server does not answer."
    page.mouse.wheel(0, 5000)
    expect(page.locator("#offline")).to_be_in_viewport()
    assert visitor.text("#latency") == "–"
    page.fill("#search", "i0034")
    expect(page.locator("#search-status")).to_have_text("The server does not answer.")
    with serving(models / "markov-bundle", port=server.port):
        expect(page.locator("#offline")).to_be_hidden(timeout=20_000)
        expect(page.locator("#list-status")).to_contain_text("The history is empty")
        assert visitor.add("i0034") == "i0034"
    assert all("Failed to load resource" in problem for problem in visitor.problems)
    visitor.problems.clear()


def test_a_token_is_asked_for(models: Path, hostile: Path, tmp_path: Path, visit: Visit) -> None:
    """Then three models in turn: without a critic, with one, and without users to play with."""
    for name in ("supervised-bundle", "ecoc-bundle"):
        shutil.copytree(models / name, tmp_path / name)
    ecoc.export(hostile, tmp_path / "hostile-bundle")
    with serving(tmp_path / "supervised-bundle", token=TOKEN) as server:
        visitor = visit(server)
        page = visitor.page
        page.goto(server.address)
        expect(page.locator("#token-form")).to_be_visible()
        expect(page.locator("#token")).to_be_focused()
        assert visitor.text("#list-status") == "The server waits for its token."
        page.fill("#token", "wrong")
        page.keyboard.press("Enter")
        expect(page.locator("#token-note")).to_have_text("The server refused this token.")
        page.fill("#token", TOKEN)
        page.keyboard.press("Enter")
        page.wait_for_selector("#rows tr")
        assert page.is_hidden("#token-form")
        assert TOKEN not in page.url + page.content()
        assert visitor.text("#weight-note") == (
            "This model has no critic, so there are no long-term values and no weight w."
        )
        assert page.is_hidden("#weight")
        assert page.locator(".value:visible").count() == 0
        visitor.add("i0012")
        visitor.play()
        assert "This model has no critic, so its only ranking is played" in visitor.text("#session-lead")

        request(server, "/admin/reload", {"path": "ecoc-bundle"}, TOKEN)
        page.select_option("#count", "20")
        expect(page.locator("#weight")).to_be_visible()
        expect(page.locator("#rows tr")).to_have_count(20)
        assert visitor.history() == ["i0012"]
        assert page.locator("#rows .value").first.inner_text() != "–"

        request(server, "/admin/reload", {"path": "hostile-bundle"}, TOKEN)
        page.select_option("#count", "10")
        expect(page.locator("#session-off")).to_contain_text("Start it with ecoc serve MODEL --data DATA")
        expect(page.locator("#events li")).to_have_class("unknown")
        assert "The model knows no item of the history" in visitor.text("#list-status")
        page.reload()
        page.wait_for_selector("#rows tr")
        assert page.is_hidden("#token-form"), "the token is kept while the tab is open"
    assert all("status of 401" in problem for problem in visitor.problems)
    visitor.problems.clear()


def test_a_simulator_is_fitted_while_the_page_works(fitting: Fitting, visit: Visit) -> None:
    """A model of a plain log: its run names the dataset."""
    assert fitting.reason == "The simulator is being fitted on the log. This takes a moment."
    assert not fitting.has_form
    assert fitting.history == ["i3"], "what was done meanwhile stays"
    visitor = visit(fitting.server)
    visitor.open()
    visitor.play(10)
    assert "a simulator of users that was fitted on the log" in visitor.text("#session-lead")
    assert "Mean reward of 10 users so far" in visitor.text("#session-note")
    assert "Do not rely on these figures: the log has 9.2 events per item" in visitor.text("#session-note")
