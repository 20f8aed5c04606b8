import json
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import safetensors
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load, load_file, save_file
from torch import Tensor

from ecoc.errors import ArtifactError, ResourceError, TrainingError
from ecoc.storage.atomic import write_whole
from ecoc.storage.checkpoint import (
    keep_last,
    latest_name,
    load_checkpoint,
    load_latest,
    name_of,
    remove_partial,
    save_checkpoint,
)

DTYPES = [torch.float32, torch.float64, torch.int64, torch.int32, torch.bool]


pytestmark = pytest.mark.usefixtures("one_thread")


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return set(one) == set(other) and all(
        torch.equal(tensor, other[name]) and tensor.dtype == other[name].dtype and tensor.shape == other[name].shape
        for name, tensor in one.items()
    )


def filled(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> Tensor:
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 100).to(dtype)


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    tensors = {f"{dtype}/{shape}": filled(shape, dtype) for dtype in DTYPES for shape in [(), (1,), (5,), (3, 4, 2)]}
    state = {"step": 7, "best": None, "nested": {"ü": [1.5, True]}}
    digest = save_checkpoint(tmp_path, "best", tensors, state)
    found = load_checkpoint(tmp_path, "best")
    assert same(found.tensors, tensors)
    assert found.state == state
    assert found.sha256 == digest == sha256((tmp_path / "best.safetensors").read_bytes()).hexdigest()
    assert {path.name for path in tmp_path.iterdir()} == {"best.json", "best.safetensors"}


@settings(max_examples=30, deadline=None)
@given(
    st.dictionaries(
        st.text(min_size=1, max_size=6).filter(lambda name: name != "__metadata__"),
        st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 3), max_size=3)),
        max_size=5,
    )
)
def test_the_safetensors_library_reads_every_file_alike(
    tmp_path_factory: pytest.TempPathFactory, kinds: dict[str, tuple[torch.dtype, list[int]]]
) -> None:
    """And a file it writes of the same tensors holds the same."""
    folder = tmp_path_factory.mktemp("storage")
    tensors = {name: filled(tuple(shape), dtype) for name, (dtype, shape) in kinds.items()}
    save_checkpoint(folder, "x", tensors, {})
    content = (folder / "x.safetensors").read_bytes()
    assert same(load(content), tensors)
    with safetensors.safe_open(folder / "x.safetensors", framework="pt") as file:
        assert set(file.keys()) == set(tensors)
    header = int.from_bytes(content[:8], "little")
    assert header % 8 == 0  # so that what is mapped is aligned
    assert len(content) - 8 - header == sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    save_file(tensors, folder / "y.safetensors")
    assert same(load_file(folder / "y.safetensors"), load_file(folder / "x.safetensors"))


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_that_are_views_are_saved_as_what_they_show(dtype: torch.dtype, tmp_path: Path) -> None:
    base = filled((4, 6), dtype)
    tensors = {
        "transposed": base.T,
        "strided": base[::2, 1::3],
        "offset": base[1:, 2:],
        "expanded": base[0].expand(3, 6),
        "shared": base,
        "permuted": base.reshape(2, 2, 6).permute(2, 0, 1),
        "row": base[2],
        "none": torch.empty_strided((0, 4), (3, 2), dtype=dtype),
        "learnt": torch.nn.Parameter(base.T) if base.is_floating_point() else base,
    }
    expected = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    save_checkpoint(tmp_path, "x", tensors, {})
    assert same(load_checkpoint(tmp_path, "x").tensors, expected)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(10)[::5][:1],
        torch.arange(10.0).reshape(2, 5).T[:1, :1],
        torch.from_numpy(np.divmod(np.zeros(0, np.int64), 3)[1]),
    ],
)
def test_strides_that_do_not_matter_do_not_matter(tensor: Tensor, tmp_path: Path) -> None:
    save_checkpoint(tmp_path, "x", {"a": tensor}, {})
    assert same(load_checkpoint(tmp_path, "x").tensors, {"a": tensor.clone()})


def test_a_checkpoint_of_nothing(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, "x", {}, {})
    assert load_checkpoint(tmp_path, "x").tensors == {}


