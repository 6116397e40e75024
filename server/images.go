package server

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/utils/clock"

	"github.com/yare-project/yare/node/image"
	"github.com/yare-project/yare/node/runtime"
)

// importImages takes in the archives in <data>/images, then watches the folder for more.
func (n *nodeParts) importImages(ctx context.Context) error {
	if n.containers == nil || n.containers.Images() == nil {
		return nil
	}
	folder := image.NewFolder(image.FolderConfig{Dir: filepath.Join(n.config.DataDir, "images"), Store: n.containers.Images(), Log: n.config.Log})
	if err := folder.Sync(ctx); err != nil {
		return err
	}
	n.stack.run("image folder", folder.Run)
	return nil
}

// Images opens the image store of the cluster or node that runs from dataDir, for a command in another process. Close it after use.
func Images(ctx context.Context, dataDir, endpoint string) (store *image.Store, closer func(context.Context) error, err error) {
	dir, err := filepath.Abs(dataDir)
	if err != nil {
		return nil, nil, err
	}
	c := &Config{DataDir: dir, RuntimeDir: defaultRuntimeDir(), Clock: clock.RealClock{}}
	if endpoint == "" {
		if endpoint, err = c.runningRuntime(); err != nil {
			return nil, nil, err
		}
	}
	r, err := runtime.Start(ctx, runtime.Config{Endpoint: endpoint})
	if err != nil {
		return nil, nil, err
	}
	if r.Images() == nil {
		return nil, nil, errNoImport
	}
	return r.Images(), r.Stop, nil
}

// runningRuntime is the endpoint of the container runtime that the node in the data folder uses now.
func (c *Config) runningRuntime() (string, error) {
	if err := running(c.DataDir); err != nil {
		return "", err
	}
	if text, err := os.ReadFile(filepath.Join(c.DataDir, endpointFile)); err == nil {
		return strings.TrimSpace(string(text)), nil
	}
	socket := c.runtimeConfig().Socket()
	if _, err := os.Stat(strings.TrimPrefix(socket, "unix://")); err != nil {
		return "", fmt.Errorf("no node runs from %s, only a control plane: images belong to a node", c.DataDir)
	}
	return socket, nil
}
