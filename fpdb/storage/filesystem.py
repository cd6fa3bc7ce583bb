"""Which file system a path lies on, and whether LMDB can be trusted there."""

from pathlib import Path

from fpdb.errors import UnsupportedFileSystemError

# Between machines, neither their memory maps nor their locks are coherent.
REMOTE = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "coda", "gfs", "gfs2", "glusterfs", "gpfs", "lustre"}
    | {"ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "pvfs2", "smb3", "smbfs"}
)


def require_local(path: Path, mounts: str | None = None) -> None:
    """Refuse a path on a network file system; `mounts` stands in for the kernel's table."""
    kind = kind_of(path, _mounts() if mounts is None else mounts)
    if kind in REMOTE or kind == "fuse" or kind.startswith("fuse."):
        raise UnsupportedFileSystemError(
            f"{path} lies on a file system of type {kind}, expected a local one",
            hint="move the database to a local disk; LMDB's map and locks need one",
        )


def kind_of(path: Path, mounts: str) -> str:
    """Return the type of the file system that holds a path, or "" where nobody tells."""
    best, kind = -1, ""
    for line in mounts.splitlines():
        mount, _, rest = line.partition(" - ")
        fields = mount.split(" ")
        if len(fields) < 5 or not rest:
            continue
        point = Path(_unescape(fields[4]))
        # What is mounted later at the same place hides what was there.
        if len(point.parts) >= best and path.is_relative_to(point):
            best, kind = len(point.parts), rest.split(" ")[0]
    return kind


def _unescape(field: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(code, character)
    return field


def _mounts() -> str:
    try:
        return Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
