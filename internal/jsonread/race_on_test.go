//go:build race

package jsonread_test

const raceDetector = true
