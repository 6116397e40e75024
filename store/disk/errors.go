package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/cockroachdb/pebble/v2"

	"github.com/yare-project/yare/store"
)

var (
	// ErrInUse says that another process, or another store of this one, has the data folder.
	ErrInUse = errors.New("store: data folder is in use")
	// ErrDamaged says that the data folder holds something that no Yare wrote.
	ErrDamaged = errors.New("store: data folder is damaged")
)

// refusal is an error with a text of its own that answers errors.Is for several others.
type refusal struct {
	text  string
	kinds []error
}

func (r *refusal) Error() string   { return r.text }
func (r *refusal) Unwrap() []error { return r.kinds }

func damaged(what string) error {
	return &refusal{text: what, kinds: []error{ErrDamaged}}
}

// explainOpen turns what Pebble or the file system said into what the user can do.
func explainOpen(dir string, err error) error {
	switch {
	case isFull(err):
		return &refusal{
			text:  fmt.Sprintf("store: no space left to open data folder %q: free some room on that disk (%v)", dir, err),
			kinds: []error{store.ErrFull, err},
		}
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS):
		return &refusal{
			text:  fmt.Sprintf("store: data folder %q cannot be written: check its owner and mount, or choose another folder (%v)", dir, err),
			kinds: []error{err},
		}
	case pebble.IsCorruptionError(err) || errors.Is(err, ErrDamaged) || errors.Is(err, fs.ErrNotExist):
		return &refusal{
			text: fmt.Sprintf("store: data folder %q is damaged and was left as it is: restore it from a backup, or move it away to start empty (%v)",
				dir, err),
			kinds: []error{ErrDamaged, err},
		}
	}
	return fmt.Errorf("store: data folder %q cannot be opened: %w", dir, err)
}

// explainWrite is for a write that failed, after which the database is frozen.
func explainWrite(dir string, err error) error {
	if isFull(err) {
		return &refusal{
			text:  fmt.Sprintf("%v: data folder %q: free some room, reads still work (%v)", store.ErrFull, dir, err),
			kinds: []error{store.ErrFull, err},
		}
	}
	return fmt.Errorf("store: data folder %q cannot be written, reads still work: %w", dir, err)
}

func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, store.ErrFull)
}
