"""Checkpoints in object stores: moto's S3, which checks signatures, and where node has it Azurite.

    python check_stores.py PLANISH CHECKPOINT [--azurite PATH_OF_AZURITE_BLOB]      with moto, boto3 and azure-storage-blob

What planish compiles from a bucket has to be the bytes that it compiles from the folder here. Sparse checkpoints of 138 GB are served by
the server of the Rust tests (tests/end_to_end/stores.rs), because these stores keep objects whole.
"""

import argparse
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

REGION = "us-east-1"
# The account that Azurite and the clients of Azure know.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def started(command, port, **options):
    """A server that takes connections."""
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
    for _ in range(600):
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return server
        time.sleep(0.1)
    sys.exit(f"{command[0]} does not answer")


class Checks:
    def __init__(self, planish, checkpoint, folder):
        self.planish, self.checkpoint, self.folder = planish, checkpoint, folder
        self.failures = []
        self.expected = self.graph("here", self.compile(str(checkpoint), "here", {}))
        self.inspected = json.loads(self.run(["inspect", str(checkpoint), "--json"], {}).stdout)

    def expect(self, what, is_right):
        print(f"{'ok    ' if is_right else 'FAILED'}  {what}")
        if not is_right:
            self.failures.append(what)

    def run(self, arguments, variables):
        names = ("AWS_", "AZURE_", "AZURITE_", "GOOGLE_")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(names)}
        environment |= {"XDG_CACHE_HOME": str(self.folder / "cache"), **variables}
        return subprocess.run([self.planish, *arguments], env=environment, cwd=self.folder, capture_output=True, text=True)

    def compile(self, address, out, variables):
        return self.run(["compile", address, "-o", out, "--force"], variables)

    def graph(self, out, done):
        self.expect(f"compile into {out}: {done.stderr.strip()[-200:]}", done.returncode == 0)
        graph = self.folder / out / "model.onnx"
        return graph.read_bytes() if graph.is_file() else None

    def store(self, name, address, variables):
        """What holds for each store."""
        inspected = self.run(["inspect", address, "--json"], variables)
        shown = json.loads(inspected.stdout) if inspected.returncode == 0 else inspected.stderr
        self.expect(f"{name}: inspect of {address} says what it says of the folder", shown == self.inspected)
        self.expect(f"{name}: the same graph", self.graph(name, self.compile(address, name, variables)) == self.expected)
        again = self.compile(address, name, variables)
        self.expect(f"{name}: nothing comes twice", again.returncode == 0 and "is taken from the cache" in again.stderr)

    def fails(self, what, done, *texts):
        self.expect(f"{what}: {done.stderr.strip()[-300:]}", done.returncode == 1 and all(text in done.stderr for text in texts))


def s3(checks):
    import boto3

    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    server = started([str(pathlib.Path(sys.executable).with_name("moto_server")), "-p", str(port)], port)
    try:
        anyone = {"endpoint_url": endpoint, "region_name": REGION, "aws_access_key_id": "x", "aws_secret_access_key": "x"}
        client, users = boto3.client("s3", **anyone), boto3.client("iam", **anyone)
        client.create_bucket(Bucket="models")
        for file in sorted(checks.checkpoint.rglob("*")):
            if file.is_file():
                client.upload_file(str(file), "models", f"a folder/minilm/{file.relative_to(checks.checkpoint)}")
        users.create_user(UserName="reader")
        policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": ["s3:ListBucket", "s3:GetObject"], "Resource": "*"}]}
        users.put_user_policy(UserName="reader", PolicyName="read", PolicyDocument=json.dumps(policy))
        key = users.create_access_key(UserName="reader")["AccessKey"]
        # From now on moto checks signatures and permissions.
        plain = {"Content-Type": "text/plain"}
        urllib.request.urlopen(urllib.request.Request(f"{endpoint}/moto-api/reset-auth", b"0", plain, method="POST"))
        variables = {
            "AWS_ENDPOINT_URL": endpoint, "AWS_REGION": REGION, "AWS_ACCESS_KEY_ID": key["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"],
        }
        address = "s3://models/a folder/minilm"
        checks.store("s3", address, variables)
        wrong = {**variables, "AWS_SECRET_ACCESS_KEY": "another"}
        checks.fails("s3: a wrong secret", checks.compile(address, "x", wrong), "refuses the credentials", "set AWS_ACCESS_KEY_ID")
        checks.fails("s3: no such bucket", checks.compile("s3://none/minilm", "x", variables), "s3://none/minilm: ")
        checks.fails("s3: no such folder", checks.compile("s3://models/none", "x", variables), "there is no object below it")
    finally:
        server.terminate()
    away = checks.compile("s3://models/other", "x", variables)
    checks.fails("s3: no store", away, "cannot reach 127.0.0.1", "check AWS_ENDPOINT_URL")


def azure(checks, azurite):
    from azure.storage.blob import BlobServiceClient

    port = free_port()
    data = checks.folder / "azurite"
    command = [azurite, "--silent", "--skipApiVersionCheck", "--blobPort", str(port), "--location", str(data)]
    server = started(command, port)
    try:
        url = f"http://127.0.0.1:{port}"
        container = BlobServiceClient(f"{url}/{ACCOUNT}", credential=KEY).create_container("models")
        for file in sorted(checks.checkpoint.rglob("*")):
            if file.is_file():
                container.upload_blob(f"a folder/minilm/{file.relative_to(checks.checkpoint)}", file.read_bytes())
        variables = {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": url}
        checks.store("azure", "az://models/a folder/minilm", variables)
        wrong = {**variables, "AZURE_STORAGE_ACCOUNT_KEY": "YW5vdGhlcg=="}
        checks.fails("azure: a wrong key", checks.compile("az://models/a folder/minilm", "x", wrong), "refuses the credentials")
        checks.fails("azure: no such container", checks.compile("az://none/minilm", "x", variables), "has no bucket none")
    finally:
        server.terminate()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("planish")
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("--azurite", default=shutil.which("azurite-blob"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        planish = str(pathlib.Path(arguments.planish).resolve())
        checks = Checks(planish, arguments.checkpoint.resolve(), pathlib.Path(folder))
        s3(checks)
        if arguments.azurite:
            azure(checks, arguments.azurite)
        else:
            print("left out: Azure, because there is no azurite-blob (npm install azurite)")
    print(f"{len(checks.failures)} failures")
    sys.exit(bool(checks.failures))


if __name__ == "__main__":
    main()
