"""COCO's average precision, counted one detection at a time."""

from __future__ import annotations

import numpy as np


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    width, height = (max(0.0, min(a[i + 2], b[i + 2]) - max(a[i], b[i])) for i in (0, 1))
    areas = [(x[2] - x[0]) * (x[3] - x[1]) for x in (a, b)]
    return width * height / (sum(areas) - width * height)


def average_precision(found: dict[str, np.ndarray], given: dict[str, np.ndarray], label: int, least: float) -> float:
    """Of `boxes`, `classes` and `scores` [images, detections], and of objects' `boxes` and `labels`."""
    marks, count = list[tuple[float, bool]](), int((given["labels"] == label).sum())
    for image, scores in enumerate(found["scores"]):
        free = [n for n, own in enumerate(given["labels"][image]) if own == label]
        for number in np.argsort(-scores, kind="stable"):
            if found["classes"][image, number] != label or not scores[number]:
                continue
            box = found["boxes"][image, number]
            best = max(free, key=lambda n: overlap(box, given["boxes"][image, n]), default=None)
            is_hit = best is not None and overlap(box, given["boxes"][image, best]) >= least
            if best is not None and is_hit:
                free.remove(best)
            marks.append((float(scores[number]), is_hit))
    curve, right = list[tuple[float, float]](), 0
    marks.sort(key=lambda mark: -mark[0])
    for seen, (score, is_hit) in enumerate(marks, 1):
        right += is_hit
        if seen == len(marks) or marks[seen][0] != score:
            curve.append((right / count, right / seen))
    return float(
        np.mean([max((p for r, p in curve if r >= recall - 1e-9), default=0.0) for recall in np.linspace(0, 1, 101)])
    )
