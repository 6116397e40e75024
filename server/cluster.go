package server

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/internal/kubeconfig"
	"github.com/yare-project/yare/internal/resident"
)

// PIDFile, in the data folder, names the process that runs from it.
const PIDFile = "yare.pid"

// drainTime bounds how long an orderly end may take.
const drainTime = 20 * time.Second

// Cluster is everything that one process runs.
type Cluster struct {
	config  *Config
	stack   *stack
	metrics *prometheus.Registry
	plane   *plane
	node    *nodeParts
}

// Start brings every component up in order and returns when the API server answers, the loops run and, with a node, its agent works. What was
// started is stopped again if a later part fails. c must be complete.
func Start(ctx context.Context, c *Config) (*Cluster, error) {
	cl := &Cluster{config: c, stack: newStack(c), metrics: prometheus.NewRegistry()}
	if err := cl.start(ctx); err != nil {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
		defer cancel()
		return nil, errors.Join(err, cl.stack.stop(stop))
	}
	// What the start or a busy time needed and nothing needs any more goes back to the system soon.
	if !c.throwaway() { // a test's process may start many, and needs its memory again
		cl.stack.run("memory", func(ctx context.Context) error { return resident.Run(ctx, c.Clock, c.Log, stored.Forget) })
	}
	return cl, nil
}

func (cl *Cluster) start(ctx context.Context) error {
	c := cl.config
	if err := cl.stack.step("check the host", c.preflight); err != nil {
		return errors.Unwrap(err) // the message stands for itself
	}
	var err error
	if cl.plane, err = startPlane(ctx, cl); err != nil {
		return err
	}
	if !c.WithoutNode {
		if cl.node, err = startLocalNode(ctx, cl); err != nil {
			return err
		}
	}
	return nil
}

// Admin is how the cluster's owner reaches it.
func (cl *Cluster) Admin(name string) kubeconfig.Entry {
	return cl.plane.admin(name)
}

// Wait keeps running until ctx ends or a part fails, then stops everything in reverse order.
func (cl *Cluster) Wait(ctx context.Context) error { return cl.stack.wait(ctx) }
