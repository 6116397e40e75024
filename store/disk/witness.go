package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// witness is a small file beside Pebble's that tells, of the database that it stands beside, what it held at least. Pebble takes a damaged
// end of its manifest, or a log that isn't there, for the normal traces of a crash, and deletes what it then no longer knows; against
// the witness, Open refuses instead.
//
// It is written after what it tells is synced, but is never synced itself: one that lags behind after a power cut only sees less.
type witness struct {
	// epoch is of a meta record that the database held.
	epoch uint64
	// manifest names a manifest that had size bytes. A later manifest is not held against it.
	manifest string
	size     int64
	// log is the number of a log that was in use. Earlier ones need not be whole any more.
	log uint64
}

const (
	witnessName   = "WITNESS"
	witnessFormat = "yare store, epoch %d, manifest %s of %d bytes, log %d\n"
)

func (w witness) String() string {
	if w.manifest == "" {
		w.manifest = "none"
	}
	return fmt.Sprintf(witnessFormat, w.epoch, w.manifest, w.size, w.log)
}

// readWitness returns an empty one where there is none, or none that can be read.
func readWitness(files vfs.FS, dir string) (witness, error) {
	f, err := files.Open(files.PathJoin(dir, witnessName))
	if errors.Is(err, fs.ErrNotExist) {
		return witness{}, nil
	}
	if err != nil {
		return witness{}, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 256))
	if err != nil {
		return witness{}, err
	}
	var w witness
	_, _ = fmt.Sscanf(string(text), witnessFormat, &w.epoch, &w.manifest, &w.size, &w.log)
	if string(text) != w.String() {
		return witness{}, nil // a power cut left half of it
	}
	return w, nil
}

func writeWitness(files vfs.FS, dir string, w witness) error {
	name := files.PathJoin(dir, witnessName)
	f, err := files.Create(name+".new", vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, w.String())
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return files.Rename(name+".new", name)
}

// testify brings the witness up to date. A failure costs nothing but the witness's sight.
func (j *journal) testify() {
	w := witness{epoch: j.meta.epoch, log: j.db.files.log.Load()}
	if m := j.db.files.manifest.Load(); m != nil {
		w.manifest, w.size = m.name, m.size
	}
	if err := writeWitness(j.cfg.FS, j.cfg.Dir, w); err != nil {
		j.cfg.Log.Warn("store cannot write its witness", "dir", j.cfg.Dir, "error", err)
	}
}

// examine looks at the folder without changing it, and refuses one that lost what the witness knows of.
func (j *journal) examine() error {
	w, err := readWitness(j.cfg.FS, j.cfg.Dir)
	if err == nil {
		err = w.checkFiles(j.cfg.FS, j.cfg.Dir)
	}
	if err != nil {
		return explainOpen(j.cfg.Dir, err)
	}
	m, err := readMeta(&j.cfg, j.cache)
	if errors.Is(err, errEmpty) {
		if w.epoch > 0 {
			return explainOpen(j.cfg.Dir, damaged("the database is gone"))
		}
		return nil
	}
	if err != nil {
		return err
	}
	if m.epoch < w.epoch {
		return explainOpen(j.cfg.Dir, damaged(fmt.Sprintf("it ends at epoch %d and had reached %d: a file was changed or is missing", m.epoch, w.epoch)))
	}
	return nil
}

// checkFiles looks for what Pebble itself would not miss.
func (w witness) checkFiles(files vfs.FS, dir string) error {
	names, err := files.List(dir)
	if err != nil {
		return err
	}
	if err := checkLogs(files, dir, names, w.log); err != nil {
		return err
	}
	return w.checkManifest(files, dir)
}

func (w witness) checkManifest(files vfs.FS, dir string) error {
	found, err := pebble.Peek(dir, files)
	if err != nil {
		return err
	}
	if !found.Exists || files.PathBase(found.ManifestFilename) != w.manifest {
		return nil
	}
	f, err := files.Open(files.PathJoin(dir, w.manifest))
	if err != nil {
		return err
	}
	defer f.Close()
	if good := wholeRecords(f); good < w.size {
		return damaged(fmt.Sprintf("%s is whole up to byte %d and had %d", w.manifest, good, w.size))
	}
	return nil
}

// wholeRecords is where the last record ends that can be read.
func wholeRecords(f io.Reader) int64 {
	for r := record.NewReader(f, 0); ; {
		end := r.Offset()
		next, err := r.Next()
		if err != nil {
			return end
		}
		if _, err := io.Copy(io.Discard, next); err != nil {
			return end
		}
	}
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
