package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// Format is how a log shows an event.
type Format string

const (
	// JSON is one audit.k8s.io/v1 Event a line.
	JSON Format = "json"
	// Legacy is one line of text.
	Legacy Format = "legacy"
)

// Log is the Sink of a log: one line an event, each in one write.
type Log struct {
	to       io.WriteCloser
	format   Format
	truncate Truncate

	mu sync.Mutex
}

// NewLog makes a Sink that writes to a file: see OpenFile.
func NewLog(to io.WriteCloser, format Format, truncate Truncate) *Log {
	return &Log{to: to, format: format, truncate: truncate}
}

// Name implements Sink.
func (*Log) Name() string { return "log" }

// Close implements Sink.
func (l *Log) Close() error { return l.to.Close() }

// Write implements Sink. An event that cannot be written does not keep the others from it.
func (l *Log) Write(_ context.Context, events []*auditv1.Event) error {
	var faults []error
	for _, e := range events {
		if err := l.one(e); err != nil {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

func (l *Log) one(e *auditv1.Event) error {
	line, err := l.line(e)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.to.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write to the audit log: %w", err)
	}
	return nil
}

func (l *Log) line(e *auditv1.Event) ([]byte, error) {
	if l.format == Legacy {
		return []byte(legacy(e)), nil
	}
	return l.truncate.encode(e)
}
