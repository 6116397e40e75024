package server

import (
	"context"
	"errors"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/yare-project/yare/apiserver"
	"github.com/yare-project/yare/apiserver/encryption"
	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/kind"
)

// AtRest is what is encrypted on disk. The fields are kube-apiserver's flags; zero values seal Secrets with the cluster's own key.
type AtRest struct {
	// ConfigFile is the path of an EncryptionConfiguration, Reload takes over its changes.
	ConfigFile string
	Reload     bool
}

func (a AtRest) check() error {
	if a.Reload && a.ConfigFile == "" {
		return errors.New("--encryption-provider-config-automatic-reload needs --encryption-provider-config: there is no file to read again")
	}
	return nil
}

// OwnKeyFile is where a data folder has the key that its Secrets are sealed with.
const OwnKeyFile = "encryption.yaml"

// openEncryption reads the keys, before the store's tables are. A store in memory needs none, unless it is asked for.
func (p *plane) openEncryption(context.Context) error {
	c := p.config
	if c.Backend == Memory && c.AtRest.ConfigFile == "" {
		return nil
	}
	config := encryption.Config{File: c.AtRest.ConfigFile, Reload: c.AtRest.Reload, ID: c.NodeName, Metrics: p.cluster.metrics, Clock: c.Clock, Log: c.Log}
	if !c.throwaway() {
		config.OwnFile = filepath.Join(c.DataDir, OwnKeyFile)
	}
	var err error
	if p.sealed, err = encryption.Open(config); err != nil {
		return err
	}
	p.cluster.stack.onStop(func(context.Context) error { p.sealed.Close(); return nil })
	return nil
}

// sealer is how the gate's kinds are sealed; nil: all are plain.
func (p *plane) sealer() func(*kind.Kind) stored.Sealer {
	if p.sealed == nil {
		return nil
	}
	return func(k *kind.Kind) stored.Sealer { return p.sealed.For(k.Resource(), storagePath(k)) }
}

// followKeys takes over new keys from when the gate stands.
func (p *plane) followKeys() {
	if p.sealed == nil {
		return
	}
	p.sealed.OnChange(p.gate.Registry().Reread)
	p.cluster.stack.run("encryption at rest", p.sealed.Run)
	if p.config.AtRest.ConfigFile == "" {
		p.cluster.stack.run("encrypt what is plain", p.sealOld)
	}
}

// sealOld writes again what an older release, or an older one of the cluster's own keys, has left. It is done once.
func (p *plane) sealOld(ctx context.Context) error {
	for _, r := range p.gate.Registry().Resources() {
		n, err := r.Reseal(ctx)
		if err != nil && ctx.Err() == nil {
			p.config.Log.Error("stored objects stay as they are until they are written", "resource", r.Kind.Resource().String(), "error", err)
		} else if n > 0 {
			p.config.Log.Info("stored objects were encrypted", "resource", r.Kind.Resource().String(), "objects", n)
		}
	}
	<-ctx.Done() // its end would stop the server
	return nil
}

// keyChecks are the health checks of key services.
func (p *plane) keyChecks() []apiserver.Check {
	if p.sealed == nil || !p.sealed.Services() {
		return nil
	}
	return []apiserver.Check{{Name: encryption.HealthCheck, Run: p.sealed.Check}}
}

// storagePaths are where Kubernetes keeps the kinds that it keeps under an older name.
var storagePaths = map[schema.GroupResource]string{
	{Resource: "nodes"}:                                 "minions",
	{Resource: "replicationcontrollers"}:                "controllers",
	{Resource: "services"}:                              "services/specs",
	{Resource: "endpoints"}:                             "services/endpoints",
	{Group: "networking.k8s.io", Resource: "ingresses"}: "ingress",
}

// storagePath is the path of a kind's objects in etcd as Kubernetes has it: encrypted values are bound to it.
func storagePath(k *kind.Kind) string {
	gr := k.Resource()
	if path, old := storagePaths[gr]; old {
		return "/registry/" + path
	}
	if k.Dynamic || gr.Group == "apiextensions.k8s.io" || gr.Group == "apiregistration.k8s.io" {
		return "/registry/" + gr.Group + "/" + gr.Resource
	}
	return "/registry/" + gr.Resource
}
