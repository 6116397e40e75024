// Package programs pins and builds the programs that a Yare node runs beside
// itself: containerd, its runc shim, runc, and the CNI plugins.
//
// It is a module of its own, so that their dependencies stay out of Yare's.
// Nothing in Yare imports it; its product is a folder of executables that
// node/runtime is pointed at. `build` (a shell script beside this file) makes
// them all; the versions are the ones in go.mod and nowhere else.
package programs
