"""A bundle, described for people and for programs."""

from pathlib import Path
from typing import Any

from ecoc.errors import ArtifactError
from ecoc.runs.bundle import open_bundle
from ecoc.storage.trusted import file_sha256, printable


def bundle_json(path: Path, *, verify: bool) -> dict[str, Any]:
    """The answer of `ecoc info BUNDLE --json`; `verify` compares the checksum of every file."""
    bundle = open_bundle(path)
    record = bundle.record
    for name, entry in record.files.items():
        if verify and file_sha256(path / name) != entry.sha256:
            raise ArtifactError(f"{path / name}: changed since the bundle was written; export it again")
    return {
        "kind": "bundle",
        "bundle": str(path),
        "version": bundle.version,
        **record.model_dump(
            mode="json", include={"name", "ecoc", "feedback", "ranking", "weights_sha256", "data_sha256"}
        ),
        "items": record.dims.items,
        "config": record.config,
        "index": None if record.index is None else record.index.model_dump(mode="json"),
        "files": {name: entry.model_dump() for name, entry in record.files.items()},
        "is_verified": verify,
    }


def bundle_text(bundle: dict[str, Any]) -> str:
    """The same for a terminal."""
    method, encoder = (str(bundle["config"].get(section, {}).get("name", "?")) for section in ("method", "encoder"))
    ranking = bundle["ranking"]
    ranked_by = "the method's own ranking" if ranking is None else f"{ranking['rank_by']} with w = {ranking['w']:g}"
    lines = [
        f"bundle {bundle['name']}, version {bundle['version']}, written by ecoc {bundle['ecoc']}",
        f"  model      {method} {encoder}, {bundle['items']:,} items, {ranked_by}",
        f"  feedback   {', '.join(bundle['feedback']) or 'none'}",
        f"  data       {bundle['data_sha256'] or 'not recorded'}",
        f"  weights    {bundle['weights_sha256']}",
    ]
    lines += [f"  {name:<20} {entry['bytes']:>15,} bytes" for name, entry in bundle["files"].items()]
    lines += ["  every file matches its checksum"] if bundle["is_verified"] else []
    return "\n".join(printable(line) for line in lines)
