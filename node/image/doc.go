// Package image brings container images onto a node without a registry, and
// makes small ones for tests and examples.
//
// A Store speaks to containerd over its socket: it imports archives (docker
// save and OCI layout, plain or compressed with gzip or zstd), lists images and
// removes them, in the namespace that the CRI plug-in reads, so that an imported
// image is present for pods at once. A Folder keeps a Store equal to the
// archives dropped into a directory: at start, and whenever one appears or
// changes. Build assembles an image from local files.
//
// Everything is safe for concurrent use. The package does not pull from
// registries (that is CRI's PullImage, with the pod's credentials) and never
// removes an image because its archive went away.
package image
