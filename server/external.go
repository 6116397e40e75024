package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/yare-project/yare/node/cgroup"
	"github.com/yare-project/yare/node/cri"
	"github.com/yare-project/yare/node/launch"
)

// endpointFile, in the data folder, remembers the container runtime of somebody else that this cluster's pods run in, so that `yare down`
// finds them there.
const endpointFile = "runtime-endpoint"

// rememberRuntime keeps the endpoint for the end, before the first pod.
func (c *Config) rememberRuntime() error {
	path := filepath.Join(c.DataDir, endpointFile)
	if c.RuntimeEndpoint == "" {
		return remove(path)
	}
	if err := os.WriteFile(path, []byte(c.RuntimeEndpoint+"\n"), 0o600); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, plain(err))
	}
	return nil
}

// removeForeign takes this cluster's pods out of a container runtime that somebody else runs. The runtime itself, its images, and pods that
// others made in it are left alone: a pod is this cluster's when the agent has a folder for it.
func removeForeign(ctx context.Context, dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, endpointFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := removeOwn(ctx, dir, strings.TrimSpace(string(text))); err != nil {
		return err
	}
	groups, err := cgroup.New(cgroup.Config{Parent: "/" + cgroupName(dir)})
	if err != nil {
		return err
	}
	return errors.Join(groups.Close(), remove(filepath.Join(dir, endpointFile)))
}

func removeOwn(ctx context.Context, dir, endpoint string) error {
	if folders, err := os.ReadDir(filepath.Join(dir, "agent", "pods")); errors.Is(err, os.ErrNotExist) || err == nil && len(folders) == 0 {
		return nil
	}
	if err := checkEndpoint(endpoint); err != nil {
		return fmt.Errorf("%w; its pods of this cluster cannot be removed before (if it is gone for good, delete %s)", err, filepath.Join(dir, endpointFile))
	}
	conn, err := cri.Connect(ctx, endpoint)
	if err != nil {
		return err
	}
	pods, err := conn.ListPodSandbox(ctx, nil)
	for _, pod := range pods {
		if isOwn(dir, pod) {
			err = errors.Join(err, removeSandbox(ctx, conn, pod))
		}
	}
	if err = errors.Join(err, conn.Close(ctx)); err != nil {
		return fmt.Errorf("the pods in the container runtime at %s: %w", endpoint, err)
	}
	return nil
}

// checkEndpoint refuses the socket of a container runtime that nobody listens at, without waiting for one.
func checkEndpoint(endpoint string) error {
	path, ok := strings.CutPrefix(endpoint, "unix://")
	if !ok && !strings.HasPrefix(endpoint, "/") {
		return nil // none, or of another kind: connecting tells
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		return fmt.Errorf("no container runtime listens at %s (%w): start it, or name another with --container-runtime-endpoint", path, plain(err))
	}
	return conn.Close()
}

func isOwn(dir string, pod *runtimeapi.PodSandbox) bool {
	uid := pod.GetLabels()[launch.LabelPodUID]
	if uid == "" || uid != filepath.Base(uid) {
		return false
	}
	_, err := os.Stat(filepath.Join(dir, "agent", "pods", uid))
	return err == nil
}

func removeSandbox(ctx context.Context, conn *cri.Conn, pod *runtimeapi.PodSandbox) error {
	if err := conn.StopPodSandbox(ctx, pod.Id); err != nil {
		return fmt.Errorf("stop pod %s/%s: %w", pod.GetMetadata().GetNamespace(), pod.GetMetadata().GetName(), err)
	}
	if err := conn.RemovePodSandbox(ctx, pod.Id); err != nil {
		return fmt.Errorf("remove pod %s/%s: %w", pod.GetMetadata().GetNamespace(), pod.GetMetadata().GetName(), err)
	}
	return nil
}
