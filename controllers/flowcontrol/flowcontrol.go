// Package flowcontrol keeps the objects by which the API server shares its time out: the default FlowSchemas and
// PriorityLevelConfigurations exist and are up to date, and each FlowSchema says in its status whether the level that it names exists.
//
// The mandatory objects always get their spec back. The suggested ones do as long as their annotation apf.kubernetes.io/autoupdate-spec allows
// it: an administrator's own version of one, so marked or merely changed, stays. An object with that annotation that is none of the defaults is
// one of an older release, and goes.
//
// What to do is a pure plan (plan.go). [Ensure] carries it out once, for a cluster that starts; the loop does whenever an object changes. The
// package does not decide about requests: apiserver/fairness does.
package flowcontrol

import (
	"context"
	"errors"
	"fmt"
	"sync"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/loop"
)

// Config names the defaults.
type Config struct {
	MandatoryLevels, SuggestedLevels   []*flowcontrolv1.PriorityLevelConfiguration
	MandatorySchemas, SuggestedSchemas []*flowcontrolv1.FlowSchema
}

var (
	schemas = schema.GroupResource{Group: flowcontrolv1.GroupName, Resource: "flowschemas"}
	levels  = schema.GroupResource{Group: flowcontrolv1.GroupName, Resource: "prioritylevelconfigurations"}
	status  = schema.GroupResource{Group: flowcontrolv1.GroupName, Resource: "flowschemas/status"}
)

// Descriptor declares the loop.
func Descriptor(cfg Config) loop.Descriptor {
	change := []string{"create", "update", "delete"}
	return loop.Descriptor{
		Name:  "flow-control",
		Reads: []loop.Access{{GroupResource: schemas}, {GroupResource: levels}},
		Writes: []loop.Access{{GroupResource: schemas, Verbs: change}, {GroupResource: levels, Verbs: change},
			{GroupResource: status, Verbs: []string{"update"}}},
		Start: func(in loop.Inputs) (loop.Reconcile, error) { return start(cfg, in) },
	}
}

// everything is the one key of the loop: the plan is about all objects, of which there are few.
var everything = loop.Key{Name: "all"}

func start(cfg Config, in loop.Inputs) (loop.Reconcile, error) {
	s := client.CacheOf[*flowcontrolv1.FlowSchema](in.Caches, client.CacheOptions{})
	l := client.CacheOf[*flowcontrolv1.PriorityLevelConfiguration](in.Caches, client.CacheOptions{})
	s.OnChange(func(_, _ *flowcontrolv1.FlowSchema) { in.Enqueue(everything) })
	l.OnChange(func(_, _ *flowcontrolv1.PriorityLevelConfiguration) { in.Enqueue(everything) })
	in.Enqueue(everything) // there may be no objects that could change
	return func(ctx context.Context, _ loop.Key) (loop.Result, error) {
		return loop.Result{}, carryOut(ctx, in.Transport, decide(cfg, s.List(""), l.List(""), metav1.NewTime(in.Clock.Now())))
	}, nil
}

// Ensure makes a cluster that starts have its objects. Their status is the loop's to write.
func Ensure(ctx context.Context, api client.Transport, cfg Config) error {
	for range 5 { // again when another server does the same at the same time
		s, err := client.Of[*flowcontrolv1.FlowSchema](api).List(ctx, "", metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("list flow schemas: %w", err)
		}
		l, err := client.Of[*flowcontrolv1.PriorityLevelConfiguration](api).List(ctx, "", metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("list priority levels: %w", err)
		}
		p := decide(cfg, s, l, metav1.Time{})
		if p.statuses = nil; p.empty() {
			return nil
		}
		if err := carryOut(ctx, api, p); err != nil {
			return err
		}
	}
	return nil
}

// carryOut does what a plan says, many things at a time, so that the store commits them in few batches. Who came in between will be looked at
// again.
func carryOut(ctx context.Context, api client.Transport, p plan) error {
	l, s := client.Of[*flowcontrolv1.PriorityLevelConfiguration](api), client.Of[*flowcontrolv1.FlowSchema](api)
	b := &batch{}
	each(b, "create priority level", p.createLevels, result(ctx, l.Create))
	each(b, "update priority level", p.updateLevels, result(ctx, l.Update))
	each(b, "create flow schema", p.createSchemas, result(ctx, s.Create))
	each(b, "update flow schema", p.updateSchemas, result(ctx, s.Update))
	each(b, "write the status of flow schema", p.statuses, result(ctx, s.UpdateStatus))
	each(b, "delete flow schema", p.deleteSchemas, func(o *flowcontrolv1.FlowSchema) error { return s.Delete(ctx, "", o.Name, only(o)) })
	each(b, "delete priority level", p.deleteLevels, func(o *flowcontrolv1.PriorityLevelConfiguration) error { return l.Delete(ctx, "", o.Name, only(o)) })
	b.running.Wait()
	return errors.Join(b.faults...)
}

// batch is writes that run at once.
type batch struct {
	running sync.WaitGroup
	mu      sync.Mutex
	faults  []error
}

func each[T client.Object](b *batch, what string, objects []T, do func(T) error) {
	for _, o := range objects {
		b.running.Go(func() {
			err := do(o)
			if err == nil || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
				return
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			b.faults = append(b.faults, fmt.Errorf("%s %s: %w", what, o.GetName(), err))
		})
	}
}

func result[T any](ctx context.Context, write func(context.Context, T) (T, error)) func(T) error {
	return func(o T) error {
		_, err := write(ctx, o)
		return err
	}
}

// only deletes the state that was judged.
func only(o client.Object) metav1.DeleteOptions {
	uid, version := o.GetUID(), o.GetResourceVersion()
	return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}}
}
