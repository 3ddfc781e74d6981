"""What this machine gives at best: what `lambda-svc bench` holds lookups against.

ArrayGather gathers rows from memory by row number: `gather` straight, `gather_two_pages` after a look at a random line
of an array as large as an index, which is the least that a table with its ids apart from its rows can do.
plain_parallel_read(path, offsets uint64[n], bytes, threads) reads blocks of a file past the page cache on so many
threads and returns the seconds; it raises StoreError where the file system has no direct reads.
"""

from paramserver._core import ArrayGather, plain_parallel_read

__all__ = ["ArrayGather", "plain_parallel_read"]
