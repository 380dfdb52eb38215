"""Finds code that changes the local scheduler's state from outside its owners."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

#: Files whose classes own parts of the state. All others read it and call methods of the owners.
OWNERS = frozenset(
    f"mesh/tasks/{name}.py"
    for name in ("state", "capacity", "task_ledger", "relations", "queued_shapes", "eviction_ledger", "reservation_ledger")
)
#: Attributes of `MeshState` that are owners: any of their methods may be called.
_OWNER_NAMES = frozenset({"state", "capacity", "task_ledger", "relations", "shapes", "evictions", "reservations", "job_reservations"})
#: Classes whose objects are the state, or parts of it.
_PARTS = frozenset({"MeshState", "TaskRecord", "Bucket", "Eviction", "NodeReservation", "JobReservation", "GroupRecord"})
#: Methods that change a container, or a ledger that an owner keeps: node table, pools, groups, queues.
# fmt: off
_CHANGES = frozenset({
    "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "setdefault", "sort", "update",
    "add", "commit", "configure", "delete", "delete_resource", "drop", "finish", "give_back", "join", "leave", "move", "promise",
    "queue_for", "ready", "release", "remove", "reserve", "restore", "see_foreign", "start", "take", "update_resource", "withdraw",
})
#: Methods that return a part of what they are called on.
_SELECTS = frozenset({"get", "held_by", "idle", "items", "of", "of_gang", "of_pool", "on_node", "pool", "record", "values"})
# fmt: on


def state_writes(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and text of each assignment to a part of the state, and of each call that changes one."""
    for scope in _scopes(tree):
        known = _names_of_parts(scope)
        for node in scope:
            if isinstance(node, (ast.Attribute, ast.Subscript)):
                if isinstance(node.ctx, (ast.Store, ast.Del)) and _is_part(node.value, known):
                    yield node.lineno, ast.unparse(node)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                of = node.func.value
                if node.func.attr in _CHANGES and _is_part(of, known) and _last_name(of) not in _OWNER_NAMES:
                    yield node.lineno, ast.unparse(node.func)


def _scopes(tree: ast.AST) -> Iterator[list[ast.AST]]:
    """Yield the nodes of each outermost function, and those outside of functions."""
    outside, nodes = list[ast.AST](), [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield list(ast.walk(node))
        else:
            outside.append(node)
            nodes += ast.iter_child_nodes(node)
    yield outside


def _names_of_parts(scope: Sequence[ast.AST]) -> frozenset[str]:
    """Return the names that stand for the state or a part of it: by annotation, or by what they are bound to."""
    bindings = [binding for node in scope for binding in _bindings(node)]
    annotated = {node.arg: node.annotation for node in scope if isinstance(node, ast.arg)}
    known = {name for name, annotation in annotated.items() if annotation is not None and _names_part(annotation)}
    if "state" not in annotated and not any("state" in _bound(target) for target, _ in bindings):
        known.add("state")
    before = -1
    while len(known) > before:
        before = len(known)
        known |= {name for target, value in bindings if _is_part(value, frozenset(known)) for name in _bound(target)}
    return frozenset(known)


def _bound(target: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _bindings(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield each target that the node binds, with what it is bound to."""
    if isinstance(node, (ast.For, ast.comprehension)):
        yield node.target, node.iter
    elif isinstance(node, ast.NamedExpr):
        yield node.target, node.value
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                yield from zip(target.elts, node.value.elts, strict=True)
            else:
                yield target, node.value


def _names_part(annotation: ast.expr) -> bool:
    """Return whether the annotation is such a class, or may be one."""
    options = [annotation]
    while options:
        option = options.pop()
        if isinstance(option, ast.BinOp):
            options += [option.left, option.right]
        elif _last_name(option) in _PARTS:
            return True
    return False


def _is_part(value: ast.expr, known: frozenset[str]) -> bool:
    if isinstance(value, ast.Name):
        return value.id in known
    if isinstance(value, ast.IfExp):
        return _is_part(value.body, known) or _is_part(value.orelse, known)
    if isinstance(value, ast.Attribute):
        is_state = value.attr == "state" and (_last_name(value.value) or "").endswith(("scheduler", "self"))
        return is_state or _is_part(value.value, known)
    if isinstance(value, ast.Subscript):
        return _is_part(value.value, known)
    return (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in _SELECTS
        and _is_part(value.func, known)
    )


def _last_name(value: ast.expr) -> str | None:
    return value.attr if isinstance(value, ast.Attribute) else value.id if isinstance(value, ast.Name) else None
