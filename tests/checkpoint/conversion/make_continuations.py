"""Makes `continuations.json`: how Transformers continues ids with the stored models, greedily and by beam search.

In an environment of its own, as make_models.py says:

    python tests/checkpoint/conversion/make_continuations.py [--seed=N] [FILE]

Without a seed it is the stored file; `make test-long` draws other prompts and settings.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

import torch
import transformers

MODELS = Path(__file__).parent / "models"
NAMES = ("gpt2", "llama", "t5")
ENDS = (2, 7)
STORED = [(True, 1.0), (False, 1.0), ("never", 2.0), (False, -1.0), ("never", 0.0)]


def continuations(name: str, settings: list[dict[str, Any]], prompts: list[list[int]]) -> list[dict[str, Any]]:
    configuration = json.loads((MODELS / name / "config.json").read_text())
    kind = getattr(transformers, configuration["architectures"][0])
    model = kind.from_pretrained(MODELS / name, dtype=torch.float32).eval()
    cases = []
    for prompt in prompts:
        for own in settings:
            beams = own.get("num_beams", 1)
            found = model.generate(
                torch.tensor([prompt]),
                do_sample=False,
                pad_token_id=0,
                num_return_sequences=beams,
                return_dict_in_generate=True,
                output_scores=True,
                **own,
            )
            begin = 1 if model.config.is_encoder_decoder else len(prompt)
            ids = [_to_the_end(row[begin:].tolist(), own["eos_token_id"]) for row in found.sequences]
            scores = [] if beams == 1 else [float(f"{score:.6g}") for score in found.sequences_scores]
            cases.append({"model": name, "prompt": prompt, "settings": own, "ids": ids, "scores": scores})
    return cases


def _to_the_end(ids: list[int], ends: list[int]) -> list[int]:
    """Without what fills the rows behind."""
    return next((ids[: place + 1] for place, token in enumerate(ids) if token in ends), ids)


def drawn_settings(draw: random.Random) -> list[dict[str, Any]]:
    return [
        {
            "num_beams": draw.choice([2, 3, 4]),
            "early_stopping": draw.choice([True, False, "never"]),
            "length_penalty": draw.choice([-2.0, -0.5, 0.0, 0.3, 1.0, 1.7, 3.0]),
            "max_new_tokens": draw.randint(1, 8),
            "eos_token_id": draw.sample(range(1, 20), draw.choice([1, 2, 3])),
        }
        for _ in range(4)
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int)
    parser.add_argument("file", type=Path, nargs="?", default=Path(__file__).parent / "continuations.json")
    given = parser.parse_args()
    usual: dict[str, Any] = {"max_new_tokens": 6, "eos_token_id": list(ENDS)}
    beams = [{**usual, "num_beams": 3, "early_stopping": when, "length_penalty": power} for when, power in STORED]
    settings, prompts = [usual, *beams], [[5, 6, 9], [8]]
    cases = []
    for name in NAMES:
        if given.seed is not None:
            draw = random.Random(given.seed)
            prompts = [[draw.randint(3, 19) for _ in range(length)] for length in (1, 4)]
            settings = drawn_settings(draw)
        cases += continuations(name, settings, prompts)
    lines = ",\n".join(json.dumps(case) for case in cases)
    given.file.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
