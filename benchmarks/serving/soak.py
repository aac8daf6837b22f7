"""Random clients for minutes: right answers, wrong requests, clients that leave. `python -m benchmarks.serving.soak`

It fails if an answer is wrong, a request is lost, or the server's memory grows.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import random
import time
from pathlib import Path

import httpx2

from benchmarks.serving.started_server import started_server

_NUM_CLIENTS, _NUM_QUESTIONS = 16, 24
_MOST_GROWTH = 64.0  # MiB behind the first third; the allocator's own share
_WRONG = (b"{", b'{"prompt": "\\ud800"}', b'{"prompt": "a", "n": 99999}', b'{"prompt": "' + b"a" * 5000 + b'"}')


class Soak:
    """Clients that ask for `seconds`."""

    def __init__(self, client: httpx2.AsyncClient, seconds: float) -> None:
        self._client, self._end = client, time.monotonic() + seconds
        self._draw = random.Random(1)
        self._answers: dict[str, str] = {}
        self.counts: collections.Counter[str] = collections.Counter()

    async def run(self) -> None:
        """Learns the right answers, and asks until the end."""
        for number in range(_NUM_QUESTIONS):
            question = self._question(number)
            self._answers[json.dumps(question)] = await self._whole(question)
        await asyncio.gather(*(self._one_client() for _ in range(_NUM_CLIENTS)))

    async def _one_client(self) -> None:
        while time.monotonic() < self._end:
            kind = self._draw.choice(["whole", "stream", "stream", "leaves", "wrong", "score"])
            question = self._question(self._draw.randrange(_NUM_QUESTIONS))
            await getattr(self, f"_{kind}_is_right")(question)
            self.counts[kind] += 1

    def _question(self, number: int) -> dict[str, object]:
        way = {"temperature": 0} if number % 3 == 0 else {"temperature": 0.9, "top_p": 0.9, "seed": number}
        return {"prompt": "x" * (number + 1) + "ü", "max_tokens": 4 + number, **way}

    async def _whole(self, question: dict[str, object]) -> str:
        reply = await self._client.post("/v1/completions", json=question)
        reply.raise_for_status()
        return reply.json()["choices"][0]["text"]

    async def _whole_is_right(self, question: dict[str, object]) -> None:
        self._check(question, await self._whole(question))

    async def _stream_is_right(self, question: dict[str, object]) -> None:
        text = ""
        async with self._client.stream("POST", "/v1/completions", json={**question, "stream": True}) as reply:
            async for line in reply.aiter_lines():
                if line.startswith("data: {"):
                    text += json.loads(line[6:])["choices"][0]["text"]
        self._check(question, text)

    async def _leaves_is_right(self, question: dict[str, object]) -> None:
        async with self._client.stream("POST", "/v1/completions", json={**question, "stream": True}) as reply:
            async for _ in reply.aiter_lines():
                if self._draw.random() < 0.3:
                    return

    async def _wrong_is_right(self, _: dict[str, object]) -> None:
        body = self._draw.choice(_WRONG)
        reply = await self._client.post("/v1/completions", content=body, headers={"Content-Type": "application/json"})
        if reply.status_code != 400 or not reply.json()["error"]["message"]:
            raise SystemExit(f"a wrong request got {reply.status_code}: {reply.text}")

    async def _score_is_right(self, question: dict[str, object]) -> None:
        reply = await self._client.post("/v1/score", json={"input": question["prompt"]})
        reply.raise_for_status()

    def _check(self, question: dict[str, object], text: str) -> None:
        if text != self._answers[json.dumps(question)]:
            raise SystemExit(f"wrong answer to {question}: {text!r} and not {self._answers[json.dumps(question)]!r}")


def memory_mib(process: int) -> float:
    """The resident memory of a process, in MiB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


async def watched(address: str, process: int, seconds: float) -> tuple[Soak, list[float]]:
    """Runs the soak. Returns it, with the server's memory at every second."""
    async with httpx2.AsyncClient(base_url=address, timeout=120.0) as client:
        soak, memory = Soak(client, seconds), list[float]()
        work = asyncio.ensure_future(soak.run())
        while not work.done():
            memory.append(memory_mib(process))
            await asyncio.wait({work}, timeout=1.0)
        work.result()
        await asyncio.sleep(1.0)
        lines = (await client.get("/metrics")).text.splitlines()
        if "meshtf_generations_running 0.0" not in lines or "meshtf_generations_waiting 0.0" not in lines:
            raise SystemExit("generations still run when all clients have left")
        return soak, memory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    options = parser.parse_args()
    with started_server() as (address, process):
        soak, memory = asyncio.run(watched(address, process, options.minutes * 60))
    third = len(memory) // 3
    growth = max(memory[-third:]) - max(memory[:third])
    print(f"{sum(soak.counts.values())} requests, none wrong: {dict(soak.counts)}")
    print(f"memory: {memory[0]:.0f} MiB at first, {memory[-1]:.0f} MiB at the end; growth {growth:.0f} MiB")
    if growth > _MOST_GROWTH:
        raise SystemExit("the server's memory grows")


if __name__ == "__main__":
    main()
