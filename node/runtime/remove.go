package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sync/errgroup"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/yare-project/yare/node/cni"
)

// Remove ends every pod and the daemon, and takes away whatever the runtime made
// outside Dir. Images and settings in Dir stay. For an external runtime it only
// disconnects: its pods are removed by whoever made them.
func (r *Runtime) Remove(ctx context.Context) error {
	if r.cfg.Endpoint != "" {
		return r.Stop(ctx)
	}
	var errs []error
	if err := removePods(ctx, cri.NewRuntimeServiceClient(r.conn)); err != nil {
		// The sweep below ends what the runtime itself could not.
		r.cfg.Log.Warn("container runtime: pods are removed by force", "err", err)
	}
	errs = append(errs, r.Stop(ctx))
	return errors.Join(append(errs, sweep(ctx, r.cfg, r.paths))...)
}

// Remove takes away what an embedded runtime left on this machine, whether
// it still runs, was killed, or never finished starting. It is what `yare down`
// needs, where no Runtime is at hand. Without Dir's programs it still
// sweeps, though not as gently.
func Remove(ctx context.Context, cfg Config) error {
	cfg, err := cfg.withDefaults()
	if err != nil || cfg.Endpoint != "" {
		return err
	}
	p := cfg.paths()
	if !exists(p.state) {
		return nil
	}
	r, err := Start(ctx, cfg)
	if err != nil {
		cfg.Log.Warn("container runtime: it doesn't start any more: pods are removed by force", "err", err)
		return errors.Join(endRecorded(ctx, p), sweep(ctx, cfg, p))
	}
	return r.Remove(ctx)
}

func endRecorded(ctx context.Context, p paths) error {
	rec, err := readRecord(p.record)
	if err != nil {
		return nil
	}
	old, err := adopt(rec)
	if err != nil {
		return nil
	}
	return end(ctx, old)
}

// removePods stops and removes every pod, a few at a time. Stopping a pod
// without grace kills its containers and gives back its addresses.
func removePods(ctx context.Context, c cri.RuntimeServiceClient) error {
	pods, err := c.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	var g errgroup.Group
	g.SetLimit(8)
	for _, pod := range pods.Items {
		g.Go(func() error {
			if _, err := c.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: pod.Id}); err != nil {
				return fmt.Errorf("stop pod %s/%s: %w", pod.Metadata.GetNamespace(), pod.Metadata.GetName(), err)
			}
			if _, err := c.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: pod.Id}); err != nil {
				return fmt.Errorf("remove pod %s/%s: %w", pod.Metadata.GetNamespace(), pod.Metadata.GetName(), err)
			}
			return nil
		})
	}
	return g.Wait()
}

// sweep removes by force: processes, mounts, control groups, network, files.
func sweep(ctx context.Context, cfg Config, p paths) error {
	errs := []error{
		killLeft(ctx, p),
		unmountBelow(p.state),
		unmountBelow(p.root),
	}
	for _, root := range cfg.CgroupRoots {
		errs = append(errs, removeCgroups(root))
	}
	errs = append(errs,
		cni.Cleanup(cfg.network(p)),
		cfg.settings(p).Restore(),
		os.RemoveAll(p.state),
	)
	_ = os.Remove(cfg.RunDir) // fails while another cluster uses it
	return errors.Join(errs...)
}
