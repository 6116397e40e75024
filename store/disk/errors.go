package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"

	"github.com/yare-project/yare/store"
)

var (
	// ErrInUse says that another process, or another store of this one, has the data folder.
	ErrInUse = errors.New("store: data folder is in use")
	// ErrDamaged says that the data folder is not as Yare left it, or that another program or a later Yare wrote it. A
	// folder that Open refuses with it was not changed.
	ErrDamaged = errors.New("store: data folder is damaged, or holds what this Yare cannot read")
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
	case isDamage(err):
		return explainDamage(dir, err)
	}
	return fmt.Errorf("store: data folder %q cannot be opened: %w", dir, err)
}

func explainDamage(dir string, err error) error {
	return &refusal{
		text: fmt.Sprintf("%v: %q: restore it from a backup, or move it away to start empty (%s)", ErrDamaged, dir,
			oneLine(err)),
		kinds: []error{ErrDamaged, err},
	}
}

// oneLine is an error without line breaks, and without what Pebble appends to mark its own.
func oneLine(err error) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(err.Error(), "<corruption detail carrier>", "")), " ")
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

// isDamage tells what is wrong with the files from what is wrong with reaching them, which always has an error number.
func isDamage(err error) bool {
	if pebble.IsCorruptionError(err) || errors.Is(err, ErrDamaged) || errors.Is(err, fs.ErrNotExist) {
		return true
	}
	var number syscall.Errno
	return !errors.As(err, &number)
}

func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, store.ErrFull)
}
