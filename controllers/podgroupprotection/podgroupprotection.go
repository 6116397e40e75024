// Package podgroupprotection lets PodGroups go, once they are deleted and no pod of theirs runs or may still run: it takes off the finalizer that admission put
// on them (KEP-4671). A pod that is done does not hold its group.
//
// What the caches show decides: a pod that is made while its group goes waits for a group of that name, as any pod does whose group is not there yet.
package podgroupprotection

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/loop"
)

const (
	finalizer = "scheduling.k8s.io/podgroup-protection"
	byGroup   = "podgroupprotection.group" // pods that are not done, by namespace/name of their group
)

// Descriptor declares the loop.
func Descriptor() loop.Descriptor {
	groups := schedulingv1alpha2.SchemeGroupVersion.WithResource("podgroups").GroupResource()
	return loop.Descriptor{
		Name:    "podgroup-protection-controller",
		Reads:   []loop.Access{{GroupResource: corev1.Resource("pods")}, {GroupResource: groups}},
		Writes:  []loop.Access{{GroupResource: groups, Verbs: []string{"update"}}},
		Workers: 2,
		Start:   func(in loop.Inputs) (loop.Reconcile, error) { return start(in), nil },
	}
}

type protection struct {
	in     loop.Inputs
	pods   client.Cache[*corev1.Pod]
	groups client.Cache[*schedulingv1alpha2.PodGroup]
}

func start(in loop.Inputs) loop.Reconcile {
	p := &protection{in: in, pods: client.CacheOf[*corev1.Pod](in.Caches, client.CacheOptions{}), groups: client.CacheOf[*schedulingv1alpha2.PodGroup](in.Caches, client.CacheOptions{})}
	p.pods.AddIndex(byGroup, func(pod *corev1.Pod) []string {
		if key, ok := groupOf(pod); ok {
			return []string{key.Namespace + "/" + key.Name}
		}
		return nil
	})
	p.pods.OnChange(func(old, new *corev1.Pod) {
		if old == nil {
			return
		}
		if key, held := groupOf(old); held {
			if _, holds := groupOf(new); !holds || new.UID != old.UID {
				in.Enqueue(key)
			}
		}
	})
	p.groups.OnChange(func(_, new *schedulingv1alpha2.PodGroup) {
		if new != nil && new.DeletionTimestamp != nil {
			in.Enqueue(loop.KeyOf(new))
		}
	})
	return p.reconcile
}

// groupOf is the group that a pod holds: the one it names, until it is done or gone.
func groupOf(pod *corev1.Pod) (loop.Key, bool) {
	if pod == nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed || pod.Spec.SchedulingGroup == nil || pod.Spec.SchedulingGroup.PodGroupName == nil {
		return loop.Key{}, false
	}
	return loop.Key{Namespace: pod.Namespace, Name: *pod.Spec.SchedulingGroup.PodGroupName}, true
}

func (p *protection) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	g, ok := p.groups.Get(key.Namespace, key.Name)
	if !ok || g.DeletionTimestamp == nil || !slices.Contains(g.Finalizers, finalizer) || len(p.pods.By(byGroup, key.Namespace+"/"+key.Name)) > 0 {
		return loop.Result{}, nil
	}
	next := g.DeepCopy()
	next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == finalizer })
	if _, err := client.Of[*schedulingv1alpha2.PodGroup](p.in.Transport).Update(ctx, next); err != nil && !apierrors.IsNotFound(err) {
		return loop.Result{}, fmt.Errorf("take the finalizer off pod group %s: %w", g.Name, err)
	}
	return loop.Result{}, nil
}
