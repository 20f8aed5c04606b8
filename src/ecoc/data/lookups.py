"""Item tables beside a log: outside id -> title, price, category."""

from collections.abc import Sequence

import pyarrow as pa

from ecoc.data.engine import Engine
from ecoc.data.readers import Reader
from ecoc.data.sql_columns import literal

SCHEMA = pa.schema([("item", pa.string()), ("title", pa.string()), ("price", pa.float64()), ("category", pa.string())])


def read_lookup(
    reader: Reader,
    *,
    item: str,
    title: str | None = None,
    price: str | None = None,
    category: str | None = None,
    flags: Sequence[str] = (),
) -> pa.Table:
    """Read an item table; `flags` are 0/1 columns whose names make up the category. The first row of an item counts."""
    reader.select([name for name in (item, title, price, category, *flags) if name is not None])
    category_sql = reader.cell(category).text if category else "NULL"
    if flags:
        marked = ", ".join(f"CASE WHEN {reader.cell(flag).text} = '1' THEN {literal(flag)} END" for flag in flags)
        category_sql = f"array_to_string(list_filter([{marked}], lambda name: name IS NOT NULL), '|')"
    engine = Engine()
    try:
        engine.run("CREATE TABLE found (item VARCHAR, title VARCHAR, price DOUBLE, category VARCHAR, row BIGINT)")
        engine.feed(
            reader.batches(),
            f"INSERT INTO found SELECT {reader.cell(item).text}, {reader.cell(title).text if title else 'NULL'},"
            f" {reader.cell(price).number if price else 'NULL'}, nullif({category_sql}, ''), row"
            f" FROM {reader.relation}",
        )
        reader.report()
        return _table(
            engine,
            "SELECT item, arg_min(title, row) AS title, arg_min(price, row) AS price,"
            " arg_min(category, row) AS category FROM found WHERE item IS NOT NULL GROUP BY item",
        )
    finally:
        engine.close()


def latest_property(readers: Sequence[Reader], *, item: str, name: str, part: str) -> pa.Table:
    """The latest value of property `name` of each item, from files of (timestamp, item, property, value) rows."""
    engine = Engine()
    try:
        engine.run("CREATE TABLE found (item VARCHAR, time BIGINT, value VARCHAR)")
        for reader in readers:
            reader.select(["timestamp", item, "property", "value"])
            engine.feed(
                reader.batches(),
                f"INSERT INTO found SELECT {reader.cell(item).text}, {reader.cell('timestamp').integer},"
                f" {reader.cell('value').text} FROM raw WHERE {reader.cell('property').text} = {literal(name)}",
            )
            reader.report()
        columns = ", ".join(
            f"arg_max(value, (time, value)) AS {column}" if column == part else f"NULL AS {column}"
            for column in ("title", "price", "category")
        )
        return _table(engine, f"SELECT item, {columns} FROM found GROUP BY item")
    finally:
        engine.close()


def _table(engine: Engine, sql: str) -> pa.Table:
    batches = list(engine.stream(sql + " ORDER BY item"))
    return pa.Table.from_batches(batches).cast(SCHEMA) if batches else SCHEMA.empty_table()
