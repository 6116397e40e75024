package disk

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// lockFolder makes the folder, for its owner only, and takes it. The lock ends with the process, however that ends.
func lockFolder(fs vfs.FS, dir string) (io.Closer, error) {
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		return nil, explainOpen(dir, err)
	}
	lock, err := fs.Lock(fs.PathJoin(dir, "LOCK"))
	if err == nil {
		return lock, nil
	}
	if errors.Is(err, syscall.EAGAIN) || strings.Contains(err.Error(), "lock held") {
		return nil, &refusal{
			text:  fmt.Sprintf("store: data folder %q is in use by another Yare: stop that one or choose another folder", dir),
			kinds: []error{ErrInUse, err},
		}
	}
	return nil, explainOpen(dir, err)
}
