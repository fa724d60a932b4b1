"""The entry point of the image: `txnwatch`, or a part of Spark on Kubernetes if the first argument names one.

`spark-submit --deploy-mode cluster` starts the container with `driver` and the arguments of a second spark-submit. A
driver starts it with `executor`. Both set variables SPARK_*, as for the entry point of Spark's own image.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence

_BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_JAVA_OPTION = re.compile(r"SPARK_JAVA_OPT_(\d+)")
# The flags of the executor and the variables that have their values.
_FLAGS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


def command(args: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """The command that the container runs. tini reaps the workers that Spark leaves behind."""
    return ["tini", "--", *_process(args, environ)]


def _process(args: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    match args:
        case ["executor", *_]:
            return _executor(environ)
        case ["driver", *rest]:
            return _driver(rest, environ)
        case _:
            return ["txnwatch", *args]


def _driver(args: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    _expect("driver", ["SPARK_DRIVER_BIND_ADDRESS"], environ)
    address = environ["SPARK_DRIVER_BIND_ADDRESS"]
    return [
        f"{environ['SPARK_HOME']}/bin/spark-submit",
        *("--conf", f"spark.driver.bindAddress={address}"),
        *("--conf", f"spark.executorEnv.SPARK_DRIVER_POD_IP={address}"),
        *("--deploy-mode", "client"),
        *args,
    ]


def _executor(environ: Mapping[str, str]) -> list[str]:
    _expect("executor", [*_FLAGS.values(), "SPARK_EXECUTOR_MEMORY"], environ)
    numbered = {int(found[1]): value for name, value in environ.items() if (found := _JAVA_OPTION.fullmatch(name))}
    memory = environ["SPARK_EXECUTOR_MEMORY"]
    class_path = [environ.get("SPARK_CONF_DIR"), f"{environ['SPARK_HOME']}/jars/*", environ.get("SPARK_CLASSPATH")]
    return [
        "java",
        *(numbered[number] for number in sorted(numbered)),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        ":".join(filter(None, class_path)),
        _BACKEND,
        *(part for flag, name in _FLAGS.items() for part in (flag, environ[name])),
    ]


def _expect(part: str, names: Sequence[str], environ: Mapping[str, str]) -> None:
    missing = [name for name in names if name not in environ]
    if missing:
        sys.exit(f"{part}: expected the variables of Spark on Kubernetes, found no {', '.join(missing)}")


if __name__ == "__main__":
    words = command(sys.argv[1:], os.environ)
    os.execvp(words[0], words)  # noqa: S606 - no shell is needed
