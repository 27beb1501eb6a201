"""Paths on a rented machine. The start-up script (`spotctl.clouds.remote`) makes these folders."""

ROOT = "/opt/spotctl"
"""Belongs to root: the lease watchdog, and the values that the start-up script received for the
machine."""

MACHINE_FILE = f"{ROOT}/machine.json"

SEARCH_PATH = f"{ROOT}/path"
"""The PATH of the start-up script: in a container, that of its image."""

BUNDLES = f"{ROOT}/bundles"
"""Archives that launchers copied, each unpacked in a folder named by its SHA-256."""

JOBS = f"{ROOT}/jobs"
CURRENT_JOB = f"{JOBS}/current"
JOB_FOLDER = f"{ROOT}/job"
"""The job's folder, by way of `CURRENT_JOB`, a link: the working directory of payloads."""

CACHE = f"{ROOT}/cache"
"""Room for copies of input data."""

AGENT_FOLDER = f"{ROOT}/agent"
SOCKET = f"{AGENT_FOLDER}/agent.sock"
LOCK = f"{AGENT_FOLDER}/lock"
"""A lock that the agent holds as long as it runs."""

LEASE = f"{AGENT_FOLDER}/lease"
"""Read by the watchdog: the lease's end as seconds since 1970, and as seconds of `/proc/uptime`.
The earlier moment counts."""

CODE = f"{AGENT_FOLDER}/code"
"""A link to the bundle with our code that the agent runs."""

STARTED, ENDED = f"{AGENT_FOLDER}/started", f"{AGENT_FOLDER}/ended"
"""The watchdog ends a machine whose agent has written why it ended, or has started but no longer
runs.

`STARTED` contains the number of the agent's process.
"""

PYTHON = f"{AGENT_FOLDER}/bin/python3"
"""The Python that runs the agent. Payloads find it first on their PATH, and our modules on their
PYTHONPATH."""

LEASE_VARIABLE = "SPOTCTL_LEASE"
"""The environment variable with the folder of a job's lease, in which
`spotctl.agent.lease.lease_files` keeps files.

Without it, the job has no lease and runs as long as it likes.
"""

TASK_VARIABLE, RUN_VARIABLE, SETUP_VARIABLE = (
    "SPOTCTL_TASK",
    "SPOTCTL_RUN_TEXT",
    "SPOTCTL_SETUP_TEXT",
)
OF_ONE_PROCESS = (TASK_VARIABLE, RUN_VARIABLE, SETUP_VARIABLE)
"""Environment variables with a node's task, and with the text of a job's `run` and `setup` for the
shell that runs it.

Every user of a computer can read the arguments of all processes, but only the environment of their
own. Each variable is for one process, which does not pass it on.
"""

PYTHON_VARIABLE = "SPOTCTL_PYTHON"
"""The environment variable with the version of that Python, as 3.12: the packages that were brought
are for it."""
