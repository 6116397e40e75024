// Package runtimetest runs real containers in tests: a runtime of their own in a
// temporary folder, an image with one small program, pods through CRI, and a
// check that the machine is afterwards as it was before.
//
// Everything is removed when the test ends. Tests that can't run here skip and
// say loudly why.
package runtimetest
