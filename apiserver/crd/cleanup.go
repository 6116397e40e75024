package crd

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/apiserver/verbs"
)

// cleaning is the deletion of a definition's objects under way.
type cleaning struct {
	name   string
	cancel context.CancelFunc
}

// clean starts the end of a definition that is marked deleted.
func (s *Server) clean(ctx context.Context, wg *sync.WaitGroup, d *definition) {
	if d.DeletionTimestamp == nil || s.cleaning[d.Name] != nil || !slices.Contains(d.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer) {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	c := &cleaning{name: d.Name, cancel: cancel}
	s.cleaning[d.Name] = c
	wg.Go(func() {
		defer cancel()
		s.finish(ctx, d)
		s.mu.Lock()
		s.over = append(s.over, c)
		s.mu.Unlock()
		s.signal()
	})
}

// finish deletes all objects, waits until they are gone, and lets the definition go. What fails is tried again until ctx ends.
func (s *Server) finish(ctx context.Context, d *definition) {
	last := condition{Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionFalse, Reason: "NeverEstablished",
		Message: "resource was never established"}
	if apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Established) {
		for {
			err := s.deleteObjects(ctx, d)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return
			}
			s.Log.Warn("the objects of a deleted definition cannot be deleted", "name", d.Name, "error", err)
			_ = s.tellStatus(ctx, d, condition{Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue, Reason: "InstanceDeletionFailed",
				Message: fmt.Sprintf("could not delete all instances: %v", err)}, false)
			if !s.pause(ctx) {
				return
			}
		}
		last.Reason, last.Message = "InstanceDeletionCompleted", "removed all instances"
	}
	for {
		err := s.tellStatus(ctx, d, last, true)
		if err == nil || apierrors.IsNotFound(err) || ctx.Err() != nil {
			return
		}
		if !apierrors.IsConflict(err) {
			s.Log.Error("a deleted definition cannot be let go", "name", d.Name, "error", err)
			if !s.pause(ctx) {
				return
			}
		}
	}
}

// pause waits before another try. false: ctx has ended.
func (s *Server) pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-s.Clock.After(retryAfter):
		return true
	}
}

// tellStatus sets a condition of the newest state, and drops the finalizer if that is due.
func (s *Server) tellStatus(ctx context.Context, d *definition, c condition, letGo bool) error {
	ref := resourceOf
	ref.Name = d.Name
	obj, err := s.Gate.Get(ctx, ref, metav1.GetOptions{})
	if err != nil {
		return err
	}
	now, ok := obj.(*definition)
	if !ok || now.UID != d.UID {
		return nil
	}
	now = now.DeepCopy()
	s.setCondition(now, c)
	if letGo {
		apihelpers.CRDRemoveFinalizer(now, apiextensionsv1.CustomResourceCleanupFinalizer)
	}
	ref.Subresource = "status"
	_, err = s.Gate.Update(ctx, ref, now, metav1.UpdateOptions{})
	return err
}

// deleteObjects returns when no object is left.
func (s *Server) deleteObjects(ctx context.Context, d *definition) error {
	r, ok := s.Registry.Resource(groupResource(d))
	if !ok {
		return nil
	}
	for {
		if r.Table().Len() == 0 {
			return nil
		}
		rev := r.Table().Snapshot().Revision()
		if err := s.deleteAll(ctx, r); err != nil {
			return err
		}
		if r.Table().Len() == 0 {
			return nil
		}
		if err := s.tellStatus(ctx, d, condition{Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue, Reason: "InstanceDeletionInProgress",
			Message: "CustomResource deletion is in progress"}, false); err != nil && !apierrors.IsConflict(err) {
			return err
		}
		if err := s.emptied(ctx, r, rev); err != nil {
			return err
		}
	}
}

func (s *Server) deleteAll(ctx context.Context, r *verbs.Resource) error {
	_, err := r.DeleteCollection(ctx, r.Own("", ""), &metav1.DeleteOptions{}, &metav1.ListOptions{})
	return err
}

// emptied waits until the last object has gone: those with finalizers take their time.
func (s *Server) emptied(ctx context.Context, r *verbs.Resource, rev uint64) error {
	w, err := r.Table().Watch(rev)
	if err != nil {
		return err
	}
	defer w.Close()
	for r.Table().Len() > 0 {
		if _, err := w.Next(ctx); err != nil {
			return err
		}
	}
	return nil
}
