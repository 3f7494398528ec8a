"""Checks the faces of packages: from outside a package, only names that its `__init__` offers are imported.

    python tools/faces.py          prints each import that goes past a face, and each face that is not as it should be

Every package of Headgate has a face. It offers what stands in its `__all__`; with `headgate.faces.lazy` and without
`__all__`, what it imports from its own modules. A folder inside a package that offers something is closed to the rest
of the package, too; the modules of other folders belong to the package that they lie in and import each other freely.
`EXCEPTIONS` lists the modules that anyone may import past a face. The root offers names of all packages to users, and
no package imports it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"
ROOT = "headgate"

EXCEPTIONS = {
    # Compiled code: linked into the kernels of other packages, and never imported where numba is not.
    "headgate.kernels.checksum": "compiled: CRC-32 for kernels",
    "headgate.kernels.compiler": "compiled: the decorators of kernels; imports numba",
    "headgate.kernels.byte_masks": "compiled: masks of bytes for kernels; imports numba",
    "headgate.kernels.memory": "compiled: loads, stores and arithmetic for kernels; imports numba",
    "headgate.kernels.vectors": "compiled: bit maps for kernels; imports numba",
    "headgate.evaluate.kernel": "compiled: kernels of `scan` call it for each chunk",
    "headgate.message.arrow.decode.kernel": "compiled: the kernel of `derived.columns` walks messages as it does",
    "headgate.message.arrow.scalars.kernel": "compiled: the kernel of `derived.columns` walks messages as it does",
    "headgate.message.lookup.elements.kernel": "compiled: kernels of other packages call it for each message",
    "headgate.protocols.amqp10.sections.kernel": "compiled: kernels of `protocols` call it for each message",
    # Tables: many constants or small classes of one kind, imported by name or as a module under a short name.
    "headgate.broker.arguments": "table: the arguments of streams as clients name them",
    "headgate.evaluate.layout": "table: verdicts and opcodes as kernels know them",
    "headgate.language.tree": "table: the nodes of a filter, one class each",
    "headgate.log.format": "table: the layout of files, in bytes",
    "headgate.message.constructors": "table: the constructors of AMQP values and their widths",
    "headgate.protocols.amqp091.events": "table: what a peer of AMQP 0.9.1 did, one class each",
    "headgate.protocols.amqp091.methods": "table: the methods of AMQP 0.9.1, one class each",
    "headgate.protocols.amqp10.events": "table: what a peer of AMQP 1.0 did, one class each",
    "headgate.protocols.amqp10.layout": "table: where the parts of a message lie, as kernels know it",
    "headgate.protocols.amqp10.performatives": "table: the performatives of AMQP 1.0, one class each",
    "headgate.protocols.rocketmq.grpc.messages": "table: the messages of RocketMQ's gRPC service, one class each",
    "headgate.protocols.rocketmq.remoting.bodies": "table: bodies of RocketMQ's classic protocol, one class each",
    "headgate.protocols.rocketmq.remoting.headers": "table: what its requests carry, one class each",
    "headgate.protocols.servicebus.requests": "table: what requests of Service Bus ask for, one class each",
    "headgate.protocols.sasl": "table: how clients say who they are, in all protocols",
    "headgate.protocols.stomp.events": "table: what a peer of STOMP did, one class each",
    "headgate.protocols.stream.frames": "table: the frames of the stream protocol, one class each",
}
"""Modules that may be imported past a face, each with the reason."""


@dataclass(slots=True)
class Import:
    """One name that a module imports of Headgate's, or a whole module: then `name` is None."""

    line: int
    module: str
    name: str | None


