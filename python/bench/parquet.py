"""`pagewarden check` of a Parquet file whose pages have CRCs, beside `cat` of the same file, both from memory.

    python python/bench/parquet.py --program target/release/pagewarden

Needs pyarrow. Processes run in turns, in one run; the first round is for practice.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

import numpy
import pyarrow
import pyarrow.parquet


def make(path, gibibytes, compression):
    """Rows of two columns of numbers and one of text, with a CRC in each page."""
    chance = numpy.random.default_rng(1)
    rows = 1 << 20
    with pyarrow.parquet.ParquetWriter(
        path,
        pyarrow.schema([("id", pyarrow.int64()), ("value", pyarrow.float64()), ("word", pyarrow.string())]),
        compression=compression,
        use_dictionary=False,
        write_page_checksum=True,
    ) as out:
        while path.stat().st_size < gibibytes * (1 << 30):
            words = chance.integers(0, 1 << 40, rows)
            columns = [chance.integers(0, 1 << 62, rows), chance.random(rows), [f"w{word:x}" for word in words]]
            out.write_table(pyarrow.table(columns, out.schema))


def wall(*command):
    begin = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - begin


def main():
    given = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    given.add_argument("--program", type=pathlib.Path, required=True)
    given.add_argument("--size", type=float, default=2, help="GiB")
    given.add_argument("--rounds", type=int, default=9)
    given = given.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for compression in ("none", "zstd"):
            path = pathlib.Path(folder, f"{compression}.parquet")
            make(path, given.size, compression)
            contenders = {
                "check": lambda path=path: wall(given.program, "check", "--quiet", path),
                "cat": lambda path=path: wall("cat", path),
            }
            walls = {name: [] for name in contenders}
            for number in range(given.rounds + 1):
                for name in list(contenders)[:: -1 if number % 2 else 1]:
                    one = contenders[name]()
                    if number:
                        walls[name].append(one)
            ratios = sorted(cat / check for check, cat in zip(walls["check"], walls["cat"], strict=True))
            mebibytes = path.stat().st_size / (1 << 20)
            speeds = {name: mebibytes / statistics.median(each) for name, each in walls.items()}
            print(
                f"{compression}: {mebibytes:.0f} MiB; check {speeds['check']:.0f} MiB/s, cat {speeds['cat']:.0f} MiB/s; "
                f"check is {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) times as fast as cat",
                flush=True,
            )
            os.unlink(path)


if __name__ == "__main__":
    main()