def test_equal_tensors_make_equal_files(tmp_path: Path) -> None:
    one, other = {"a": torch.ones(3), "b": torch.zeros(2)}, {"b": torch.zeros(2), "a": torch.ones(3)}
    assert save_checkpoint(tmp_path, "x", one, {"step": 1}) == save_checkpoint(tmp_path, "y", other, {"step": 2})
    assert save_checkpoint(tmp_path, "y", {**other, "a": torch.zeros(3)}, {}) != load_checkpoint(tmp_path, "x").sha256


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nothing_that_is_not_finite_is_written(bad: float, dtype: torch.dtype, tmp_path: Path) -> None:
    good = {"first": torch.ones(2), "worse": torch.ones(2, 2, dtype=dtype)}
    save_checkpoint(tmp_path, "x", good, {"step": 1})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    worse = good["worse"].clone()
    worse[1, 0] = bad
    for name in ("x", "y"):
        with pytest.raises(TrainingError, match=f"{name}: not saved, because 'worse' holds a number that is not"):
            save_checkpoint(tmp_path, name, {**good, "worse": worse}, {"step": 2})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Three checkpoints."""
    for step in (5, 40, 300):
        save_checkpoint(tmp_path, name_of(step), {"a": torch.full((4,), float(step))}, {"step": step})
    return tmp_path


def test_names_sort_as_steps_do() -> None:
    names = [name_of(step) for step in (0, 9, 10, 99, 100, 10**11)]
    assert names == sorted(names)


def test_the_latest_is_the_one_of_the_highest_step(saved: Path) -> None:
    found = load_latest(saved)
    assert found is not None
    assert found.state == {"step": 300}
    assert found.tensors["a"].tolist() == [300.0] * 4
    assert latest_name(saved) == name_of(300)


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, "best", {}, {})
    assert load_latest(tmp_path) is None
    assert latest_name(tmp_path) is None
    assert load_latest(tmp_path / "nowhere") is None


def test_tensors_without_their_json_do_not_count(saved: Path) -> None:
    (saved / f"{name_of(300)}.json").unlink()
    assert latest_name(saved) == name_of(40)
    found = load_latest(saved)
    assert found is not None
    assert found.state == {"step": 40}
    with pytest.raises(ArtifactError, match="not a readable checkpoint"):
        load_checkpoint(saved, name_of(300))
    remove_partial(saved)
    assert not (saved / f"{name_of(300)}.safetensors").exists()
    assert (saved / f"{name_of(40)}.safetensors").exists()


def flipped(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


DAMAGE: dict[str, tuple[str, Callable[[bytes], bytes | None]]] = {
    "tensors gone": ("safetensors", lambda content: None),
    "tensors empty": ("safetensors", lambda content: b""),
    "tensors cut": ("safetensors", lambda content: content[:-1]),
    "tensors longer": ("safetensors", lambda content: content + b"\0"),
    "a bit of the values": ("safetensors", lambda content: flipped(content, len(content) - 3)),
    "a bit of the header": ("safetensors", lambda content: flipped(content, 20)),
    "json empty": ("json", lambda content: b""),
    "json cut": ("json", lambda content: content[:-5]),
    "json garbage": ("json", lambda content: b"\xff\xfe\0garbage"),
    "json nested": ("json", lambda content: b"[" * 200_000),
    "json of a long number": ("json", lambda content: b'{"sha256": ' + b"9" * 9999 + b"}"),
    "json without checksum": ("json", lambda content: b'{"step": 3}'),
    "json with another checksum": ("json", lambda content: content.replace(b'"sha256": "', b'"sha256": "0')),
    "json with a checksum of no kind": ("json", lambda content: b'{"sha256": [3]}'),
    "json null": ("json", lambda content: b"null"),
    "json a number": ("json", lambda content: b"3"),
    "json a text": ("json", lambda content: b'"sha256"'),
    "json a list": ("json", lambda content: b"[]"),
    "json a long list": ("json", lambda content: b'["sha256"]'),
    "json of pairs": ("json", lambda content: b"[[[], 1]]"),
}


@pytest.mark.parametrize("kind", list(DAMAGE))
def test_a_damaged_checkpoint_is_refused_and_the_one_before_it_is_found(kind: str, saved: Path) -> None:
    suffix, change = DAMAGE[kind]
    path = saved / f"{name_of(300)}.{suffix}"
    content = change(path.read_bytes())
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with pytest.raises(ArtifactError, match=name_of(300)):
        load_checkpoint(saved, name_of(300))
    found = load_latest(saved)
    assert found is not None
    assert found.state == {"step": 40}


def test_a_checksum_that_fits_does_not_make_a_tensor_file(saved: Path) -> None:
    """Someone else's file, with its right checksum in the JSON."""
    for content in (b"", b"PK\3\4", b"\xff" * 64, (2**40).to_bytes(8, "little") + b"{}", b"\2\0\0\0\0\0\0\0[]"):
        (saved / f"{name_of(300)}.safetensors").write_bytes(content)
        (saved / f"{name_of(300)}.json").write_text(json.dumps({"sha256": sha256(content).hexdigest()}))
        with pytest.raises(ArtifactError, match="tensor file"):
            load_checkpoint(saved, name_of(300))