class Sources:
    """The modules below a source folder, and what the faces of their packages offer."""

    def __init__(self, source: Path, exceptions: Mapping[str, str] = EXCEPTIONS) -> None:
        self.exceptions = exceptions
        self.paths = {_module_name(source, path): path for path in sorted(source.rglob("*.py"))}
        self.trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in self.paths.items()}
        packages = {
            name: offered(name, self.trees[name]) for name, path in self.paths.items() if path.stem == "__init__"
        }
        self.faces = {name: names for name, names in packages.items() if names or name.count(".") == 1}

    def face_of(self, module: str) -> str | None:
        """The innermost package with a face that the module belongs to; None for one beside the packages."""
        holders = (name for name in self.faces if name != ROOT and is_inside(module, name))
        return max(holders, key=len, default=None)

    def imports(self, module: str) -> Iterator[Import]:
        """What a module imports of Headgate's, anywhere in it."""
        for node in ast.walk(self.trees[module]):
            if isinstance(node, ast.Import):
                yield from (Import(node.lineno, one.name, None) for one in node.names if is_inside(one.name, ROOT))
            elif isinstance(node, ast.ImportFrom) and node.module and is_inside(node.module, ROOT):
                for alias in node.names:
                    yield self.imported(node.lineno, node.module, alias.name)

    def imported(self, line: int, module: str, name: str) -> Import:
        """What `from module import name` imports: a module or a name in one."""
        within = f"{module}.{name}"
        if within in self.paths and name not in self.faces.get(module, ()):
            return Import(line, within, None)
        return Import(line, module, name)

    def goes_past_a_face(self, importer: str, imported: Import) -> str | None:
        """The face that an import should have come from; None where there is nothing to say."""
        face = self.face_of(imported.module)
        if face is None or is_inside(importer, face) or imported.module in self.exceptions:
            return None
        offered = imported.name is None or imported.name in self.faces[face]
        return None if imported.module == face and offered else face


def is_inside(module: str, package: str) -> bool:
    """Whether the module is the package, or in it."""
    return module == package or module.startswith(package + ".")


def faults(sources: Sources) -> list[str]:
    """A line for each import past a face, for each name that cannot be offered, and for each idle exception."""
    found, used = [], set()
    for importer, path in sources.paths.items():
        for imported in sources.imports(importer):
            if imported.module == ROOT and importer != ROOT:
                found.append(f"{path}:{imported.line} imports the root, which lies above every package")
            face = sources.goes_past_a_face(importer, imported)
            if face is not None:
                what = imported.module if imported.name is None else f"{imported.module}: {imported.name}"
                found.append(f"{path}:{imported.line} imports {what}, past the face {face}")
            home = sources.face_of(imported.module)
            if home is not None and not is_inside(importer, home):
                used.add(imported.module)
    idle = [one for one in sources.exceptions if one not in used]
    found += [f"{one} is in EXCEPTIONS and no other package imports it" for one in idle]
    found += [
        f"{sources.paths[face]} imports {name} lazily, which is also a module of the package: import it at once"
        for face in sources.faces
        for name in _lazily(sources.trees[face])
        if f"{face}.{name}" in sources.paths
    ]
    return sorted(found)


def offered(package: str, face: ast.Module) -> list[str]:
    """The names that the face of a package offers; none for a folder that has none."""
    for statement in face.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            return list(ast.literal_eval(statement.value))
    lazily = _lazily(face)
    return [*lazily, *_imported_by(face.body, f"{package}.")] if lazily else []


def _lazily(face: ast.Module) -> list[str]:
    """The names under `if TYPE_CHECKING:` that `else:` are imported when they are first asked for."""
    blocks = (one for one in face.body if isinstance(one, ast.If) and "lazy(" in ast.unparse(one.orelse))
    return [name for block in blocks for name in _imported_by(block.body, ROOT)]


def _imported_by(block: list[ast.stmt], package: str) -> list[str]:
    return [
        alias.asname or alias.name
        for statement in block
        if isinstance(statement, ast.ImportFrom) and str(statement.module).startswith(package)
        for alias in statement.names
    ]


def _module_name(source: Path, path: Path) -> str:
    parts = path.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def main() -> int:
    """Prints the faults; 1 if there are any."""
    sources = Sources(SOURCE)
    found = faults(sources)
    print("\n".join(found) if found else f"Faces: {len(sources.faces)} kept, {len(EXCEPTIONS)} modules beside them.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
