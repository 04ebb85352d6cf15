# SPDX-License-Identifier: Apache-2.0
"""usage: notebook_user.py kernel|browser URL CODE

Uses a JupyterLab as a person does: runs CODE in a cell, and prints what the cell shows. It runs with the Python of
tools/install-frameworks jupyter, which has a client for WebSocket.

  kernel   speaks the protocol of Jupyter: starts a kernel, sends CODE, and reads its output
  browser  opens URL in Debian's chromium (headless), makes a notebook, types CODE into its cell, and presses Shift+Enter
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
import uuid

import websocket

LIMIT_S = 240  # a busy machine; until then something hangs


def wait_for(look, what):
    until = time.monotonic() + LIMIT_S
    while not (value := look()):
        if time.monotonic() > until:
            raise TimeoutError(what)
        time.sleep(0.2)
    return value


# ---- the protocol of Jupyter ----

def kernel(url, code):
    at = urllib.parse.urlsplit(url)
    token = urllib.parse.parse_qs(at.query)["token"][0]
    request = urllib.request.Request(f"http://{at.netloc}/api/kernels", data=b"{}",
                                     headers={"Authorization": f"token {token}", "Content-Type": "application/json"})
    made = json.loads(urllib.request.urlopen(request, timeout=LIMIT_S).read())
    ws = websocket.create_connection(f"ws://{at.netloc}/api/kernels/{made['id']}/channels?token={token}", timeout=LIMIT_S)
    header = {"msg_id": uuid.uuid4().hex, "username": "", "session": uuid.uuid4().hex, "msg_type": "execute_request", "version": "5.3"}
    ws.send(json.dumps({"header": header, "parent_header": {}, "metadata": {}, "channel": "shell",
                        "content": {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}}))
    text = ""
    while True:
        message = json.loads(ws.recv())
        if message["parent_header"].get("msg_id") != header["msg_id"]:
            continue
        if message["msg_type"] == "stream":
            text += message["content"]["text"]
        elif message["msg_type"] == "error":
            raise RuntimeError(message["content"]["evalue"])
        elif message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
            ws.close()
            return text


# ---- a browser ----

class Page:
    """A page of a browser, through the DevTools protocol."""

    def __init__(self, port):
        def pages():
            try:
                return [p for p in json.loads(urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=10).read()) if p["type"] == "page"]
            except OSError:
                return []
        target = wait_for(pages, "the browser has a page")[0]
        self.ws = websocket.create_connection(target["webSocketDebuggerUrl"], timeout=LIMIT_S, suppress_origin=True)
        self.n = 0

    def call(self, method, **params):
        self.n += 1
        self.ws.send(json.dumps({"id": self.n, "method": method, "params": params}))
        while True:
            answer = json.loads(self.ws.recv())
            if answer.get("id") == self.n:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def value(self, expression):
        """What a JavaScript expression is in the page."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def press(self, key, code, modifiers=0):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, modifiers=modifiers)


CARD = """document.querySelector('.jp-LauncherCard[data-category="Notebook"]')"""
CELL = "document.querySelector('.jp-Notebook .jp-CodeCell .cm-content')"
OUTPUT = "[...document.querySelectorAll('.jp-Notebook .jp-OutputArea-output')].map(x => x.innerText).join('')"
READY = "document.querySelector('.jp-Notebook-ExecutionIndicator')?.dataset.status"
SHIFT = 8


def in_page(page, code):
    wait_for(lambda: page.value(f"!!{CARD}"), "JupyterLab shows its launcher")
    page.value(f"{CARD}.click()")
    wait_for(lambda: page.value(f"!!{CELL}"), "the notebook has a cell")
    wait_for(lambda: page.value(READY) == "idle", "the kernel is idle")

    def typed():
        """JupyterLab may take the focus away until it has started. So the keys are pressed again until they have an effect."""
        page.value(f"{CELL}.focus()")
        if not page.value(f"{CELL}.innerText").strip():
            page.call("Input.insertText", text=code)
        page.press("Enter", 13, SHIFT)
        time.sleep(1)
        return page.value(OUTPUT)
    return wait_for(typed, "the cell has an output")


def browser(url, code):
    with tempfile.TemporaryDirectory(prefix="tony-chromium-", ignore_cleanup_errors=True) as home:
        p = subprocess.Popen(["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                              "--remote-debugging-port=0", f"--user-data-dir={home}", url],
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                             env={"HOME": home, "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"})
        try:
            port = pathlib.Path(home, "DevToolsActivePort")
            wait_for(lambda: port.exists() and port.read_text(), "the browser listens")
            page = Page(port.read_text().split()[0])
            try:
                return in_page(page, code)
            except TimeoutError as late:
                seen = page.value("document.title + ' ' + document.body.innerText.slice(0, 2000)")
                raise TimeoutError(f"{late}; the page: {seen}") from None
        finally:
            p.kill()
            p.wait()


if __name__ == "__main__":
    sys.stdout.write({"kernel": kernel, "browser": browser}[sys.argv[1]](*sys.argv[2:]))
