"""Runs random clients for minutes: valid and invalid requests, and clients that leave.

Run it with `python -m benchmarks.serving.soak`. It fails if an answer is wrong, a request is lost or hangs, a page is
lost, or the server's memory grows.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import random
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2

from benchmarks.serving.started_server import started_server

_NUM_CLIENTS, _NUM_QUESTIONS = 16, 30
_MOST_GROWTH = 64.0  # MiB after the first third of the time, which the allocator itself may need
_TEXT, _SCORES = "/v1/completions", "/v1/score"
_PROMPTS = (
    "def f(x):\n    return ",
    "ü",
    "nul \0 nul",
    "\u05e9\u05dc\u05d5\u05dd",
    "\U0001f469\u200d\U0001f467 family",
    "x",
)
_WAYS: tuple[dict[str, Any], ...] = (
    {"temperature": 0},
    {"temperature": 0.9, "top_p": 0.9},
    {"temperature": 1.3, "top_k": 40, "min_p": 0.02, "stop": ["e", "\n\n"]},
    {"temperature": 0.7, "presence_penalty": 0.5, "frequency_penalty": 0.3, "repetition_penalty": 1.2, "min_tokens": 3},
    {"temperature": 0.8, "frequency_penalty": 0.2, "response_format": {"type": "json_object"}},
)
_WRONG: tuple[tuple[str, bytes, int], ...] = (
    (_TEXT, b"{", 400),
    (_TEXT, b"[1]", 400),
    (_TEXT, b'{"prompt": "\xff"}', 400),
    (_TEXT, b'{"prompt": "\\ud800"}', 400),
    (_TEXT, b'{"prompt": "a", "n": 99999}', 400),
    (_TEXT, b'{"prompt": "a", "temperature": -1}', 400),
    (_TEXT, b'{"prompt": "a", "max_tokens": "many"}', 400),
    (_TEXT, b'{"prompt": [99999999999]}', 400),
    (_TEXT, b'{"prompt": "a", "model": "another"}', 404),
    (_TEXT, b'{"prompt": "' + b"a" * 5000 + b'"}', 400),
    (_TEXT, b'{"prompt": "' + b"a" * (1 << 20) + b'"}', 413),
    (
        _TEXT,
        b'{"prompt": "a", "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": 1}}}}',
        400,
    ),
    (_SCORES, b'{"input": {}}', 400),
    ("/v1/chat/completions", b'{"messages": [{"role": "user", "content": "no template"}]}', 400),
)
_KINDS = ("whole", "stream", "stream", "leaves", "breaks_off", "wrong", "score")


class Soak:
    """Clients that send requests for `seconds`."""

    def __init__(self, client: httpx2.AsyncClient, seconds: float) -> None:
        self._client, self._end = client, time.monotonic() + seconds
        self._draw = random.Random(1)
        self._answers: dict[str, str] = {}
        self._likelihoods: dict[str, list[float]] = {}
        self.counts: collections.Counter[str] = collections.Counter()

    async def run(self) -> None:
        """Records the right answers, one request at a time, then sends requests until the end."""
        for number in range(_NUM_QUESTIONS):
            question = self._question(number)
            self._answers[json.dumps(question)] = await self._whole(question)
            self._likelihoods[question["prompt"]] = await self._scores(question)
        await asyncio.gather(*(self._one_client() for _ in range(_NUM_CLIENTS)))

    async def _one_client(self) -> None:
        while time.monotonic() < self._end:
            kind = self._draw.choice(_KINDS)
            question = self._question(self._draw.randrange(_NUM_QUESTIONS))
            await getattr(self, f"_{kind}_is_right")(question)
            self.counts[kind] += 1

    def _question(self, number: int) -> dict[str, Any]:
        prompt = _PROMPTS[number % len(_PROMPTS)] * (1 + number % 3)
        return {"prompt": prompt, "max_tokens": 4 + number, "seed": number, **_WAYS[number // 6]}

    async def _whole(self, question: dict[str, Any]) -> str:
        reply = await self._client.post(_TEXT, json=question)
        reply.raise_for_status()
        return reply.json()["choices"][0]["text"]

    async def _whole_is_right(self, question: dict[str, Any]) -> None:
        self._check(question, await self._whole(question))

    async def _stream_is_right(self, question: dict[str, Any]) -> None:
        text = ""
        async with self._client.stream("POST", _TEXT, json={**question, "stream": True}) as reply:
            async for line in reply.aiter_lines():
                if line.startswith("data: {"):
                    text += json.loads(line[6:])["choices"][0]["text"]
        self._check(question, text)

    async def _leaves_is_right(self, question: dict[str, Any]) -> None:
        async with self._client.stream("POST", _TEXT, json={**question, "stream": True}) as reply:
            async for _ in reply.aiter_lines():
                if self._draw.random() < 0.3:
                    return

    async def _breaks_off_is_right(self, _: dict[str, Any]) -> None:
        address = urlsplit(str(self._client.base_url))
        _reader, writer = await asyncio.open_connection(address.hostname, address.port)
        whole = b'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20\r\n\r\n{"prompt": "abcdef"}'
        writer.write(whole[: self._draw.randrange(len(whole) + 1)])
        await writer.drain()
        writer.close()

    async def _wrong_is_right(self, _: dict[str, Any]) -> None:
        path, body, status = self._draw.choice(_WRONG)
        reply = await self._client.post(path, content=body, headers={"Content-Type": "application/json"})
        if reply.status_code != status or not reply.json()["error"]["message"]:
            raise SystemExit(f"{body[:60]!r} got {reply.status_code} and not {status}: {reply.text}")

    async def _scores(self, question: dict[str, Any]) -> list[float]:
        reply = await self._client.post(_SCORES, json={"input": question["prompt"]})
        reply.raise_for_status()
        return reply.json()["data"][0]["token_logprobs"]

    async def _score_is_right(self, question: dict[str, Any]) -> None:
        found, wanted = await self._scores(question), self._likelihoods[question["prompt"]]
        if found != wanted:
            raise SystemExit(f"wrong score of {question['prompt']!r}: {found} and not {wanted}")

    def _check(self, question: dict[str, Any], text: str) -> None:
        if text != self._answers[json.dumps(question)]:
            raise SystemExit(f"wrong answer to {question}: {text!r} and not {self._answers[json.dumps(question)]!r}")


def memory_mib(process: int) -> float:
    """The resident memory of a process, in MiB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


