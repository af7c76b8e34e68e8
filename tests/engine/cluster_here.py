"""A dask cluster of two processes: prints the address of its scheduler and the numbers of its workers, and waits until it is ended."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    import distributed

    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        print(cluster.scheduler_address, *(worker.pid for worker in cluster.workers.values()), flush=True)
        sys.stdin.read()
