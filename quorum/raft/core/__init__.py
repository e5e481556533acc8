"""Pure Raft: stimuli in, ``Ready`` out.

Decides which node leads, what is in the log, what is committed, and which bytes of a snapshot go where. Knows
no clock, file, socket, thread, random generator or logger of its own: the time and the generator come in as
arguments, everything that must happen outside leaves through ``Raft.ready()``. Hard state is the term, the
vote and the log (all of it written through ``Ready.persist``); everything else is soft and starts afresh with
the process.

Source: Raft (Ongaro, Ousterhout), §5 to §7; Ongaro's dissertation §3.10 (transfer), §4 (membership), §6.2 and
§9.6 (check-quorum and pre-vote); the shape follows etcd-io/raft.
"""
