package aggregation

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/yare-project/yare/internal/resource"
	"github.com/yare-project/yare/kind"
)

// managed labels an APIService that this server keeps: what is built in as it starts, what custom resources define at all times.
const (
	managed = "kube-aggregator.kubernetes.io/automanaged"
	onStart = "onstart"
	always  = "true"
)

const (
	registerRetry = time.Second
	pause         = 200 * time.Millisecond // between two looks: many definitions may come at once
	writers       = 8                      // writes at once: they share a commit
)

// plan is what to write so that there is an APIService for all that this server serves.
type plan struct {
	create, update []*apiService
	remove         []*apiService
	settle         []*apiService // with the status that they should have
}

// registration remembers which of the built-in group versions were seen to: their APIServices are the user's from then on.
type registration struct {
	done    map[string]bool
	atStart map[string]bool // APIServices that were there
}

// Register keeps an APIService for all that registry serves until ctx ends, while Run runs. It may run once, and not before registry has what the store
// defines: the APIService of a custom resource that is not served would be removed.
func (a *Aggregator) Register(ctx context.Context, registry Registry) error {
	registry.OnChange(a.signal)
	select {
	case <-a.synced:
	case <-ctx.Done():
		return nil
	}
	r := &registration{done: map[string]bool{}, atStart: map[string]bool{}}
	for name := range a.present() {
		r.atStart[name] = true
	}
	for {
		var retry <-chan time.Time
		if !a.carryOut(ctx, r.plan(a.wanted(registry.Kinds()), a.present()), r) {
			retry = a.cfg.Clock.After(registerRetry)
		}
		rested := a.cfg.Clock.After(pause)
		select {
		case <-ctx.Done():
			return nil
		case <-a.wake:
		case <-retry:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-rested:
		}
	}
}

// present copies what is stored.
func (a *Aggregator) present() map[string]*apiService {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.stored)
}

// wanted are the APIServices of what kinds are served in, by name. The group of the APIServices themselves has none: it is there before all others.
func (a *Aggregator) wanted(kinds []*kind.Kind) map[string]*apiService {
	out := map[string]*apiService{}
	for _, k := range kinds {
		for i := range k.Versions {
			gv := k.Versions[i].GroupVersion()
			name := gv.Version + "." + gv.Group
			if k.Versions[i].Unserved || out[name] != nil || gv.Group == apiServices.Group {
				continue
			}
			out[name] = a.local(name, gv)
		}
	}
	return out
}

func (a *Aggregator) local(name string, gv schema.GroupVersion) *apiService {
	p, builtin := a.priority(gv)
	mode := always
	if builtin {
		mode = onStart
	}
	return &apiService{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{managed: mode}},
		Spec: apiregistrationv1.APIServiceSpec{Group: gv.Group, Version: gv.Version, GroupPriorityMinimum: p.Group, VersionPriority: p.Version}}
}

// plan compares. An APIService without the label is somebody else's and stays as it is; so does one of a built-in group version after the start.
func (r *registration) plan(wanted, stored map[string]*apiService) plan {
	var p plan
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		want, have := wanted[name], stored[name]
		mode := want.Labels[managed]
		switch {
		case mode == onStart && r.done[name]:
		case have == nil:
			p.create = append(p.create, want)
		case have.Labels[managed] != onStart && have.Labels[managed] != always, have.Labels[managed] == onStart && !r.atStart[name],
			equality.Semantic.DeepEqual(have.Spec, want.Spec):
			r.done[name] = true
		default:
			next := have.DeepCopy()
			next.Spec = want.Spec
			p.update = append(p.update, next)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(stored)) {
		have := stored[name]
		mode := have.Labels[managed]
		if wanted[name] == nil && (mode == always || mode == onStart && r.atStart[name] && !r.done[name]) {
			p.remove = append(p.remove, have)
		} else if have.Spec.Service == nil && *storedVerdict(have) != servedHere {
			p.settle = append(p.settle, have)
		}
	}
	return p
}

// servedHere is the verdict on what this server serves itself, whoever wrote its APIService.
var servedHere = verdict{apiregistrationv1.ConditionTrue, "Local", "Local APIServices are always available"}

// carryOut tells whether everything was written. What changed meanwhile is looked at again when that change is heard of.
func (a *Aggregator) carryOut(ctx context.Context, p plan, r *registration) bool {
	var mu sync.Mutex
	complete := true
	var group sync.WaitGroup
	places := make(chan struct{}, writers)
	do := func(s *apiService, write func() error) {
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			err := write()
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				r.done[s.Name] = true
			case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err), apierrors.IsNotFound(err):
			case ctx.Err() == nil:
				complete = false
				a.cfg.Log.Warn("an APIService could not be registered", "apiservice", s.Name, "error", err)
			}
		})
	}
	for _, s := range p.create {
		do(s, func() error { _, err := a.gate.Create(ctx, apiServices, s, metav1.CreateOptions{}); return err })
	}
	for _, s := range p.update {
		do(s, func() error {
			_, err := a.gate.Update(ctx, named(s.Name), s, metav1.UpdateOptions{})
			return err
		})
	}
	for _, s := range p.settle {
		do(s, func() error {
			ref := named(s.Name)
			ref.Subresource = "status"
			_, err := a.gate.Update(ctx, ref, a.concluded(s, servedHere), metav1.UpdateOptions{})
			return err
		})
	}
	for _, s := range p.remove {
		do(s, func() error {
			_, err := a.gate.Delete(ctx, named(s.Name), metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(s.UID))})
			return err
		})
	}
	group.Wait()
	return complete
}

func named(name string) resource.Ref {
	ref := apiServices
	ref.Name = name
	return ref
}
