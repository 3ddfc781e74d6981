"""Peers that benchmarks compare with, each in an environment of its own (install.sh), driven line by line.

A runner (fbgemm.py, tfra.py, tf_lookup.py, maps.cc, redis_mget.cc) is a process that fills its table, says so in a line
of JSON and then answers each line on its standard input, the number of a batch, with a line of JSON: seconds and a sum
over the rows it found. process.py starts and drives them beside our own table, in turn.
"""

from tools.peers.process import Batches, Peer, PeerMissing, found

__all__ = ["Batches", "Peer", "PeerMissing", "found"]
