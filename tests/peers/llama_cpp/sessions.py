"""Total tokens per second of several sessions that decode plainly, at the same time, as services.

Ours: `foretoken up` without a drafter, and one `foretoken generate` per session. Theirs: `llama-server` with as many
slots, and one streaming HTTP request per session. Both sample greedily and stream every token to their clients.
"""

import concurrent.futures
import contextlib
import dataclasses
import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import time

from build import note

# Seconds a service may take to be ready.
READY = 120
# Room for each session's prompt beside its tokens.
PROMPT_ROOM = 256


@dataclasses.dataclass
class Rates:
    """Total tokens per second, one value per round, and the fewest tokens that a session of ours gave."""

    ours: list = dataclasses.field(default_factory=list)
    theirs: list = dataclasses.field(default_factory=list)
    shortest: int = 0

    @property
    def ratio(self):
        return statistics.median(ours / theirs for ours, theirs in zip(self.ours, self.theirs))


def compare(foretoken, llama_server, model, args):
    """Rounds of both services, each alone on the machine."""
    rates = Rates(shortest=args.tokens)
    for turn in range(max(1, args.rounds // 2)):
        note(f"{args.sessions} sessions of {args.tokens} tokens: round {turn + 1}")
        rate, shortest = ours(foretoken, model, args)
        rates.ours.append(rate)
        rates.shortest = min(rates.shortest, shortest)
        # Its threads and its HTTP server share the processors; fewer threads may serve it better.
        rates.theirs.append(max(theirs(llama_server, model, threads, args) for threads in args.threads))
    return rates


def prompt(session):
    """Counting goes on for as long as it is let: no session ends early, and no two are alike."""
    first = 100 * (session + 1)
    return ", ".join(str(number) for number in range(first, first + 12)) + ","


def ours(foretoken, model, args):
    address = f"127.0.0.1:{free_port()}"
    up = [foretoken, "up", "--target", model, "--drafter", "none", "--draft-len", "0", "--listen", address]

    def generate(session, tokens):
        words = [foretoken, "generate", "--server", address, "--drafter", "none", "--draft-len", "0", "--json",
                 "--max-tokens", str(tokens), prompt(session)]
        done = subprocess.run(words, check=True, text=True, stdout=subprocess.PIPE)
        return json.loads(done.stdout)["output_tokens"]

    threads = {**os.environ, "FORETOKEN_THREADS": str(args.judged_threads)}
    with service(up, lambda: accepts(address), threads):
        counts, seconds = all_at_once(generate, args)
    return sum(counts) / seconds, min(counts)


def theirs(llama_server, model, threads, args):
    port = free_port()
    room = args.sessions * (args.tokens + PROMPT_ROOM)
    threads = str(threads)
    serve = [llama_server, "--model", model, "--port", str(port), "--parallel", str(args.sessions), "--ctx-size",
             str(room), "--threads", threads, "--threads-batch", threads, "--no-webui"]

    def generate(session, tokens):
        body = {"prompt": prompt(session), "n_predict": tokens, "ignore_eos": True, "temperature": 0, "stream": True,
                "cache_prompt": False}
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        connection.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
        events = [line[6:] for line in connection.getresponse().read().splitlines() if line.startswith(b"data: ")]
        return json.loads(events[-1])["tokens_predicted"]

    with service(serve, lambda: healthy(port)):
        counts, seconds = all_at_once(generate, args)
    return sum(counts) / seconds


def all_at_once(generate, args):
    """The sessions' token counts, and the seconds from the first request to the last answer."""
    with concurrent.futures.ThreadPoolExecutor(args.sessions) as pool:
        generate(0, 8)  # What is only done once, like the first touch of memory, is not counted.
        start = time.monotonic()
        counts = list(pool.map(generate, range(args.sessions), [args.tokens] * args.sessions))
        return counts, time.monotonic() - start


@contextlib.contextmanager
def service(words, ready, environment=None):
    """Runs a service until the block ends."""
    process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + READY
        while not ready():
            if process.poll() is not None:
                raise subprocess.CalledProcessError(process.returncode, words)
            if time.monotonic() > end:
                raise TimeoutError(f"`{words[0]}` was not ready within {READY} s")
            time.sleep(0.1)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def accepts(address):
    """The orchestrator listens last, once its workers serve."""
    host, port = address.rsplit(":", 1)
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 1):
        return True
    return False


def healthy(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    with contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    return False


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]
