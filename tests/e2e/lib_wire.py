# SPDX-License-Identifier: Apache-2.0
"""
A part of proto/tony.proto: enough to talk to a pool as a client, and to a keeper as its master. It has the
frames, and messages by their field numbers.
"""

import select
import socket
import time

# Field numbers in Frame.
REFUSED, CLIENT_HELLO, CLIENT_ASK, RESIZE_JOB, ANSWER, JOB_UPDATE = 1, 30, 31, 33, 40, 41
REGISTER_MASTER, REQUEST_CONTAINERS, RELEASE_CONTAINERS, FINISH_JOB, WANT_CONTAINERS, CANCEL_ASKS = 70, 71, 74, 75, 76, 77
SIZE_BOUNDS = 78
REGISTERED, CONTAINERS_ALLOCATED, CONTAINERS_COMPLETED, SIZE_WISH = 80, 81, 82, 83
WISH = 9  # value of ClientAsk.What


def varint(n):
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def pack(**fields):
    """pack(f1=5, f2="text", f3=[b"..", b".."]): each name is "f" and the field's number."""
    out = b""
    for name, value in fields.items():
        number = int(name[1:])
        for v in value if isinstance(value, list) else [value]:
            if isinstance(v, int):
                out += varint(number << 3) + varint(v)
            else:
                data = v.encode() if isinstance(v, str) else v
                out += varint(number << 3 | 2) + varint(len(data)) + data
    return out


def unpack(data):
    """Returns {number: [values]}: ints, or bytes for texts and messages. Packed lists of ints stay bytes."""
    fields, at = {}, 0

    def number():
        nonlocal at
        n = shift = 0
        while True:
            byte = data[at]
            at += 1
            n |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return n
    while at < len(data):
        key = number()
        if key & 7 == 0:
            value = number()
        else:
            assert key & 7 == 2, f"wire type {key & 7}"
            size = number()
            value = data[at:at + size]
            at += size
        fields.setdefault(key >> 3, []).append(value)
    return fields


def unpack_ints(values):
    """The values of a repeated uint32 field."""
    found = []
    for value in values:
        if isinstance(value, int):
            found.append(value)
            continue
        at = 0
        while at < len(value):
            n = shift = 0
            while True:
                n |= (value[at] & 0x7F) << shift
                shift += 7
                at += 1
                if value[at - 1] < 0x80:
                    break
            found.append(n)
    return found


class Gone(Exception):
    """The other side has closed the connection."""


class Wire:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.bytes = b""

    def close(self):
        self.socket.close()

    def send(self, body, payload):
        frame = pack(**{f"f{body}": payload})
        try:
            self.socket.sendall(len(frame).to_bytes(4, "big") + frame)
        except OSError as e:
            raise Gone from e

    def hear(self, limit=60):
        """Returns (number of the body, its fields), or None at the deadline."""
        deadline = time.monotonic() + limit
        while True:
            if len(self.bytes) >= 4:
                size = int.from_bytes(self.bytes[:4], "big")
                if len(self.bytes) >= 4 + size:
                    frame, self.bytes = self.bytes[4:4 + size], self.bytes[4 + size:]
                    (body, values), = unpack(frame).items()
                    return body, unpack(values[0])
            left = deadline - time.monotonic()
            if not select.select([self.socket], [], [], max(left, 0))[0]:
                return None
            try:
                more = self.socket.recv(65536)
            except OSError as e:
                raise Gone from e
            if not more:
                raise Gone
            self.bytes += more
