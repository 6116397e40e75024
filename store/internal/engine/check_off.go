//go:build !immutable

package engine

// checkByDefault turns CheckImmutable on for every engine of a build with -tags immutable.
const checkByDefault = false
