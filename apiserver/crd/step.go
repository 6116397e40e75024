package crd

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/yare-project/yare/kind"
)

// writers is how many statuses are written at once: they share the store's commits.
const writers = 16

// served is a definition that the registry has a kind of.
type served struct {
	definition  *definition // as its status should be; without schemas
	custom      *custom
	kind        *kind.Kind
	terminating bool
}

func groupResource(d *definition) schema.GroupResource {
	return schema.GroupResource{Group: d.Spec.Group, Resource: d.Spec.Names.Plural}
}

// step brings the registry and the statuses of the definitions that have news in line with what is stored. false: something failed and must be tried again.
func (s *Server) step(ctx context.Context, wg *sync.WaitGroup) bool {
	s.learn(s.take())
	fresh := map[string]*served{}
	wants := map[string]*definition{}
	var writes []*definition
	for _, d := range s.ordered() {
		delete(s.dirty, d.Name)
		want := s.decide(d)
		s.keep(want) // the next one must not take what this one gets
		wants[d.Name] = want
		if !equality.Semantic.DeepEqual(want.Status, d.Status) {
			writes = append(writes, want)
			s.unwritten[d.Name] = true
		} else if s.unwritten[d.Name] {
			writes = append(writes, want)
		}
		if apihelpers.IsCRDConditionTrue(want, apiextensionsv1.Established) && !s.foreign(want) {
			if n := s.serve(want); n != nil {
				fresh[d.Name] = n
			}
		}
	}
	failed := s.register(fresh)
	s.publish()
	for _, d := range wants {
		s.clean(ctx, wg, d)
	}
	writes = slices.DeleteFunc(writes, func(d *definition) bool { return failed[d.Name] }) // no definition is established that is not served
	maps.Copy(failed, s.write(ctx, writes))
	if len(s.dirty) > 0 { // somebody waits for a name that has become free
		s.signal()
	}
	for name := range failed {
		s.dirty[name] = true
	}
	return len(failed) == 0
}

// foreign tells that the server has the resource from elsewhere.
func (s *Server) foreign(d *definition) bool {
	_, there := s.Registry.Resource(groupResource(d))
	return there && s.served[d.Name] == nil
}

// learn takes in what the watch told; definitions that are gone are served no more.
func (s *Server) learn(news map[string]*definition) {
	var gone []schema.GroupResource
	for name, d := range news {
		delete(s.unwritten, name)
		if d != nil {
			s.keep(d)
			s.dirty[name] = true
			continue
		}
		s.forget(name)
		if c := s.cleaning[name]; c != nil {
			c.cancel()
		}
		if had := s.served[name]; had != nil {
			gone = append(gone, groupResource(had.definition))
			delete(s.served, name)
		}
	}
	if len(gone) > 0 {
		s.Registry.Remove(gone...)
	}
}

// serve makes the kind of an established definition unless the one that is served is still right.
func (s *Server) serve(d *definition) *served {
	terminating := d.DeletionTimestamp != nil
	// The generation counts every change of what a definition says.
	if had := s.served[d.Name]; had != nil && had.definition.UID == d.UID && had.definition.Generation == d.Generation && had.terminating == terminating &&
		reflect.DeepEqual(had.definition.Status.AcceptedNames, d.Status.AcceptedNames) {
		had.custom.adopt(d)
		return nil
	}
	c, k := s.kindOf(d, terminating)
	return &served{definition: c.definition, custom: c, kind: k, terminating: terminating}
}

// register adds kinds, all at once if that succeeds, and tells which failed: one table that cannot be read must not keep the others back.
func (s *Server) register(fresh map[string]*served) map[string]bool {
	failed := map[string]bool{}
	if len(fresh) == 0 {
		return failed
	}
	var all []*kind.Kind
	for _, n := range fresh {
		all = append(all, n.kind)
	}
	if s.Registry.Add(all...) == nil {
		maps.Copy(s.served, fresh)
		return failed
	}
	for name, n := range fresh {
		if err := s.Registry.Add(n.kind); err != nil {
			s.Log.Error("a custom resource cannot be served", "name", name, "error", err)
			failed[name] = true
			continue
		}
		s.served[name] = n
	}
	return failed
}

// publish tells, once, that what was stored at the start is served.
func (s *Server) publish() {
	select {
	case <-s.synced:
	default:
		s.mu.Lock()
		complete := s.complete
		s.mu.Unlock()
		if complete {
			close(s.synced)
		}
	}
}

// write stores statuses and tells which failed. One that meets a newer definition is dropped: the watch tells of that.
func (s *Server) write(ctx context.Context, writes []*definition) map[string]bool {
	var mu sync.Mutex
	failed := map[string]bool{}
	var g errgroup.Group
	g.SetLimit(writers)
	for _, d := range writes {
		g.Go(func() error {
			ref := resourceOf
			ref.Name, ref.Subresource = d.Name, "status"
			_, err := s.Gate.Update(ctx, ref, d, metav1.UpdateOptions{})
			mu.Lock()
			defer mu.Unlock()
			if err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) || ctx.Err() != nil {
				delete(s.unwritten, d.Name)
				return nil
			}
			s.Log.Error("the status of a custom resource definition was not written", "name", d.Name, "error", err)
			failed[d.Name] = true
			return nil
		})
	}
	_ = g.Wait() // its functions report through failed
	return failed
}
