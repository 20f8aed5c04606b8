"""Tables on a terminal."""

from ecoc.experiment.text import table_text
from ecoc.report.document import Column, Number, Table


def test_a_table_is_aligned_grouped_and_marks_the_best_of_each_group() -> None:
    table = Table(
        id="t",
        title="Quality",
        columns=[Column(name="method"), Column(name="HR@10", better="high", digits=2), Column(name="Δ", digits=1)],
        rows=[
            ["a", Number(value=0.5, sd=0.01), None],
            ["bbb", Number(value=0.25), Number(value=-0.25, low=-0.3, high=-0.1, mark="*")],
            ["c", Number(value=0.1), None],
            ["d", "not run", None],
        ],
        groups=["one", "one", "two", "two"],
        note="A note.",
    )
    assert table_text(table.model_dump(mode="json")).splitlines() == [
        "Quality",
        "    method         HR@10                   Δ",
        "  one",
        "    a       0.50 ± 0.01◂",
        "    bbb             0.25  -0.2 [-0.3, -0.1]*",
        "  two",
        "    c               0.10",
        "    d            not run",
        "  A note.",
    ]
