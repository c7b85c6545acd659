from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE
from dataclasses import replace
from pathlib import Path

import pytest

from fairqueue import FairQueue
from fairqueue.demo.crew import Crew
from fairqueue.demo.worker_process import READY, JobPayload, WorkerOrder
from fairqueue.errors import FairQueueError
from tests.conftest import MakeQueue
from tests.support.waiting import eventually


@pytest.fixture
async def queue(make_queue: MakeQueue) -> FairQueue[JobPayload]:
    return await make_queue(clock=None)


@pytest.fixture
def order(queue: FairQueue[JobPayload], tmp_path: Path) -> WorkerOrder:
    return WorkerOrder("worker-1", queue.url, queue.name, "fair", 4, 2.0, 0.5, str(tmp_path))


def crew_of(order: WorkerOrder, tmp_path: Path) -> Crew:
    return Crew(lambda process: replace(order, process=process), tmp_path)


async def names(queue: FairQueue[JobPayload]) -> list[str]:
    return sorted([worker.name async for worker in queue.workers()])


async def completed(queue: FairQueue[JobPayload]) -> int:
    return (await queue.stats()).totals.completed


async def test_processes_work_and_end_with_the_block(
    queue: FairQueue[JobPayload], order: WorkerOrder, tmp_path: Path
) -> None:
    async with crew_of(order, tmp_path) as crew:
        await crew.start("worker-1")
        await crew.start("worker-2")
        assert crew.alive == ["worker-1", "worker-2"]
        await queue.enqueue(JobPayload(run_s=0.0), tenant="a", id="job-1")
        await eventually(lambda: completed(queue), "a worker to have done the job")
        crew.check()
    assert crew.alive == []
    assert await names(queue) == []
    assert await completed(queue) == 1
    assert sorted(path.name for path in tmp_path.glob("*.jsonl")) == ["worker-1.jsonl", "worker-2.jsonl"]


async def test_a_process_that_was_killed_on_purpose_is_no_fault(order: WorkerOrder, tmp_path: Path) -> None:
    async with crew_of(order, tmp_path) as crew:
        await crew.start("worker-1")
        pid = crew.kill("worker-1")
        assert pid != os.getpid()
        await eventually(lambda: crew.alive == [], "the killed process to be gone")
        crew.check()


async def test_a_process_that_ends_by_itself_is_a_fault(order: WorkerOrder, tmp_path: Path) -> None:
    async with crew_of(order, tmp_path) as crew:
        await crew.start("worker-1")
        os.kill(crew.pid("worker-1"), signal.SIGKILL)
        await eventually(lambda: crew.alive == [], "the process to be gone")
        with pytest.raises(FairQueueError, match="expected worker-1 to run until the end"):
            crew.check()


async def test_a_process_that_cannot_work_is_told_with_its_own_words(
    order: WorkerOrder, tmp_path: Path
) -> None:
    async with crew_of(replace(order, concurrency=0), tmp_path) as crew:
        with pytest.raises(FairQueueError, match=r"worker-1 to connect within 15 s, got: .*concurrency"):
            await crew.start("worker-1")


async def test_a_worker_drains_when_the_demo_itself_is_killed(
    queue: FairQueue[JobPayload], order: WorkerOrder
) -> None:
    """Its standard input is a pipe from the demo, which the system closes when the demo is no more."""
    inside = (
        "import subprocess, sys\n"
        "from subprocess import PIPE\n"
        "command = [sys.executable, '-m', 'fairqueue.demo.worker_process', sys.argv[1]]\n"
        "worker = subprocess.Popen(command, stdin=PIPE, stdout=PIPE)\n"
        "sys.stdout.buffer.write(worker.stdout.readline())\n"
        "sys.stdout.flush()\n"
        "worker.wait()\n"
    )
    demo = await asyncio.create_subprocess_exec(sys.executable, "-c", inside, order.to_json(), stdout=PIPE)
    assert demo.stdout is not None
    assert await demo.stdout.readline() == READY
    await eventually(lambda: names(queue), "the worker to be listed")
    demo.kill()
    await demo.wait()
    await eventually(lambda: gone(queue), "the worker to say goodbye")


async def gone(queue: FairQueue[JobPayload]) -> bool:
    return await names(queue) == []
