package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// The witness is a small file beside Pebble's. It holds an epoch that the database held, durably, before the witness was written. A
// database with an older one has lost something: Pebble takes a damaged end of its manifest, or a log that isn't there, for the normal
// traces of a crash, and would delete what it then no longer knows.
//
// The witness is never synced: one that lags behind after a power cut only sees less.
const (
	witnessName   = "WITNESS"
	witnessFormat = "yare store, epoch %d\n"
)

// readWitness returns zero where there is none, or none that can be read.
func readWitness(files vfs.FS, dir string) (epoch uint64, err error) {
	f, err := files.Open(files.PathJoin(dir, witnessName))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 256))
	if err != nil {
		return 0, err
	}
	_, _ = fmt.Sscanf(string(text), witnessFormat, &epoch)
	if string(text) != fmt.Sprintf(witnessFormat, epoch) {
		return 0, nil // a power cut left half of it
	}
	return epoch, nil
}

func writeWitness(files vfs.FS, dir string, epoch uint64) error {
	name := files.PathJoin(dir, witnessName)
	f, err := files.Create(name+".new", vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, witnessFormat, epoch)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return files.Rename(name+".new", name)
}

// testify keeps the journal's epoch in the witness. A failure costs nothing but the witness's sight.
func (j *journal) testify() {
	if err := writeWitness(j.cfg.FS, j.cfg.Dir, j.meta.epoch); err != nil {
		j.cfg.Log.Warn("store cannot note its epoch", "dir", j.cfg.Dir, "error", err)
	}
}

// examine looks at the folder without changing it, and refuses one that lost what the witness knows of.
func (j *journal) examine() error {
	epoch, err := readWitness(j.cfg.FS, j.cfg.Dir)
	if err != nil {
		return explainOpen(j.cfg.Dir, err)
	}
	m, err := readMeta(&j.cfg, j.cache)
	if errors.Is(err, errEmpty) {
		if epoch > 0 {
			return explainOpen(j.cfg.Dir, damaged("the database is gone"))
		}
		return nil
	}
	if err != nil {
		return err
	}
	if m.epoch < epoch {
		return explainOpen(j.cfg.Dir, damaged(fmt.Sprintf("it ends at epoch %d and had reached %d: a file was changed or is missing", m.epoch, epoch)))
	}
	return nil
}

// readMeta reads the meta record without changing a file.
func readMeta(cfg *Config, cache *pebble.Cache) (meta, error) {
	db, err := openDatabase(cfg, cache, true)
	if err != nil {
		return meta{}, err
	}
	m, err := db.meta()
	err = errors.Join(err, db.close())
	if err != nil && !errors.Is(err, errEmpty) {
		return meta{}, explainOpen(cfg.Dir, err)
	}
	return m, err
}
