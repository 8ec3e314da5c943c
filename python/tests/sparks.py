"""Real Sparks for the tests."""

import os
import sys


def builder(master):
    """A session of Spark that is still to be configured."""
    from pyspark.sql import SparkSession

    # Else executors take another Python, and Spark another network.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    return SparkSession.builder.master(master).config("spark.ui.enabled", "false")
