# SPDX-License-Identifier: Apache-2.0
"""
The client's side of torch's TCPStore, without torch. A program that uses the store starts in 30 ms instead of
3 s.

Newer: the protocol of torch >= 2.2, where the client first sends a magic number. Older: that of torch 1.13.
"""

import os
import socket
import struct

MAGIC = 0x3C85F7CE


class Store:
    SET, GET, ADD, CHECK, WAIT, DELETE = 1, 3, 4, 5, 6, 8

    def __init__(self, host=None, port=None, limit=60):
        at = host or os.environ["MASTER_ADDR"], int(port or os.environ["MASTER_PORT"])
        self.sock = socket.create_connection(at, timeout=limit)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.hello()

    def hello(self):
        self.sock.sendall(struct.pack("<BI", 0, MAGIC))

    def send(self, number, *fields):
        parts = [bytes([number])]
        for f in fields:
            f = f.encode() if isinstance(f, str) else f
            parts.append(struct.pack("<q", f) if isinstance(f, int) else struct.pack("<Q", len(f)) + f)
        self.sock.sendall(b"".join(parts))

    def read(self, n):
        got = b""
        while len(got) < n:
            piece = self.sock.recv(n - len(got))
            if not piece:
                raise EOFError("the store has closed the connection")
            got += piece
        return got

    def number(self):
        return struct.unpack("<q", self.read(8))[0]

    def set(self, key, value):
        self.send(self.SET, key, value)

    def add(self, key, by=1):
        self.send(self.ADD, key, by)
        return self.number()

    def has(self, *keys):
        self.send(self.CHECK, len(keys), *keys)
        return self.read(1) == b"\0"

    def wait(self, *keys):
        self.send(self.WAIT, len(keys), *keys)
        assert self.read(1) == b"\0"

    def get(self, key):
        self.wait(key)
        self.send(self.GET, key)
        return self.read(self.number())

    def delete(self, key):
        self.send(self.DELETE, key)
        return self.number() == 1

    def barrier(self, name, n):
        """Waits until all n clients have called it."""
        if self.add(f"{name}/come") == n:
            self.set(f"{name}/all", b"1")
        self.wait(f"{name}/all")


class Older(Store):
    SET, GET, ADD, CHECK, WAIT, DELETE = 0, 2, 3, 4, 5, 8

    def hello(self):
        pass
