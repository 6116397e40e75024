package server

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/controllers"
	"github.com/yare-project/yare/controllers/nodeipam"
	"github.com/yare-project/yare/controllers/served"
	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/loop"
	"github.com/yare-project/yare/scheduler"
)

// loops is everything in the control plane that watches and acts.
type loops struct {
	runtime   *loop.Runtime
	caches    *client.Caches
	scheduler *scheduler.Scheduler
	events    *loop.Recorder // the scheduler's
}

// declareLoops wires the loops; nothing runs yet. Their roles derive from what they declare.
func (p *plane) declareLoops(context.Context) error {
	c := p.config
	l := &loops{caches: client.NewCaches(client.CachesConfig{Transport: p.gate.Local(superuser), Clock: c.Clock, Log: c.Log})}
	var err error
	l.runtime, err = loop.New(loop.Config{
		Transport: func(name string) client.Transport { return p.gate.Local(accountUser(loop.UserName(name))) },
		Caches:    l.caches, Clock: c.Clock, Log: c.Log, Metrics: p.cluster.metrics, Instance: c.NodeName,
	})
	if err != nil {
		return err
	}
	for _, d := range c.pick(controllers.All(controllers.Config{
		CA: p.pki.Cluster.CertPEM(), Signer: p.pki.Cluster, Served: p.served, NodeIPAM: &nodeipam.Config{Cluster: c.ClusterCIDR},
		Quota: p.quota, SignSecret: p.tokens.Tokens.IssueForSecret,
	})) {
		if err := l.runtime.Add(d); err != nil {
			return err
		}
	}
	if err := p.keepFlows(l); err != nil {
		return err
	}
	for _, n := range l.runtime.Graph() {
		c.Log.Debug("loop", "reads -> writes", n)
	}
	p.loops = l
	if c.APIOnly {
		return nil
	}
	profiles, err := scheduler.LoadConfig(c.SchedulerConfig)
	if err == nil {
		err = profiles.Embedded()
	}
	if err != nil {
		return err
	}
	as := p.gate.Local(&user.DefaultInfo{Name: user.KubeScheduler, Groups: []string{user.AllAuthenticated}})
	l.events = loop.NewRecorder(loop.RecorderConfig{Transport: as, Component: "default-scheduler", Instance: c.NodeName, Clock: c.Clock, Log: c.Log})
	l.scheduler, err = scheduler.New(scheduler.Config{
		Transport: as, Caches: l.caches, Clock: c.Clock, Log: c.Log, Events: l.events.Event, Metrics: p.cluster.metrics, Profiles: profiles,
	})
	if err != nil {
		return fmt.Errorf("scheduler: %w", err)
	}
	p.scheduler.Store(l.scheduler)
	return nil
}

// accountUser is a service account of the system's own.
func accountUser(name string) user.Info {
	return &user.DefaultInfo{Name: name, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", user.AllAuthenticated}}
}

// served lists the resources that keep objects, for loops that care for all of them.
func (p *plane) served(context.Context) ([]served.Resource, error) {
	var out []served.Resource
	for _, r := range p.gate.Registry().Resources() {
		k := r.Kind
		version := preferred(k)
		if version == nil {
			continue
		}
		out = append(out, served.Resource{
			GroupVersionResource: version.GroupVersion().WithResource(version.Names.Plural), Kind: version.Kind,
			Namespaced: k.Scope == kind.Namespaced, Verbs: k.Verbs,
		})
	}
	return p.servedElsewhere(out)
}

// preferred is the version in which loops see a kind: the one that costs no conversion, if it is served.
func preferred(k *kind.Kind) *kind.Version {
	for i := range k.Versions { // the hub comes first
		if !k.Versions[i].Unserved {
			return &k.Versions[i]
		}
	}
	return nil
}

// roles are what the loops may do.
func (l *loops) roles() []runtime.Object {
	var out []runtime.Object
	roles, bindings := l.runtime.Roles()
	for i := range roles {
		out = append(out, &roles[i], &bindings[i])
	}
	if l.scheduler != nil {
		role, binding := schedulerRole()
		out = append(out, role, binding)
	}
	return out
}

// schedulerRole is what the scheduler declares: system:kube-scheduler, which is Kubernetes' own, knows nothing of Yare's kinds.
func schedulerRole() (*rbacv1.ClusterRole, *rbacv1.ClusterRoleBinding) {
	role, binding := loop.RoleOf(loop.Descriptor{Name: "scheduler", Reads: scheduler.Reads(), Writes: scheduler.Writes()})
	role.Name, binding.Name, binding.RoleRef.Name = "system:yare:scheduler", "system:yare:scheduler", "system:yare:scheduler"
	binding.Subjects = []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user.KubeScheduler}}
	return &role, &binding
}

func (p *plane) runLoops(ctx context.Context) error {
	l, s := p.loops, p.cluster.stack
	s.run("caches", func(ctx context.Context) error { l.caches.Run(ctx); return nil })
	s.run("loops", l.runtime.Run)
	if l.scheduler != nil {
		s.run("scheduler events", func(ctx context.Context) error { l.events.Run(ctx); return nil })
		s.run("scheduler", l.scheduler.Run)
	}
	return nil
}
