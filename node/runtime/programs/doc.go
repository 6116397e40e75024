// Package programs pins and builds the programs that a Yare node runs beside
// itself: containerd, its runc shim, runc, and the CNI plug-ins.
//
// It is a module of its own, so that their dependencies stay out of Yare's.
// Nothing in Yare imports it; its product is a folder of executables that
// node/runtime is pointed at. The Makefile beside this file builds them; the
// versions are those in go.mod and nowhere else.
package programs
