"""Item tables that come with a log: item id -> title, price, category."""

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
    """Read an item table; `flags` are 0/1 columns whose names form the category. The first row of an item is used."""
    reader.select([name for name in (item, title, price, category, *flags) if name is not None])
    title_sql = reader.sql_column(title).text if title else "NULL"
    price_sql = reader.sql_column(price).number if price else "NULL"
    category_sql = reader.sql_column(category).text if category else "NULL"
    if flags:
        marked = ", ".join(f"CASE WHEN {reader.sql_column(flag).text} = '1' THEN {literal(flag)} END" for flag in flags)
        category_sql = f"array_to_string(list_filter([{marked}], lambda name: name IS NOT NULL), '|')"
    engine = Engine()
    try:
        engine.run("CREATE TABLE item_rows (item VARCHAR, title VARCHAR, price DOUBLE, category VARCHAR, row BIGINT)")
        engine.feed(
            reader.batches(),
            f"INSERT INTO item_rows SELECT {reader.sql_column(item).text}, {title_sql}, {price_sql},"
            f" nullif({category_sql}, ''), row FROM {reader.relation}",
        )
        reader.report()
        return _table(
            engine,
            "SELECT item, arg_min(title, row) AS title, arg_min(price, row) AS price,"
            " arg_min(category, row) AS category FROM item_rows WHERE item IS NOT NULL GROUP BY item",
        )
    finally:
        engine.close()


def latest_property(readers: Sequence[Reader], *, item: str, name: str, part: str) -> pa.Table:
    """The latest value of property `name` of each item, from files of (timestamp, item, property, value) rows."""
    engine = Engine()
    try:
        engine.run("CREATE TABLE item_rows (item VARCHAR, time BIGINT, value VARCHAR)")
        for reader in readers:
            reader.select(["timestamp", item, "property", "value"])
            engine.feed(
                reader.batches(),
                f"INSERT INTO item_rows SELECT {reader.sql_column(item).text},"
                f" {reader.sql_column('timestamp').integer}, {reader.sql_column('value').text}"
                f" FROM raw WHERE {reader.sql_column('property').text} = {literal(name)}",
            )
            reader.report()
        columns = ", ".join(
            f"arg_max(value, (time, value)) AS {column}" if column == part else f"NULL AS {column}"
            for column in ("title", "price", "category")
        )
        return _table(engine, f"SELECT item, {columns} FROM item_rows GROUP BY item")
    finally:
        engine.close()


def _table(engine: Engine, sql: str) -> pa.Table:
    batches = list(engine.stream(sql + " ORDER BY item"))
    return pa.Table.from_batches(batches).cast(SCHEMA) if batches else SCHEMA.empty_table()
