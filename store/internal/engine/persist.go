package engine

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/yare-project/yare/store"
)

// persister hands batches to the journal and mends the journal after a failure. Only the committer uses it.
type persister struct {
	journal Journal
	visible func(*table, string) (store.Item, bool)
	log     *slog.Logger
	// loose holds the keys whose last state may be missing on disk, or be there though it was refused.
	loose   map[ref]struct{}
	broken  bool
	records []Record // memory for those of the next batch
}

func (p *persister) write(b *batch) error {
	if p.journal == nil || len(b.groups) == 0 {
		return nil
	}
	p.records = b.records(p.records[:0])
	defer func() { clear(p.records) }()
	batch := Batch{Records: p.records, Last: b.last, Sync: b.durable}
	if !p.broken {
		err := p.journal.Append(batch)
		if !errors.Is(err, ErrRetired) {
			return p.appended(b, batch.Sync, err)
		}
	}
	repaired, err := p.mend(batch)
	if err != nil {
		return err
	}
	return p.appended(b, true, p.journal.Append(repaired))
}

// appended notes what an Append of a batch did.
func (p *persister) appended(b *batch, sync bool, err error) error {
	switch {
	case err == nil && sync:
		if p.broken {
			p.log.Info("store writes again")
		}
		p.broken = false
		clear(p.loose)
		return nil
	case errors.Is(err, ErrNotWritten):
		return err
	case err != nil:
		p.broken = true
	}
	if p.loose == nil {
		p.loose = map[ref]struct{}{}
	}
	for _, group := range b.groups {
		for i := range group {
			p.loose[ref{group[i].table, group[i].key}] = struct{}{}
		}
	}
	return err
}

// mend makes the journal usable and puts before the batch's own records the visible state of every loose key.
func (p *persister) mend(b Batch) (Batch, error) {
	p.broken = true
	if err := p.journal.Recover(); err != nil {
		return Batch{}, err
	}
	records := make([]Record, 0, len(p.loose)+len(b.Records))
	for r := range p.loose {
		record, err := p.record(r, b.Last)
		if err != nil {
			return Batch{}, err
		}
		records = append(records, record)
	}
	return Batch{Records: append(records, b.Records...), Last: b.Last, Sync: true}, nil
}

func (p *persister) record(r ref, now store.Revision) (Record, error) {
	item, exists := p.visible(r.table, r.key)
	if !exists {
		return Record{Table: r.table.cfg.Name, Key: r.key, Revision: now, Delete: true}, nil
	}
	data, err := item.Value.Encode()
	if err != nil {
		return Record{}, fmt.Errorf("store: %s %q cannot be encoded: %w", r.table.cfg.Name, r.key, err)
	}
	return Record{Table: r.table.cfg.Name, Key: r.key, Revision: item.Revision, Data: data}, nil
}

// close mends what is broken, if that is possible by now, and releases the journal.
func (p *persister) close(last store.Revision) error {
	if p.journal == nil {
		return nil
	}
	if !p.broken {
		return p.journal.Close(last, true)
	}
	repaired, err := p.mend(Batch{Last: last})
	if err == nil {
		err = p.journal.Append(repaired)
	}
	return errors.Join(err, p.journal.Close(last, err == nil))
}
