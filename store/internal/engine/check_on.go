//go:build immutable

package engine

const checkByDefault = true
