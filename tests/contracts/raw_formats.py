"""Writers of small files in the true raw format of each public dataset."""

import calendar
import hashlib
import json
import random
from base64 import urlsafe_b64encode
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from raw_rows import Case, Facts, Row, draws, in_order, rows_of, with_faults


def _text_id(kind: str, number: int) -> str:
    """Like a Yelp id: 22 characters of letters, digits, - and _."""
    return urlsafe_b64encode(hashlib.md5(f"{kind}{number}".encode()).digest())[:22].decode()


def write_yelp(folder: Path, shuffle: random.Random | None) -> Case:
    good: list[tuple[str, Row | None]] = []
    first = calendar.timegm((2019, 12, 31, 0, 0, 0))
    for number, draw in enumerate(draws(1, 700, users=24, items=20, actions=5, ticks=400)):
        time, stars = first + int(draw.when * 10_000_000), draw.action + 1
        record = {
            "review_id": _text_id("review", number),
            "user_id": _text_id("user", draw.user),
            "business_id": _text_id("business", draw.item),
            "stars": float(stars),
            "useful": number % 7,
            "funny": 0,
            "cool": 1,
            "text": f'Said "{{ok}}", then left.\n\nBraces }}{{, a comma, a tab\t and \u2028 é #{number}',
            "date": datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S"),
        }
        row = Row(record["user_id"], record["business_id"], str(stars), stars, time)  # type: ignore[arg-type]
        good.append((json.dumps(record, ensure_ascii=number % 2 == 0), row))
    blank = '{"user_id": "%s", "business_id": %s, "stars": %s, "text": "", "date": "%s"}'
    faults = [
        blank % ("", '"b"', "3.0", "2020-01-01 00:00:00"),
        blank % ("u", "null", "3.0", "2020-01-01 00:00:00"),
        blank % ("u", '"b"', "3.0", "2021-02-30 00:00:00"),
        blank % ("u", '"b"', "6.0", "2020-01-01 00:00:00"),
        '{"user_id": "u", "business_id": "b", "sta',
    ]
    lines = in_order(with_faults(good, faults), shuffle)
    if lines[0][1] is None:  # a first line that is no object is another test's business
        lines.append(lines.pop(0))
    log = folder / "yelp_academic_dataset_review.json"
    log.write_text("\n".join(line for line, _ in lines) + "\n\n", encoding="utf-8")
    facts = {
        _text_id("business", k): Facts(f'Café "No. {k}", Inc.', None, None if k % 4 == 0 else f"Food, Bars {k % 3}")
        for k in range(15)
    }
    business = [
        {"business_id": key, "name": known.title, "city": "Reno", "stars": 4.5, "is_open": 1, "attributes": {"a": "b"}}
        | {"categories": known.category, "hours": None}
        for key, known in facts.items()
    ]
    (folder / "yelp_academic_dataset_business.json").write_text("\n".join(map(json.dumps, business)), encoding="utf-8")
    dropped = dict.fromkeys(("blank_user", "blank_item", "bad_time", "bad_feedback", "malformed_row"), 1)
    return Case(
        log, rows_of(lines), tuple("12345"), "s", dropped, facts, {}, min_item_support=10, min_length=10, dedup="exact"
    )


_TMALL_DAYS = [(5, 11), (6, 30), (7, 1), (8, 31), (9, 30), (10, 1), (10, 31), (11, 1), (11, 10), (11, 11), (11, 12)]


def write_tmall(folder: Path, shuffle: random.Random | None) -> Case:
    actions = {0: ("click", 1.0), 1: ("cart", 2.0), 2: ("buy", 3.0), 3: ("favourite", 2.0)}
    good: list[tuple[str, Row | None]] = []
    facts: dict[str, Facts] = {}
    for number, draw in enumerate(draws(2, 900, users=22, items=18, actions=4, ticks=len(_TMALL_DAYS))):
        month, day = _TMALL_DAYS[int(draw.when * len(_TMALL_DAYS))]
        user, item, category = str(draw.user + 328_860), str(draw.item + 323_290), str(draw.item % 5 + 800)
        brand = "" if draw.item % 3 == 0 else str(draw.item + 2_000)
        line = f"{user},{item},{category},{number % 9 + 2800},{brand},{month}{day:02d},{draw.action}"
        name, reward = actions[draw.action]
        good.append((line, Row(user, item, name, reward, calendar.timegm((2014, month, day, 0, 0, 0)))))
        facts[item] = Facts(category=category)
    faults = [
        "1,2,3,4,5,931,0",
        "1,2,3,4,5,0,0",
        "1,2,3,4,5,1111,7",
        "1,2,3,4,1111,0",
        ",2,3,4,,1111,0",
    ]
    lines = in_order(with_faults(good, faults), shuffle)
    log = folder / "user_log_format1.csv"
    header = "user_id,item_id,cat_id,seller_id,brand_id,time_stamp,action_type"
    log.write_text("\n".join([header, *(line for line, _ in lines)]) + "\n")
    dropped = {"bad_time": 2, "bad_feedback": 1, "malformed_row": 1, "blank_user": 1}
    names = ("click", "cart", "favourite", "buy")
    return Case(
        folder, rows_of(lines), names, "s", dropped, facts, {}, min_item_support=20, min_length=10, dedup="feedback"
    )


