"""Upload token files to a bucket: `python upload.py FOLDER s3://BUCKET/PREFIX [--endpoint-url URL]`."""

from __future__ import annotations

import argparse
from pathlib import Path

import boto3

parser = argparse.ArgumentParser(description="Upload the *.bin files of a folder.")
parser.add_argument("folder", type=Path)
parser.add_argument("url", help="s3://BUCKET/PREFIX; the files' names are appended to it")
parser.add_argument("--endpoint-url", help="of an S3-compatible store")
options = parser.parse_args()

bucket, _, prefix = options.url.removeprefix("s3://").partition("/")
client = boto3.client("s3", endpoint_url=options.endpoint_url)
for path in sorted(options.folder.glob("*.bin")):
    client.upload_file(str(path), bucket, f"{prefix}{path.name}")
    print(f"s3://{bucket}/{prefix}{path.name}", flush=True)
