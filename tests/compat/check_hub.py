"""The cache of Python's huggingface_hub: filled by planish and read by the library, and the other way round.

    python check_hub.py PLANISH CHECKPOINT        with huggingface_hub

A hub on 127.0.0.1 serves the files of a checkpoint by the paths and with the headers of the real one. Whoever comes second must
not download a byte of a file. Both also wait for each other's locks.
"""

import argparse
import hashlib
import http.server
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE = 1 << 20


def serve(checkpoint):
    """A hub with one model, owner/name; returns its address and the list of its requests."""
    files = {str(p.relative_to(checkpoint)): p for p in sorted(checkpoint.rglob("*")) if p.is_file()}
    requests = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def say(self, status, body=b"", headers=()):
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **dict(headers)}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def do_HEAD(self):
            self.do_GET()

        def do_GET(self):
            requests.append(f"{self.command} {self.path}")
            path = self.path.split("?")[0]
            if path.startswith("/bytes/"):
                return self.say(200, files[path.removeprefix("/bytes/")].read_bytes())
            if path.startswith("/api/models/owner/name/revision/"):
                siblings = [{"rfilename": name, "size": file.stat().st_size} for name, file in files.items()]
                return self.say(200, json.dumps({"id": "owner/name", "sha": COMMIT, "siblings": siblings}).encode())
            if path.startswith("/api/models/owner/name/tree/"):
                return self.say(200, json.dumps([self.entry(name) for name in files]).encode())
            name = path.removeprefix("/owner/name/resolve/").split("/", 1)[-1]
            if name not in files:
                return self.say(404, headers={"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
            size = files[name].stat().st_size
            if size < LARGE:
                body = files[name].read_bytes()
                return self.say(200, body, {"ETag": f'"{git_name(body)}"', "X-Repo-Commit": COMMIT})
            host = f"http://localhost:{self.server.server_port}"
            return self.say(302, b"", {
                "Location": f"{host}/bytes/{name}", "X-Linked-Etag": f'"{sha256(files[name])}"', "X-Linked-Size": str(size),
                "X-Repo-Commit": COMMIT,
            })

        def entry(self, name):
            size = files[name].stat().st_size
            entry = {"type": "file", "path": name, "size": size, "oid": git_name(files[name].read_bytes())}
            return {**entry, "lfs": {"oid": sha256(files[name]), "size": size, "pointerSize": 130}} if size >= LARGE else entry

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}", requests


def git_name(body):
    return hashlib.sha1(f"blob {len(body)}\0".encode() + body).hexdigest()


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def transfers(requests):
    """The files whose bytes were asked for."""
    asked = [r for r in requests if r.startswith("GET ") and "/api/" not in r]
    return sorted({r.split(f"{COMMIT}/")[-1].split("/bytes/")[-1] for r in asked})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("planish")
    parser.add_argument("checkpoint", type=pathlib.Path)
    arguments = parser.parse_args()
    endpoint, requests = serve(arguments.checkpoint.resolve())
    failures = []

    def expect(what, is_right):
        print(f"{'ok    ' if is_right else 'FAILED'}  {what}")
        if not is_right:
            failures.append(what)

    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": folder}
        for name in ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_TOKEN", "HF_HUB_CACHE"]:
            environment.pop(name, None)
            os.environ.pop(name, None)
        os.environ.update(HF_ENDPOINT=endpoint, HF_HOME=folder, HF_HUB_DISABLE_PROGRESS_BARS="1")
        import huggingface_hub

        def planish(cache, **more):
            out = pathlib.Path(folder, "out")
            command = [arguments.planish, "compile", "owner/name", "-o", out, "--force"]
            done = subprocess.run(command, env={**environment, "HF_HUB_CACHE": str(cache), **more}, capture_output=True, text=True)
            expect(f"planish compile, cache {cache.name}: {done.stderr.strip()[-300:]}", done.returncode == 0)
            return sha256(out / "model.onnx")

        ours, theirs = pathlib.Path(folder, "ours"), pathlib.Path(folder, "theirs")
        shown = planish(ours)
        needed = transfers(requests)
        print(f"        needed: {', '.join(needed)}")
        requests.clear()
        got = pathlib.Path(huggingface_hub.snapshot_download("owner/name", cache_dir=ours, allow_patterns=needed))
        expect("huggingface_hub finds what planish downloaded", transfers(requests) == [])
        expect("... at the same commit", got.name == COMMIT)
        offline = huggingface_hub.hf_hub_download("owner/name", "config.json", cache_dir=ours, local_files_only=True)
        expect("... without the network too", pathlib.Path(offline).is_file())
        found = huggingface_hub.scan_cache_dir(ours)
        expect("... and its scan of the cache warns of nothing", not found.warnings and len(found.repos) == 1)

        huggingface_hub.snapshot_download("owner/name", cache_dir=theirs, allow_patterns=needed)
        requests.clear()
        expect("planish finds what huggingface_hub downloaded", planish(theirs) == shown and transfers(requests) == [])
        requests.clear()
        expect("... without the network too", planish(theirs, HF_HUB_OFFLINE="1") == shown and requests == [])
        same = {str(p.relative_to(ours)): os.readlink(p) for p in ours.rglob("snapshots/**/*") if p.is_symlink()}
        other = {str(p.relative_to(theirs)): os.readlink(p) for p in theirs.rglob("snapshots/**/*") if p.is_symlink()}
        expect("both caches have the same links", same == other and len(same) == len(needed))

        # A lock of the library holds planish back.
        from huggingface_hub.utils import WeakFileLock
        third = pathlib.Path(folder, "third")
        large = next(sha256(p) for p in arguments.checkpoint.rglob("*.safetensors") if p.stat().st_size >= LARGE)
        lock = third / ".locks/models--owner--name" / f"{large}.lock"
        lock.parent.mkdir(parents=True)
        with WeakFileLock(lock):
            waiting = subprocess.Popen(
                [arguments.planish, "compile", "owner/name", "-o", pathlib.Path(folder, "other")], env={**environment, "HF_HUB_CACHE": str(third)},
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            )
            said = next((line for line in waiting.stderr if "another process downloads" in line), "")
            expect(f"planish waits for a lock of huggingface_hub: {said.strip()}", said and waiting.poll() is None)
        waiting.communicate(timeout=60)
        expect("... and goes on after it", waiting.returncode == 0)
    print(f"huggingface_hub {huggingface_hub.__version__}: {len(failures)} failures")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
