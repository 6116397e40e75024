// Package tools holds the repository's rules as tests: import direction, package contracts, names, dependencies, links. It has no code.
package tools
