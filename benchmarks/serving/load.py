"""Starts two hundred clients at once, and measures how long each waits: `python -m benchmarks.serving.load`."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import time

import httpx2
import numpy as np

from benchmarks.serving.started_server import started_server

_PROMPT = "def function_{}(x):\n    return "


@dataclasses.dataclass(frozen=True)
class Heard:
    """The seconds of one client until its first token and until its end, and its number of tokens."""

    first: float
    whole: float
    num_tokens: int


async def ask(client: httpx2.AsyncClient, number: int, num_tokens: int) -> Heard:
    """Streams a completion to its end."""
    body = {"prompt": _PROMPT.format(number), "max_tokens": num_tokens, "seed": number, "stream": True}
    body |= {"stream_options": {"include_usage": True}, "user": str(number)}
    start, first, last = time.perf_counter(), 0.0, ""
    async with client.stream("POST", "/v1/completions", json=body) as reply:
        reply.raise_for_status()
        async for line in reply.aiter_lines():
            if line.startswith("data: {"):
                first, last = first or time.perf_counter() - start, line
    return Heard(first, time.perf_counter() - start, json.loads(last[6:])["usage"]["completion_tokens"])


async def load(address: str, num_clients: int, num_tokens: int) -> list[Heard | BaseException]:
    """Starts all clients at once, each with a separate connection."""
    limits = httpx2.Limits(max_connections=num_clients)
    async with httpx2.AsyncClient(base_url=address, limits=limits, timeout=600.0) as client:
        asked = (ask(client, number, num_tokens) for number in range(num_clients))
        return await asyncio.gather(*asked, return_exceptions=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--num_rows", type=int, default=16)
    parser.add_argument("--run", help="the folder of the run that is served")
    options = parser.parse_args()
    with started_server(f"--num_rows={options.num_rows}", run=options.run) as (address, _):
        asyncio.run(load(address, 2, 4))
        start = time.perf_counter()
        found = asyncio.run(load(address, options.clients, options.tokens))
        seconds = time.perf_counter() - start
    heard = [each for each in found if isinstance(each, Heard)]
    lost = [each for each in found if isinstance(each, BaseException)]
    rates = [each.num_tokens / max(each.whole - each.first, 1e-9) for each in heard]
    print(f"| {options.clients} clients, {options.num_rows} rows | p50 | p99 |\n|---|---|---|")
    for name, values in (("first token, s", [x.first for x in heard]), ("whole reply, s", [x.whole for x in heard])):
        print(f"| {name} | {np.percentile(values, 50):.2f} | {np.percentile(values, 99):.2f} |")
    print(f"| tokens/s of a client, once it runs | {np.percentile(rates, 50):.1f} | {np.percentile(rates, 1):.1f} |")
    num_tokens = sum(each.num_tokens for each in heard)
    print(f"all: {num_tokens} tokens in {seconds:.1f} s, {num_tokens / seconds:.0f} tokens/s; {len(lost)} clients lost")
    if lost:
        raise SystemExit(f"lost: {lost[0]!r}")


if __name__ == "__main__":
    main()
