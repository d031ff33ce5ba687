"""Tests the stream and -origin in a browser, which enforces -origin: browser.py API PORT OTHER

API was started with -origin http://localhost:PORT. The same page is served from
there and from OTHER. A headless Chromium opens it, and the page reports what it sees.
"""

import functools
import http.server
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.parse
import urllib.request

api, port, other = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
reports = queue.Queue()
page = os.path.dirname(os.path.abspath(__file__))


class Handler(http.server.SimpleHTTPRequestHandler):
    def do_POST(self):
        reports.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args):
        pass


def seen(port):
    """Serves the page on this port, and returns what it sees."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), functools.partial(Handler, directory=page))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        chromium = subprocess.Popen(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
             "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
             "--disable-sync", "--no-proxy-server", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost",
             f"--user-data-dir={profile}",
             f"http://localhost:{port}/page.html?" + urllib.parse.urlencode({"api": api})],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            return reports.get(timeout=60)
        finally:
            os.killpg(chromium.pid, signal.SIGKILL)
            chromium.wait()
            server.shutdown()


def check(what, got, want):
    print(f"{what}: {json.dumps(got)}")
    if got != want:
        sys.exit(f"FAILED, want {json.dumps(want)}")


def status():
    with urllib.request.urlopen(api + "/status") as answer:
        return json.load(answer)


check("a page of another origin", seen(other), {
    "read": "TypeError", "stream": "error",
    "simple": "TypeError", "preflighted": "TypeError", "error": "TypeError"})
check("the drone after it", [status()["mode"], status()["armed"]], ["manual", False])
check("a page of the -origin", seen(port), {
    "read": "200 manual", "stream": "manual, takeoff; 200 takeoff",
    "simple": "200 takeoff", "preflighted": "200 takeoff", "error": "400 bad_request"})