async def watched(address: str, process: int, seconds: float) -> tuple[Soak, list[float]]:
    """Runs the soak test. Returns it, and the server's memory at every second."""
    async with httpx2.AsyncClient(base_url=address, timeout=120.0) as client:
        soak, memory = Soak(client, seconds), list[float]()
        work = asyncio.ensure_future(soak.run())
        while not work.done():
            memory.append(memory_mib(process))
            await asyncio.wait({work}, timeout=1.0)
        work.result()
        await asyncio.sleep(1.0)
        metrics = dict(line.rsplit(" ", 1) for line in (await client.get("/metrics")).text.splitlines())
    for name, wanted in (
        ("meshtf_generations_running", "0.0"),
        ("meshtf_generations_waiting", "0.0"),
        ("meshtf_cache_pages_free", metrics["meshtf_cache_pages"]),
    ):
        if metrics[name] != wanted:
            raise SystemExit(f"{name} is {metrics[name]} and not {wanted} when all clients have left")
    return soak, memory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--run", help="the folder of the run that is served")
    options = parser.parse_args()
    with started_server(run=options.run) as (address, process):
        soak, memory = asyncio.run(watched(address, process, options.minutes * 60))
    third = len(memory) // 3
    growth = max(memory[-third:]) - max(memory[:third])
    print(f"{sum(soak.counts.values())} requests, none wrong: {dict(sorted(soak.counts.items()))}")
    print(f"memory: {memory[0]:.0f} MiB at first, {memory[-1]:.0f} MiB at the end; growth {growth:.0f} MiB")
    if growth > _MOST_GROWTH:
        raise SystemExit("the server's memory grows")


if __name__ == "__main__":
    main()
