// Package cni gives a node's pods their network through CNI's bridge, host-local
// and portmap plug-ins: it writes the configuration that the container runtime
// hands to them, turns on the kernel settings they rely on, and takes all of it
// away again.
//
// Every cluster on a machine gets a bridge of its own, named after the cluster's
// ID, so that several run side by side. Masquerading of traffic that leaves the
// cluster is not done here: the service proxy's rule set does it, where the
// cluster's address range is known.
//
// Functions may be called again at any time: writing an unchanged configuration
// leaves the file alone, and cleaning up twice is no error.
package cni
