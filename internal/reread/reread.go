// Package reread tells when the content of a small file has changed, however it was changed: written over, replaced, or, as with mounted
// ConfigMaps, reached through another link.
//
// It looks at the content itself, at an interval: a notification of the file system would miss some of these ways. Content counts once two looks in
// a row have seen it, so that nobody is told of half a file. What cannot be read counts as no change. Calls come one at a time. A file is
// bounded by [MaxSize].
package reread

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"k8s.io/utils/clock"
)

// MaxSize is how large a file may be, in bytes.
const MaxSize = 4 << 20

// interval is how often Run looks when Config.Every is zero.
const interval = 2 * time.Second

// Config says which file is looked at, and who is told.
type Config struct {
	Path string
	// Have is the content that is known already.
	Have []byte
	// Every is the time between two looks; zero means 2 s.
	Every time.Duration
	// Changed takes over new content. An error is logged with the path, and means that what was in force before stays so; the same content is tried
	// again, without another word, for it may name something that is not there yet.
	Changed func(ctx context.Context, content []byte) error
	Clock   clock.WithTicker
	Log     *slog.Logger
}

// Read returns the content of a file, which must not be larger than MaxSize.
func Read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err == nil && len(data) > MaxSize {
		return nil, fmt.Errorf("%s has more than %d bytes", path, MaxSize)
	}
	return data, err
}

// Run looks until ctx ends.
func Run(ctx context.Context, c Config) error {
	every := c.Every
	if every == 0 {
		every = interval
	}
	ticker := c.Clock.NewTicker(every)
	defer ticker.Stop()
	have, seen, unreadable := c.Have, c.Have, false
	var failed []byte
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
		data, err := Read(c.Path)
		if err != nil {
			if !unreadable {
				c.Log.Error("a configuration file cannot be read any more; what it said before stays in force", "file", c.Path, "error", err)
			}
			unreadable = true
			continue
		}
		unreadable = false
		steady := bytes.Equal(data, seen)
		seen = data
		if !steady || bytes.Equal(data, have) {
			continue
		}
		if err := c.Changed(ctx, data); err != nil {
			if !bytes.Equal(data, failed) {
				c.Log.Error("a changed configuration file is not used; what it said before stays in force", "file", c.Path, "error", err)
			}
			failed = data
			continue
		}
		have, failed = data, nil
		c.Log.Info("a changed configuration file is in force", "file", c.Path)
	}
}
