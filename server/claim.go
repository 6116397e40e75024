package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/yare-project/yare/internal/pidfile"
)

// claim makes dir this process's own until the stack stops: it locks the folder, and writes the process file by which `yare down` finds it. The lock
// goes with the process, however that ends.
func (s *stack) claim(dir string) error {
	folder, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("cannot open the data folder %s: %w", dir, plain(err))
	}
	path := filepath.Join(dir, PIDFile)
	if err := syscall.Flock(int(folder.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = folder.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			p, _, _ := pidfile.Read(path)
			return fmt.Errorf("the data folder %s is locked by another Yare (process %d): stop it, or give another with --data-dir", dir, p.PID)
		}
		return fmt.Errorf("cannot lock the data folder %s: %w", dir, err)
	}
	s.onStop(func(context.Context) error { return folder.Close() })
	self, err := pidfile.Self()
	if err != nil {
		return err
	}
	if err := pidfile.Write(path, self); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, plain(err))
	}
	s.onStop(func(context.Context) error { return os.Remove(path) })
	return nil
}