_RL4RS_HEADER = (
    "timestamp@session_id@sequence_id@exposed_items@user_feedback@user_seqfeature"
    "@user_protrait@item_feature@behavior_policy_id"
)


def write_rl4rs(folder: Path, shuffle: random.Random | None) -> Case:
    rng = random.Random(3)
    prices = {str(k): rng.randrange(70, 14_781) / 10 for k in range(1, 41)}
    slates: dict[str, list[tuple[str, list[Row]]]] = {"sl": [], "rl": []}
    lost = 0
    for number in range(60):
        session, sequence, time = str(1000 + number // 2), str(number % 2 + 1), 1_581_696_000 + rng.randrange(9) * 60
        items = [str(k) for k in rng.sample(range(1, 39 if number % 20 < 12 else 41), 9)]
        if number == 7:
            items[4] = "283"  # not in the price table
            lost += 1
        bought = [rng.random() < 0.6 for _ in items]
        profile = ",".join(str(rng.randrange(9)) for _ in range(10)) + ",0.5" * 32
        features = ";".join(",".join(["0.25"] * 40) for _ in items)
        answers = ",".join("1" if yes else "0" for yes in bought)
        line = f"{time}@{session}@{sequence}@{','.join(items)}@{answers}@17,24,3@{profile}@{features}@{number % 2}"
        is_test = int(session) % 10 >= 6
        file = "sl" if number < 40 else "rl"
        slate = f"{file}:{sequence}:{time}"
        rows = [
            Row(session, item, "buy" if yes else "ignore", prices[item] if yes else 0.0, time, slate, place, is_test)
            for place, (item, yes) in enumerate(zip(items, bought, strict=True))
            if item in prices
        ]
        slates[file].append((line, rows))
    broken = "1581696000@1003@9@1,2,3,4,5,6,7,8@0,0,0,0,0,0,0,0@1@0@0@1"
    slates["rl"].insert(3, (broken, []))
    kept: list[Row] = []
    for name, part in slates.items():
        if shuffle is not None:
            shuffle.shuffle(part)
        text = "\n".join([_RL4RS_HEADER, *(line for line, _ in part)]) + "\n"
        (folder / f"rl4rs_dataset_a_{name}.csv").write_text(text)
        kept += [row for _, rows in part for row in rows]
    places = {item: str(1 + int(item) // 14) for item in prices}
    table = [f"{item} {','.join(['-0.21'] * 40)} {price} {places[item]} 0" for item, price in prices.items()]
    (folder / "item_info.csv").write_text("\n".join(["item_id item_vec price location special_item", *table]))
    facts = {item: Facts(None, price, places[item]) for item, price in prices.items()}
    dropped = {"malformed_row": 1, "bad_reward": lost}
    return Case(folder, kept, ("buy", "ignore"), "s", dropped, facts, {}, min_length=1, split="source")


_GENRES = [
    # the 0/1 columns of u.item
    "unknown",
    "Action",
    "Adventure",
    "Animation",
    "Children's",
    "Comedy",
    "Crime",
    "Documentary",
    "Drama",
    "Fantasy",
    "Film-Noir",
    "Horror",
    "Musical",
    "Mystery",
    "Romance",
    "Sci-Fi",
    "Thriller",
    "War",
    "Western",
]


def write_movielens_dat(folder: Path, shuffle: random.Random | None) -> Case:
    movies = {str(k): (f"Amélie d'Été, n° {k} (19{k + 60})", "Animation|Children's") for k in range(1, 30)}
    table = "\n".join(f"{movie}::{title}::{genres}" for movie, (title, genres) in movies.items())
    (folder / "movies.dat").write_text(table + "\n", encoding="latin-1")
    return _movielens(folder / "ratings.dat", "::", shuffle, movies)


def write_movielens_100k(folder: Path, shuffle: random.Random | None) -> Case:
    movies = {str(k): (f"Léon {k} (1994)", f"{_GENRES[k % 19]}|{_GENRES[18]}") for k in range(1, 18)}
    lines = []
    for movie, (title, genres) in movies.items():
        flags = "|".join(str(int(genre in genres.split("|"))) for genre in _GENRES)
        lines.append(f"{movie}|{title}|01-Jan-1994||http://us.imdb.com/M/title-exact?L%E9on|{flags}")
    (folder / "u.item").write_text("\n".join(lines) + "\n", encoding="latin-1")
    return _movielens(folder / "u.data", "\t", shuffle, movies)


def write_movielens_csv(folder: Path, shuffle: random.Random | None) -> Case:
    movies = {str(k): (f'American President, The "{k}" (1995) 七人の侍', "Comedy|Drama") for k in range(1, 30)}
    lines = ["movieId,title,genres"]
    lines += [f'{movie},"{title.replace(chr(34), chr(34) * 2)}",{genres}' for movie, (title, genres) in movies.items()]
    (folder / "movies.csv").write_text("\r\n".join(lines) + "\r\n", encoding="utf-8")
    return _movielens(folder / "ratings.csv", ",", shuffle, movies)


def _movielens(path: Path, separator: str, shuffle: random.Random | None, movies: dict[str, tuple[str, str]]) -> Case:
    is_csv = separator == ","
    good: list[tuple[str, Row | None]] = []
    for draw in draws(4, 300, users=15, items=25, actions=10 if is_csv else 5, ticks=90):
        rating = (draw.action + 1) / (2 if is_csv else 1)
        user, item, time = str(draw.user + 1), str(draw.item + 1), 978_300_760 + int(draw.when * 1000)
        line = separator.join([user, item, f"{rating:.1f}" if is_csv else f"{rating:g}", str(time)])
        good.append((line, Row(user, item, f"{rating:g}", rating, time)))
    faults = [separator.join(fault) for fault in (["1", "2", "five", "978300760"], ["1", "2", "5", "9783007.5"])]
    lines = in_order(with_faults(good, [*faults, separator.join(["1", "2", "5"])]), shuffle)
    if lines[0][1] is None:
        lines.append(lines.pop(0))
    header = ["userId,movieId,rating,timestamp"] if is_csv else []
    path.write_text("\n".join([*header, *(line for line, _ in lines)]) + "\n")
    facts = {movie: Facts(title, None, genres) for movie, (title, genres) in movies.items()}
    names = sorted({row.feedback for row in rows_of(lines)}, key=float)
    dropped = {"bad_feedback": 1, "bad_time": 1, "malformed_row": 1}
    return Case(path.parent, rows_of(lines), tuple(names), "s", dropped, facts)


def write_retailrocket(folder: Path, shuffle: random.Random | None) -> Case:
    events = [("view", 1.0), ("addtocart", 2.0), ("transaction", 3.0)]
    good: list[tuple[str, Row | None]] = []
    for draw in draws(6, 300, users=18, items=25, actions=3, ticks=120):
        name, reward = events[draw.action]
        user, item, time = str(257_597 + draw.user), str(355_900 + draw.item), 1_433_221_332_117 + int(draw.when * 5000)
        bill = str(draw.user) if name == "transaction" else ""
        good.append((f"{time},{user},{name},{item},{bill}", Row(user, item, name, reward, time)))
    lines = in_order(
        with_faults(good, ["1433221332117,1,look,2,", "June,1,view,2,", "1433221332117,1,view,,"]), shuffle
    )
    log = folder / "events.csv"
    log.write_text("\n".join(["timestamp,visitorid,event,itemid,transactionid", *(line for line, _ in lines)]) + "\n")
    facts = {str(355_900 + k): Facts(category=str(1000 + k)) for k in range(20)}
    parts: tuple[list[str], list[str]] = ([], [])
    for number, (item, known) in enumerate(facts.items()):
        latest, stale = parts[number % 2], parts[(number + 1) % 2]
        latest.append(f"1435460400000,{item},categoryid,{known.category}")
        stale.append(f"1433041200000,{item},categoryid,77")
        stale.append(f"1439694000000,{item},790,n277.200 972684")
        latest.append(f"1439694000000,{item},available,0")
    for name, part in zip(("part1", "part2"), parts, strict=True):
        text = "\n".join(["timestamp,itemid,property,value", *part]) + "\n"
        (folder / f"item_properties_{name}.csv").write_text(text)
    dropped = {"bad_feedback": 1, "bad_time": 1, "blank_item": 1}
    names = tuple(name for name, _ in events)
    return Case(log, rows_of(lines), names, "ms", dropped, facts, dedup="exact")


def write_taobao(folder: Path, shuffle: random.Random | None) -> Case:
    behaviours = [("pv", "click", 1.0), ("cart", "cart", 2.0), ("fav", "favourite", 2.0), ("buy", "buy", 3.0)]
    good: list[tuple[str, Row | None]] = []
    facts: dict[str, Facts] = {}
    for draw in draws(7, 300, users=18, items=25, actions=4, ticks=100):
        raw, name, reward = behaviours[draw.action]
        user, item, category = str(1 + draw.user), str(2_268_318 + draw.item), str(2_520_000 + draw.item % 4)
        time = 1_511_544_070 + int(draw.when * 700_000)
        good.append((f"{user},{item},{category},{raw},{time}", Row(user, item, name, reward, time)))
        facts[item] = Facts(category=category)
    lines = in_order(with_faults(good, ["1,2,3,look,1511544070", "1,2,3,pv,", "1,2,3,pv"]), shuffle)
    if lines[0][1] is None:
        lines.append(lines.pop(0))
    log = folder / "UserBehavior.csv"
    log.write_text("\n".join(line for line, _ in lines) + "\n")
    dropped = {"bad_feedback": 1, "bad_time": 1, "malformed_row": 1}
    return Case(log, rows_of(lines), ("click", "cart", "favourite", "buy"), "s", dropped, facts, dedup="exact")


_TRIVAGO_HEADER = (
    "user_id,session_id,timestamp,step,action_type,reference,platform,city,device,current_filters,impressions,prices"
)
_LOOKS = ["interaction item image", "interaction item info", "interaction item rating", "search for item"]


def write_trivago(folder: Path, shuffle: random.Random | None) -> Case:
    rng = random.Random(8)
    lines: list[tuple[str, list[Row]]] = []
    shown_anywhere: set[str] = set()

    def add(session: int, step: int, action: str, reference: str, rows: list[Row], slate: str = ",") -> None:
        user, time = f"U{session // 2}", 1_541_548_800 + 600 * session + 2 * (step // 2)
        city = f'"City {session % 3}, Land"'
        key = f"{user},s{session},{time},{step},{action},{reference},FR,{city},mobile,a|b,{slate}"
        lines.append((key, [replace(row, user=user, sequence=f"s{session}", time=time) for row in rows]))

    for session in range(60):
        hotels = [str(10 * k + session % 3) for k in range(1, 9)]
        is_late = session > 52 and session % 3 == 0
        for step in range(1, rng.randrange(2, 6)):
            hotel = "990" if is_late else rng.choice(hotels)
            look = Row("", hotel, "look", 1.0, 0, rank=1001 * 3 * step)
            add(session, 3 * step, _LOOKS[step % 4], hotel, [look])
            add(session, 3 * step + 1, "filter selection", "Pool", [])
            shown = rng.sample(hotels, rng.randrange(1, 7))
            shown_anywhere |= set(shown)
            taken = rng.choice(shown) if step != 3 else hotel
            first = 1001 * (3 * step + 2)
            rows = [
                Row("", item, "clickout" if item == taken else "refused", 3.0 * (item == taken), 0, rank=first + k)
                for k, item in enumerate(shown + ([taken] if taken not in shown else []))
            ]
            slate = "|".join(shown) + "," + "|".join(str(int(item) * 3) for item in shown)
            add(session, 3 * step + 2, "clickout item", taken, rows, slate)
    lonely = 'U99,s99,1541548900,1,interaction item info,11,FR,"City 1, Land",mobile,,,'
    lines.append((lonely, [Row("U99", "11", "look", 1.0, 1_541_548_900, "s99")]))
    faults = [
        "U1,s2,soon,90,search for item,11,FR,x,mobile,,,",
        "U1,s2,1541548900,91,dance,11,FR,x,mobile,,,",
        "U1,s2,1541548900,92,search for item,,FR,x,mobile,,,",
        "U1,s2,1541548900,93,clickout item,11,FR,x,mobile,,11|21,3",
    ]
    lines[5:5] = [(fault, []) for fault in faults]
    if shuffle is not None:
        shuffle.shuffle(lines)
    log = folder / "train.csv"
    log.write_text("\n".join([_TRIVAGO_HEADER, *(line for line, _ in lines)]) + "\n")
    rows = [row for _, part in lines for row in part]
    items = {row.item for row in rows}
    about_items = {
        item: Facts(None, 3.0 * int(item) if item in shown_anywhere else None, f"City {int(item) % 10 % 3}, Land")
        for item in items
    }
    dropped = dict.fromkeys(("blank_item", "bad_time", "bad_feedback", "malformed_row"), 1)
    dropped["dropped_by_source"] = sum("filter selection" in line for line, _ in lines)
    return Case(log, rows, ("refused", "look", "clickout"), "s", dropped, about_items)
