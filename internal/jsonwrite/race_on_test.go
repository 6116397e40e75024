//go:build race

package jsonwrite_test

const raceDetector = true
