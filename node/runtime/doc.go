// Package runtime gives a node its container runtime.
//
// Start takes one of two ways. With an endpoint it connects to a containerd or
// CRI-O that somebody else runs, and manages nothing. Without, it runs a
// containerd of its own: programs from a folder that the build made (see
// programs/), its own socket, state and image store, so that a containerd of
// the host is left alone and several clusters live on one machine. It starts the
// daemon, waits until it answers, adds the built-in pause image, writes the pod
// network's configuration, and starts the daemon again when it dies.
//
// Containers belong to their shims, not to the daemon: they outlive a restart of
// the daemon and of Yare. A daemon left behind by a killed Yare is taken over
// when it was started from the same programs and settings, and replaced otherwise.
// Stop leaves the containers running; Remove ends them and leaves nothing:
// no process, mount, network namespace, interface or control group.
//
// A Runtime is safe for concurrent use. Two Runtimes with one Dir are not: the
// caller holds the lock on the data folder.
package runtime
