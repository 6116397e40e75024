package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"k8s.io/utils/clock"

	"github.com/yare-project/yare/internal/pidfile"
	"github.com/yare-project/yare/node/route"
	"github.com/yare-project/yare/node/runtime"
	"github.com/yare-project/yare/node/volume"
	"github.com/yare-project/yare/proxy"
)

// Clean takes away what a cluster that ran from dataDir left on the host: containers, their mounts, network namespaces and control groups,
// interfaces and nftables rules. With purge it removes the folder too. It works whether Yare ended well or was killed, and may be repeated.
func Clean(ctx context.Context, dataDir, runtimeDir string, purge bool) error {
	dir, err := filepath.Abs(dataDir)
	if err != nil {
		return err
	}
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if p, alive, err := pidfile.Read(filepath.Join(dir, PIDFile)); err == nil && alive {
		return fmt.Errorf("Yare still runs from %s (process %d): stop it first", dir, p.PID)
	}
	if err := cleanNode(ctx, dir, runtimeDir); err != nil {
		return err
	}
	if purge {
		return os.RemoveAll(dir)
	}
	return nil
}

// cleanNode takes away what a node left. A control plane alone leaves nothing outside its folder, and may have been anybody's.
func cleanNode(ctx context.Context, dir, runtimeDir string) error {
	if !hadNode(dir) {
		return remove(filepath.Join(dir, PIDFile))
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("not root: a node ran from %s, and only root can take away its containers and networks; run `yare down` as root (sudo)", dir)
	}
	if runtimeDir == "" {
		runtimeDir = defaultRuntimeDir()
	}
	c := &Config{DataDir: dir, RuntimeDir: runtimeDir, Clock: clock.RealClock{}, Log: slog.Default()}
	faults := []error{
		removeForeign(ctx, dir),
		runtime.Remove(ctx, c.runtimeConfig()),
		unmountVolumes(dir),
		proxy.Unlink(linkName(dir)),
		proxy.Clean(ctx, tableName(dir)),
		route.Clean(routeMark(dir)),
		remove(filepath.Join(dir, PIDFile)),
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("not everything could be taken away; mend this and run `yare down` again: %w", err)
	}
	return nil
}

// hadNode tells whether a node ever began to start from dir.
func hadNode(dir string) bool {
	for _, name := range []string{"agent", "runtime", endpointFile} {
		if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, os.ErrNotExist) {
			return true
		}
	}
	return false
}

// unmountVolumes releases what pods had mounted below the data folder, and removes those mount points: a purge must never reach through one.
func unmountVolumes(dir string) error {
	pods := filepath.Join(dir, "agent", "pods")
	if _, err := os.Stat(pods); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := (volume.Kernel{}).UnmountUnder(pods); err != nil {
		return fmt.Errorf("unmount the volumes below %s: %w", pods, err)
	}
	return nil
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
