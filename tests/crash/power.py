"""A disk that loses power: it writes down what is done to files, then says what may be left after any of it.

What POSIX promises: the bytes of a file are safe once the file is flushed, its name once its folder is.  Until then
each write may be there, in part, as zeros, or not at all, and each change of a folder may be there without the ones
before it.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from pathlib import Path


class Disk:
    """Stands in for ``os`` in `desketch.core.files`: does everything, and keeps a log of it."""

    def __init__(self, root):
        self.root, self.log, self._paths = root, [], {}

    def __getattr__(self, name):
        return getattr(os, name)

    def mark(self, **facts):
        """Note what the program has promised by now."""
        self.log.append(("mark", facts))

    def open(self, path, flags, mode=0o777):
        new = not Path(path).exists()
        descriptor = os.open(path, flags, mode)
        self._paths[descriptor] = path
        if new:
            self._add("create", path)
        elif flags & os.O_TRUNC:
            self._add("empty", path)
        return descriptor

    def write(self, descriptor, data):
        written = os.write(descriptor, data)
        self._add("write", self._paths[descriptor], bytes(data[:written]))
        return written

    def fsync(self, descriptor):
        self._add("sync", self._paths[descriptor])

    def replace(self, source, target):
        os.replace(source, target)
        self._add("rename", source, self._relative(target))

    def mkdir(self, path):
        os.mkdir(path)
        self._add("mkdir", path)

    def unlink(self, path):
        os.unlink(path)
        self._add("unlink", path)

    def _add(self, kind, path, *rest):
        self.log.append((kind, self._relative(path), *rest))

    def _relative(self, path):
        return Path(path).relative_to(self.root).parts


@dataclass(eq=False)
class File:
    """The bytes that are safe, and what was done since: None empties, bytes are added."""

    safe: bytes = b""
    pending: list[bytes | None] = field(default_factory=list)

    def flush(self):
        self.safe, self.pending = self.after(Fate("all")), []

    def after(self, fate):
        data = self.safe
        for change in self.pending:
            data = b"" if change is None and fate.names() else data + fate.part(change or b"")
        return data


@dataclass(eq=False)
class Folder:
    """Names that are safe, and what was done since: (name, node), a node of None removes."""

    safe: dict[str, File | Folder] = field(default_factory=dict)
    pending: list[list[tuple[str, File | Folder | None]]] = field(default_factory=list)

    def flush(self):
        self.safe, self.pending = self.after(Fate("all")), []

    def after(self, fate):
        names = dict(self.safe)
        for change in self.pending:
            if fate.names():
                names.update(change)
        return {name: node for name, node in names.items() if node is not None}


class Fate:
    """What becomes of changes that were not flushed: all, none, only names, only bytes, or chance."""

    def __init__(self, kind):
        self.kind, self.rng = kind, random.Random(kind)

    def names(self):
        return self.rng.random() < 0.5 if isinstance(self.kind, int) else self.kind in ("all", "names")

    def part(self, data):
        if not isinstance(self.kind, int):
            return data if self.kind in ("all", "bytes") else b""
        length = self.rng.randrange(len(data) + 1)
        return self.rng.choice([data, b"", data[:length], bytes(length)])


def left_after(log, fate):
    """Files by path that a crash after these operations may leave, with folders as None."""
    root, now = Folder(), {}
    for kind, path, *rest in (entry for entry in log if entry[0] != "mark"):
        folder = now.get(path[:-1], root)
        if kind in ("create", "mkdir"):
            now[path] = File() if kind == "create" else Folder()
            folder.pending.append([(path[-1], now[path])])
        elif kind in ("write", "empty"):
            now[path].pending.append(rest[0] if rest else None)
        elif kind == "sync":
            now.get(path, root).flush()
        elif kind == "unlink":
            folder.pending.append([(path[-1], None)])
            del now[path]
        else:
            (target,) = rest
            assert target[:-1] == path[:-1]
            folder.pending.append([(path[-1], None), (target[-1], now[path])])
            now[target] = now.pop(path)
    return _tree(root, (), Fate(fate))


def _tree(folder, path, fate):
    found = {}
    for name, node in folder.after(fate).items():
        place = (*path, name)
        found[place] = node.after(fate) if isinstance(node, File) else None
        if isinstance(node, Folder):
            found |= _tree(node, place, fate)
    return found


def put(tree, folder):
    """Make the files real."""
    folder.mkdir()
    for path, data in tree.items():
        place = folder.joinpath(*path)
        place.mkdir() if data is None else place.write_bytes(data)


def crashes(log, fates):
    """Every different state that a crash at any point may leave, and what was promised by then."""
    seen, promised = set(), {}
    for end in range(len(log) + 1):
        if end and log[end - 1][0] == "mark":
            promised = {**promised, **log[end - 1][1]}
        for fate in fates:
            tree = left_after(log[:end], fate)
            state = (tuple(sorted(tree.items())), tuple(sorted(promised.items())))
            if state not in seen:
                seen.add(state)
                yield end, fate, tree, promised
