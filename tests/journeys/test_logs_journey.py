"""`docs/logs.md`: every block, from the raw file to the evaluation, on a small file in the true format."""

import gzip
import os
import random
import re
import shlex
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("one_thread")

PAGE = Path(__file__).parents[2] / "docs" / "logs.md"
BLOCKS = {
    re.search(r" -o (\w+)", block)[1]: block.replace("\\\n", " ").splitlines()  # type: ignore[index]
    for block in re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
}
SHORT = ["--set", "train.max_steps=8", "--set", "encoder.dim=8", "--set", "encoder.length=12"]


def compressed(path: Path, lines: list[str], start: str = "") -> None:
    path.write_bytes(gzip.compress((start + "\n".join(lines) + "\n").encode()))


def write_kuairand(folder: Path) -> None:
    random_ = random.Random(1)
    names = "user_id,video_id,date,hourmin,time_ms,is_click,is_like,is_follow,is_comment,is_forward,is_hate,long_view,"
    names += "play_time_ms,duration_ms,profile_stay_time,comment_stay_time,is_profile_enter,is_rand,tab"
    rows = []
    for k in range(600):
        click, like, long = (int(random_.random() < share) for share in (0.5, 0.1, 0.3))
        time = 1_650_812_741_436 + 90_000 * k
        rows.append(
            f"{k % 23},{random_.randrange(40)},20220425,0,{time},{click},{like},0,0,0,0,{long},900,5000,0,0,0,0,1"
        )
    compressed(folder / "log_standard_4_25_to_5_08_pure.csv.gz", [names, *rows, *rows[:20]])


def write_trivago(folder: Path) -> None:
    random_ = random.Random(2)
    rows = [
        "user_id,session_id,timestamp,step,action_type,reference,platform,city,device,current_filters,impressions,prices"
    ]
    for session in range(80):
        start, line = 1_541_548_800 + 700 * session, f"U{session // 2},s{session}"
        for step in range(1, 4):
            shown = random_.sample(range(100, 125), 8)
            rows.append(f'{line},{start + step},{3 * step},search for item,{shown[2]},FR,"A, B",mobile,,,')
            rows.append(f'{line},{start + step},{3 * step + 1},filter selection,Pool,FR,"A, B",mobile,Pool,,')
            slate = "|".join(map(str, shown)) + "," + "|".join(str(item // 2) for item in shown)
            rows.append(f'{line},{start + step},{3 * step + 2},clickout item,{shown[0]},FR,"A, B",mobile,Pool,{slate}')
    compressed(folder / "sessions_100k.csv.gz", rows)


def write_slates(folder: Path) -> None:
    random_ = random.Random(3)
    rows = ["row_id,portrait_74820,exposed_items,labels"]
    for number in range(150):
        items = sorted(random_.sample(range(1, 31), 9))
        labels = [int(random_.random() < 0.8) for _ in items]
        rows.append(f'{number},1,"{",".join(map(str, items))}","{",".join(map(str, labels))}"')
    compressed(folder / "slates_10k.csv.gz", rows)
    table = [f'{k},"2,2,1,0.01,0.8",{100 + 7 * k},{1 + k // 11}' for k in range(1, 31)]
    compressed(folder / "item_info_381.csv.gz", ["item_id,item_vec,price,location", *table])


def write_ta_feng(folder: Path) -> None:
    random_ = random.Random(4)
    names = [
        "TRANSACTION_DT",
        "CUSTOMER_ID",
        "AGE_GROUP",
        "PIN_CODE",
        "PRODUCT_SUBCLASS",
        "PRODUCT_ID",
        "AMOUNT",
        "ASSET",
        "SALES_PRICE",
    ]
    rows = [names]
    for customer in range(40):
        for day in sorted(random_.sample(range(1, 29), 6)):
            for product in random_.sample(range(30), random_.randrange(1, 5)):
                row = [
                    f"11/{day}/2000",
                    f"{customer:08}",
                    "45-49",
                    "115",
                    f"{product // 5}",
                    f"47{product:04}",
                    "1",
                    "20",
                    "30",
                ]
                rows.append(row)
    lines = [",".join(f'"{value}"' for value in row) for row in rows]
    compressed(folder / "ta_feng_all_months_merged.csv.gz", lines, "\ufeff")


WRITERS = {"kuairand": write_kuairand, "trivago": write_trivago, "slates": write_slates, "tafeng": write_ta_feng}


def test_every_block_has_a_raw_file() -> None:
    assert set(BLOCKS) == set(WRITERS)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", WRITERS)
def test_a_log_goes_from_its_raw_file_to_its_evaluation(name: str, ecoc_command: Path, tmp_path: Path) -> None:
    WRITERS[name](tmp_path)
    printed = ""
    commands = [shlex.split(line) for line in BLOCKS[name]]
    assert [command[1] for command in commands] == ["prepare", "train", "evaluate"]
    for command in commands:
        short = SHORT if command[1] == "train" else []
        done = subprocess.run(
            [str(ecoc_command), *command[1:], *short],
            cwd=tmp_path,
            env=os.environ,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, (command, done.stderr)
        printed += done.stdout
    assert "warning" not in printed
    expected = {"kuairand": "refused (reward 0)", "trivago": "refused (reward 0)", "slates": "dropped_feedback"}
    assert expected.get(name, "interactions") in printed
    assert "ndcg@20" in printed.lower()