def test_a_json_too_large_to_be_one_is_not_read(saved: Path) -> None:
    with (saved / f"{name_of(300)}.json").open("r+b") as stream:
        stream.truncate(65 << 20)  # sparse
    with pytest.raises(ArtifactError, match="more than the limit"):
        load_checkpoint(saved, name_of(300))


def test_all_damaged_is_an_error_that_says_what_to_do(saved: Path) -> None:
    for path in saved.glob("*.safetensors"):
        path.write_bytes(b"")
    with pytest.raises(ArtifactError, match="no checkpoint is left to resume from: restore one, or pass --overwrite"):
        load_latest(saved)


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_only_the_newest_are_kept(count: int, saved: Path) -> None:
    save_checkpoint(saved, "best", {}, {})
    (saved / f"{name_of(999)}.safetensors").write_bytes(b"its JSON never came")
    (saved / "best.json.partial").write_bytes(b"half")
    (saved / f"{name_of(40)}.safetensors.partial").write_bytes(b"half")
    (saved / "notes.txt").write_text("mine")
    keep_last(saved, count)
    kept = [name_of(step) for step in (5, 40, 300)][-count:]
    expected = {f"{name}.{suffix}" for name in [*kept, "best"] for suffix in ("json", "safetensors")}
    assert {path.name for path in saved.iterdir()} == expected | {"notes.txt"}


def test_two_processes_write_aside_under_different_names(tmp_path: Path) -> None:
    path, other = tmp_path / "a[1].json", "import sys; sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", other], stdin=subprocess.PIPE) as process:
        live, dead = (tmp_path / f"a[1].json.{number}.partial" for number in (process.pid, 2**22 + 1))
        for leftover in (live, dead, tmp_path / "a[1].json.partial"):
            leftover.write_bytes(b"half")
        write_whole(path, [b"mine"])
        assert {entry.name for entry in tmp_path.iterdir()} == {path.name, live.name}
        assert live.read_bytes() == b"half"
        remove_partial(tmp_path)
        assert live.exists()
        process.communicate()
    write_whole(path, [b"again"])
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    assert write_whole(path, [b"old", memoryview(b"er")]) == sha256(b"older").hexdigest()
    assert path.read_bytes() == b"older"
    write_whole(path, iter([b"new"]))
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


LIMITED = """
import resource, sys, torch
from pathlib import Path
from ecoc.errors import ResourceError
from ecoc.storage.atomic import write_whole
from ecoc.storage.checkpoint import save_checkpoint
torch.set_num_threads(1)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
root = Path(sys.argv[1])
for folder, save in {
    "file": lambda to: write_whole(to / "best.json", [b"x" * 90_000, b"y" * 90_000]),
    "tensors": lambda to: save_checkpoint(to, "best", {"a": torch.ones(100_000)}, {"step": 2}),
    "json": lambda to: save_checkpoint(to, "best", {"a": torch.ones(100)}, {"step": 2, "note": "x" * 200_000}),
    "empty": lambda to: save_checkpoint(to, "best", {"a": torch.ones(100_000)}, {"step": 2}),
}.items():
    try:
        save(root / folder)
    except ResourceError as error:
        print(error)
"""


@pytest.fixture(scope="module")
def full_disk(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Folders in which saving failed, because no file could be larger than 100 kB, and what was said each time."""
    root = tmp_path_factory.mktemp("full")
    for folder in ("file", "tensors", "json", "empty"):
        (root / folder).mkdir()
        if folder != "empty":
            save_checkpoint(root / folder, "best", {"a": torch.zeros(3)}, {"step": 1})
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(root)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return root, done.stdout.splitlines()


def test_a_full_disk_is_told_and_leaves_no_half(full_disk: tuple[Path, list[str]]) -> None:
    root, said = full_disk
    assert len(said) == 4
    for folder, line in zip(("file", "tensors", "json", "empty"), said, strict=True):
        assert line.startswith(str(root / folder / "best."))
        assert "File too large" in line
        assert line.endswith("bytes are needed: free space, then repeat it (train: --resume)")
        assert {path.name for path in (root / folder).iterdir()} <= {"best.json", "best.safetensors"}
    assert not list((root / "empty").iterdir())


@pytest.mark.parametrize("what", ["file", "tensors", "json"])
def test_a_full_disk_leaves_the_old_checkpoint_whole(what: str, full_disk: tuple[Path, list[str]]) -> None:
    found = load_checkpoint(full_disk[0] / what, "best")
    assert found.state == {"step": 1}
    assert found.tensors["a"].tolist() == [0.0] * 3


def test_a_kind_of_number_that_is_not_stored_leaves_no_half(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        save_checkpoint(tmp_path, "best", {"a": torch.zeros(3), "b": torch.zeros(3, dtype=torch.float16)}, {})
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_a_resource_error(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="No such file or directory"):
        save_checkpoint(tmp_path / "gone", "best", {}, {})
