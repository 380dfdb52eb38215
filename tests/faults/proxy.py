"""TCP proxy that imitates network faults: delays, cuts, one-way loss and duplicates.

It passes bytes between its own port and a server. Plain attributes select the fault, at any time and from any thread; a
change applies to later bytes. `duplicate` suits protocols with one request per connection: the client's bytes are sent
again on another connection, and that answer is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import Future
from dataclasses import dataclass

CHUNK_BYTES = 65_536
#: Longer than a busy machine delays a thread.
WAIT_S_MAX = 60
#: Interval of the check whether requests are still held.
LOOK_S = 0.01


@dataclass(slots=True)
class Weather:
    """Current faults."""

    request_delay_s: float = 0.0
    hold_requests: bool = False  #: Requests are read, and passed on once it is False again.
    reply_delay_s: float = 0.0
    drop_requests: bool = False  #: Requests are read and never passed on; the connection stays open.
    drop_replies: bool = False  #: The server acts, but the client gets no answer.
    refuse: bool = False  #: New connections are closed at once.
    duplicate: bool = False  #: See the module.


class Proxy:
    """Proxy on `port` of 127.0.0.1 from construction to `close`."""

    def __init__(self, server_port: int) -> None:
        self.weather = Weather()
        self.requests = 0  #: Chunks from clients.
        self.delivered_late = 0  #: Chunks passed on after a delay.
        self.server_port = server_port  #: Number of accepted connections.
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        ready: Future[int] = Future()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="proxy", daemon=True)
        self._thread.start()
        self.port = ready.result(WAIT_S_MAX)

    def cut(self) -> None:
        """Break every open connection."""
        self._loop.call_soon_threadsafe(self._cancel_all)

    def close(self) -> None:
        """Break all connections and stop listening."""
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(WAIT_S_MAX)

    def _run(self, ready: Future[int]) -> None:
        with contextlib.closing(self._loop):
            self._loop.run_until_complete(self._serve(ready))

    async def _serve(self, ready: Future[int]) -> None:
        self._end = asyncio.Event()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        ready.set_result(server.sockets[0].getsockname()[1])
        await self._end.wait()
        server.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}  # Connections that have just begun, too.
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _cancel_all(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _accept(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if not self.weather.refuse:
                await self._carry(client_in, client_out)
        except (OSError, asyncio.CancelledError):
            pass  # Broken on purpose, or by one of the two ends.
        finally:
            self._tasks.discard(task)
            client_out.close()

    async def _carry(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        async with contextlib.AsyncExitStack() as stack:
            server_in, server_out = await asyncio.open_connection("127.0.0.1", self.server_port)
            stack.callback(server_out.close)
            again: asyncio.StreamWriter | None = None
            if self.weather.duplicate:
                again_in, again = await asyncio.open_connection("127.0.0.1", self.server_port)
                stack.callback(again.close)
                self._keep(asyncio.create_task(_throw_away(again_in)))
            replies = asyncio.create_task(self._replies(server_in, client_out))
            self._keep(replies)
            stack.callback(replies.cancel)
            requests = asyncio.create_task(self._requests(client_in, server_out, again))
            self._keep(requests)
            stack.callback(requests.cancel)
            await asyncio.wait({requests, replies}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({replies}, timeout=5)  # The server's last bytes after the client's end.

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _requests(
        self, client_in: asyncio.StreamReader, server_out: asyncio.StreamWriter, again: asyncio.StreamWriter | None
    ) -> None:
        while said := await client_in.read(CHUNK_BYTES):
            # Settings are read before the bytes are counted, so a test that saw the count may change them.
            delay_s, is_dropped, is_held = self.weather.request_delay_s, self.weather.drop_requests, self.weather.hold_requests
            self.requests += 1
            await asyncio.sleep(delay_s)
            while is_held and self.weather.hold_requests:  # noqa: ASYNC110  the weather is made by threads
                await asyncio.sleep(LOOK_S)
            if not is_dropped:
                server_out.write(said)
                await server_out.drain()
                self.delivered_late += delay_s > 0
                if again is not None:
                    again.write(said)
                    await again.drain()

    async def _replies(self, server_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        while said := await server_in.read(CHUNK_BYTES):
            await asyncio.sleep(self.weather.reply_delay_s)
            if not self.weather.drop_replies:
                client_out.write(said)
                await client_out.drain()


async def _throw_away(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(OSError):
        while await reader.read(CHUNK_BYTES):
            pass
