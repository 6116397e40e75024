package crd

import (
	"context"
	"reflect"
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
	definition  *definition // as its status should be
	kind        *kind.Kind
	terminating bool
}

func groupResource(d *definition) schema.GroupResource {
	return schema.GroupResource{Group: d.Spec.Group, Resource: d.Spec.Names.Plural}
}

// step brings the registry and the statuses in line with what is stored. false: something failed and must be tried again.
func (s *Server) step(ctx context.Context, wg *sync.WaitGroup) bool {
	s.learn(s.take())
	var writes []*definition
	var add []*kind.Kind
	next := map[string]*served{}
	for _, d := range s.ordered() {
		want := s.decide(d)
		if !equality.Semantic.DeepEqual(want.Status, d.Status) {
			writes = append(writes, want)
		}
		if apihelpers.IsCRDConditionTrue(want, apiextensionsv1.Established) && !s.foreign(want) {
			if fresh := s.serve(want); fresh != nil {
				next[d.Name] = fresh
				add = append(add, fresh.kind)
			}
		}
		s.known[d.Name] = want
	}
	ok := s.register(add, next)
	for _, d := range s.known {
		s.clean(ctx, wg, d)
	}
	s.publish()
	return s.write(ctx, writes) && ok
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
		if d != nil {
			s.known[name] = d
			continue
		}
		delete(s.known, name)
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
	if had := s.served[d.Name]; had != nil && had.definition.UID == d.UID && had.terminating == terminating &&
		reflect.DeepEqual(had.definition.Status.AcceptedNames, d.Status.AcceptedNames) && equality.Semantic.DeepEqual(had.definition.Spec, d.Spec) {
		return nil
	}
	return &served{definition: d, kind: s.kindOf(d, terminating), terminating: terminating}
}

func (s *Server) register(add []*kind.Kind, next map[string]*served) bool {
	if len(add) == 0 {
		return true
	}
	if err := s.Registry.Add(add...); err != nil {
		s.Log.Error("custom resources cannot be served", "error", err)
		return false
	}
	for name, n := range next {
		s.served[name] = n
	}
	return true
}

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

// write stores statuses. One that meets a newer definition is dropped: the watch tells of that.
func (s *Server) write(ctx context.Context, writes []*definition) bool {
	var g errgroup.Group
	g.SetLimit(writers)
	for _, d := range writes {
		g.Go(func() error {
			ref := resourceOf
			ref.Name, ref.Subresource = d.Name, "status"
			_, err := s.Gate.Update(ctx, ref, d, metav1.UpdateOptions{})
			if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || ctx.Err() != nil {
				return nil
			}
			if err != nil {
				s.Log.Error("the status of a custom resource definition was not written", "name", d.Name, "error", err)
			}
			return err
		})
	}
	return g.Wait() == nil
}
