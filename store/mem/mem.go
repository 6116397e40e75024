// Package mem is a store that lives and dies with its process: for tests and throw-away API servers.
//
// It gives every guarantee of package store but survival. It writes no file and encodes no value.
package mem

import (
	"log/slog"

	"github.com/yare-project/yare/store"
	"github.com/yare-project/yare/store/internal/engine"
)

// Config describes a store in memory; its zero value is good.
type Config struct {
	// RingBytes bounds, per table, the events kept for watchers that lag, where the table's own config does not. Zero means 4 MiB.
	RingBytes int
	// Log gets what an operator should know; nil discards.
	Log *slog.Logger
	// CheckImmutable looks for values that were changed after they were stored, at the cost of encoding them. Builds with
	// -tags immutable always do.
	CheckImmutable bool
	// OnMutation is told of such a value; nil panics.
	OnMutation func(error)
}

// New makes an empty store.
func New(cfg Config) store.Store {
	return engine.New(engine.Config{
		RingBytes: cfg.RingBytes, Log: cfg.Log, CheckImmutable: cfg.CheckImmutable, OnMutation: cfg.OnMutation,
	})
}
