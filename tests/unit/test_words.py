"""One name for one thing: names that an earlier version used, and names that say nothing, do not come back."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "ecoc"
ANYTHING = {"found", "one", "facts", "told", "said", "asked", "moves", "behind", "doubt", "charge", "spool", "say"}
CLASSES = {"Scene", "Columns", "Imitation", "Worth", "Parts", "Sessions", "Watcher", "Journal", "Play", "Played"}
CLASSES |= {"Starts", "Mood", "Logged", "Witness", "Bench", "Judged", "Desk", "Pace", "Found", "Asked", "ControlPolicy"}
FUNCTIONS = {"learn", "settle", "finish", "worries", "is_watched", "few_rows", "tower", "freshens", "fresh", "aimed"}
FUNCTIONS |= {"resting_states", "spread", "catalogue", "acting", "unwatched", "go", "_aim", "_merit", "_look"}
FUNCTIONS |= {"unskilled", "lacking", "habits", "made_up", "apart", "imitate"}


def former_names(text: str) -> set[str]:
    """Names of the lists above that a module binds."""
    names = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.ClassDef(name=name):
                names |= {name} & (CLASSES | ANYTHING)
            case ast.FunctionDef(name=name):
                names |= {name} & (FUNCTIONS | ANYTHING)
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                names |= {name} & ANYTHING
    return names


def test_no_former_name_is_bound() -> None:
    texts = {str(path.relative_to(SOURCE)): path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")}
    names = {path: former_names(text) for path, text in texts.items() if former_names(text)}
    assert names == {"reporting/document.py": {"facts"}}, "a key of report.json"


def test_former_names_would_be_noticed() -> None:
    text = "class Desk:\n    def learn(self, asked):\n        found = asked\n        self.say = [one for one in found]"
    assert former_names(text) == {"Desk", "learn", "asked", "found", "say", "one"}
    assert former_names("tower = 'learn'\nprint(found)") == set(), "only what a module binds, and a function's name"
