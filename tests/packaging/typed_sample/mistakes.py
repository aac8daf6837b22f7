"""Calls that tools must refuse. Each line has the rule of pyright, and mypy's, that refuses it; an unused one fails."""

from __future__ import annotations

import meshtf as mtf


def mistakes(x: mtf.f32["batch:4 hidden:8"], mesh: mtf.Mesh) -> mtf.f32[""]:
    mtf.zeros(3)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    mtf.zeros(mesh, "n:3", size=4)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    mtf.get_variable("w")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    mtf.softmax(x, 3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    mtf.function(max_plans=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    print(mtf.no_such_name)  # type: ignore[attr-defined]  # pyright: ignore
    return 3  # type: ignore[return-value]  # pyright: ignore[reportReturnType]
