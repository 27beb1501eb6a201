"""Frames of the user's code in what a crashed process prints."""

from __future__ import annotations

import threading

from agileml.runtime import node_process
from agileml.runtime.user_frames import crash_site, is_users

CRASH = f"""started
Fatal Python error: Aborted

Thread 0x00007f (most recent call first):
  File "{threading.__file__}", line 327 in wait
  File "{node_process.__file__}", line 80 in _run
  File "<frozen runpy>", line 88 in _run_code

Thread 0x00008f (most recent call first):
  File "{threading.__file__}", line 300 in acquire
  File "/home/me/my trainer.py", line 12 in step
  File "/home/me/other.py", line 3 in call

Extension modules: numpy._core._multiarray_umath (total: 1)
"""


def test_the_innermost_frame_of_the_users_code_is_found() -> None:
    assert crash_site(CRASH) == "Fatal Python error: Aborted; it was in /home/me/my trainer.py, line 12, in step"


def test_output_without_a_crash_has_no_site() -> None:
    assert crash_site('ordinary output\n  File "/home/me/x.py", line 1 in step\n') == ""
    assert crash_site("Fatal Python error: Aborted\n\nno stacks") == ""


def test_files_of_the_package_and_of_python_are_not_the_users() -> None:
    assert is_users(__file__)
    assert not is_users(node_process.__file__)
    assert not is_users(threading.__file__)
