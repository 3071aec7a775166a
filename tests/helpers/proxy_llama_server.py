"""The real llama-server behind a proxy that spoils a chosen request.

It takes llama-server's flags. PROXY_SERVER names the real program. PROXY_FAULT is one of these,
with the number of the chat request (counted from 1, in this process) that it spoils:
    delay:N    the request reaches the server half a second late
    stall:N    the request never reaches the server
    cut:N      the connection is cut in the middle of the reply
    kill:N     the server is killed in the middle of the reply
A fault is done once: the file that PROXY_ONCE names is made, and it is not repeated.
"""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

DELAY_S = 0.5
BEFORE_CUT = 700  # bytes of the reply: its head and the first chunks
CHAT = b"POST /v1/chat/completions"


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Proxy:
    def __init__(self, port: int, behind: int, server: "subprocess.Popen[bytes]") -> None:
        self.behind, self.server = behind, server
        self.fault, _, number = os.environ.get("PROXY_FAULT", "").partition(":")
        self.number, self.once = int(number or 0), Path(os.environ["PROXY_ONCE"])
        self.chats = 0
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", port), backlog=64)

    def run(self) -> None:
        while True:
            near, _ = self.listener.accept()
            threading.Thread(target=self.relay, args=(near,), daemon=True).start()

    def spoils(self, head: bytes) -> str:
        """The fault of the request that starts with `head`, or nothing."""
        with self.lock:
            if not head.startswith(CHAT) or self.once.exists():
                return ""
            self.chats += 1
            if self.chats != self.number:
                return ""
            self.once.touch()
            return self.fault

    def relay(self, near: socket.socket) -> None:
        head = near.recv(1 << 16)
        fault = self.spoils(head)
        if fault == "stall":
            near.recv(1)  # until the client gives up
            return
        if fault == "delay":
            time.sleep(DELAY_S)
        try:
            far = socket.create_connection(("127.0.0.1", self.behind))
        except ConnectionRefusedError:  # not up yet
            near.close()
            return
        far.sendall(head)
        threading.Thread(target=self.copy, args=(near, far), daemon=True).start()
        if fault in ("cut", "kill"):
            self.copy_some(far, near)
            if fault == "kill":
                self.server.kill()
                return
            # Both ends at once, though other threads still wait in recv.
            far.shutdown(socket.SHUT_RDWR)
            near.shutdown(socket.SHUT_RDWR)
            return
        self.copy(far, near)

    @staticmethod
    def copy(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            return

    @staticmethod
    def copy_some(source: socket.socket, target: socket.socket) -> None:
        passed = 0
        while passed < BEFORE_CUT and (data := source.recv(256)):
            target.sendall(data)
            passed += len(data)


def main() -> int:
    line = [os.environ["PROXY_SERVER"], *sys.argv[1:]]
    at = line.index("--port") + 1
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        behind = probe.getsockname()[1]
    port, line[at] = int(line[at]), str(behind)
    with subprocess.Popen(line, preexec_fn=die_with_parent) as server:
        signal.signal(signal.SIGTERM, lambda *_: server.terminate())
        proxy = Proxy(port, behind, server)
        threading.Thread(target=proxy.run, daemon=True).start()
        status = server.wait()
    # As the server ended, so does this: by the same signal.
    if status < 0:
        signal.signal(-status, signal.SIG_DFL) if status != -signal.SIGKILL else None
        os.kill(os.getpid(), -status)
    return status


if __name__ == "__main__":
    sys.exit(main())
