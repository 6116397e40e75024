package server

import (
	"context"

	"github.com/yare-project/yare/apiserver/crd"
	"github.com/yare-project/yare/apiserver/dynamic"
)

// customResources serves what stored definitions define, before the first request comes.
func (p *plane) customResources(ctx context.Context) error {
	c := p.config
	s, err := crd.New(crd.Config{Gate: p.gate.Local(superuser), Registry: p.gate.Registry(), Resolve: dynamic.Resolve(p.gate.Env()), Clock: c.Clock, Log: c.Log})
	if err != nil {
		return err
	}
	p.cluster.stack.run("custom resources", s.Run)
	select {
	case <-s.Synced():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
