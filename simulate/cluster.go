package simulate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/internal/resource"
	"github.com/yare-project/yare/scheduler"
	"github.com/yare-project/yare/scheduler/policy"
)

// Cluster is what a simulation knows of a cluster. Its objects are shared with the simulations of it: change none.
type Cluster struct {
	Taken   time.Time // when it was read
	Objects []client.Object
	Unread  []string // what could not be read, and why
}

// Resources lists what a Cluster holds: what the scheduler reads, what the API server fills pods in by, the
// DaemonSets, whose pods a new node gets, and the templates of claims for devices.
func Resources() []schema.GroupVersionResource {
	groups := []schema.GroupResource{{Group: "scheduling.k8s.io", Resource: "priorityclasses"}, {Resource: "limitranges"}, {Group: "node.k8s.io", Resource: "runtimeclasses"},
		{Group: "apps", Resource: "daemonsets"}, {Group: "resource.k8s.io", Resource: "resourceclaimtemplates"}}
	for _, a := range scheduler.Reads() {
		groups = append(groups, a.GroupResource)
	}
	var out []schema.GroupVersionResource
	for _, g := range groups {
		if gvr, ok := versioned(g); ok && !slices.Contains(out, gvr) {
			out = append(out, gvr)
		}
	}
	// Pods come last: what they need is there before.
	slices.SortStableFunc(out, func(a, b schema.GroupVersionResource) int { return cmp.Compare(rank(a), rank(b)) })
	return out
}

func rank(r schema.GroupVersionResource) int {
	if r.Group == "" && r.Resource == "pods" {
		return 1
	}
	return 0
}

// versioned finds the version in which a resource is read.
func versioned(g schema.GroupResource) (schema.GroupVersionResource, bool) {
	if g == policy.NodeMetrics.GroupResource() {
		return policy.NodeMetrics, true
	}
	var best schema.GroupVersionResource
	for _, gv := range client.Scheme().PrioritizedVersionsForGroup(g.Group) {
		gvr := gv.WithResource(g.Resource)
		if _, ok := client.KindFor(gvr); ok && (best.Empty() || version.CompareKubeAwareVersionStrings(gvr.Version, best.Version) > 0) {
			best = gvr
		}
	}
	return best, !best.Empty()
}

// Read lists a live cluster. What may not be listed, or is not served, is left out; without nodes and pods there is nothing to simulate, and the error says why.
func Read(ctx context.Context, api client.Transport, now time.Time) (*Cluster, error) {
	c := &Cluster{Taken: now}
	policies := false
	for _, gvr := range Resources() {
		list, _, err := api.List(ctx, resource.Ref{GroupVersionResource: gvr}, metav1.ListOptions{ResourceVersion: "0"})
		switch {
		case err == nil:
		case apierrors.IsNotFound(err), gvr == policy.NodeMetrics && !policies && ctx.Err() == nil: // nobody may ask for numbers
			continue
		case gvr.Group == "" && (gvr.Resource == "pods" || gvr.Resource == "nodes") || ctx.Err() != nil:
			return nil, fmt.Errorf("reading %s: %w", gvr.GroupResource(), err)
		default:
			c.Unread = append(c.Unread, fmt.Sprintf("%s: %v", gvr.GroupResource(), err))
			continue
		}
		policies = policies || gvr.Resource == "schedulingpolicies" && len(list) > 0
		for _, o := range list {
			if obj, ok := o.(client.Object); ok {
				c.Objects = append(c.Objects, trimmed(obj))
			}
		}
	}
	c.sort()
	return c, nil
}

// sort orders objects by resource, then, as they came into being, by age and name.
func (c *Cluster) sort() {
	order := map[schema.GroupVersionResource]int{}
	for k, gvr := range Resources() {
		order[gvr] = k
	}
	slices.SortStableFunc(c.Objects, func(a, b client.Object) int {
		return cmp.Or(cmp.Compare(order[resourceOf(a)], order[resourceOf(b)]), a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time),
			strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
	})
}

// resourceOf is where an object belongs. Measurements of nodes are called nodes, whatever their kind is.
func resourceOf(o client.Object) schema.GroupVersionResource {
	gvk, _ := client.KindOf(o)
	if gvk.Group == policy.NodeMetrics.Group && gvk.Kind == "NodeMetrics" {
		return policy.NodeMetrics
	}
	return client.ResourceFor(gvk)
}

// trimmed is an object without what does not matter for scheduling: who wrote which field, and what containers run, which may hold what is nobody's business.
func trimmed(o client.Object) client.Object {
	if _, dynamic := o.(*unstructured.Unstructured); dynamic {
		return o
	}
	o = o.DeepCopyObject().(client.Object)
	o.SetManagedFields(nil)
	if a := o.GetAnnotations(); a[corev1.LastAppliedConfigAnnotation] != "" {
		a = maps.Clone(a)
		delete(a, corev1.LastAppliedConfigAnnotation)
		o.SetAnnotations(a)
	}
	switch o := o.(type) {
	case *corev1.Pod:
		trimContainers(&o.Spec)
		for _, list := range [][]corev1.ContainerStatus{o.Status.InitContainerStatuses, o.Status.ContainerStatuses, o.Status.EphemeralContainerStatuses} {
			for k := range list {
				list[k].State, list[k].LastTerminationState = corev1.ContainerState{}, corev1.ContainerState{}
			}
		}
	case *corev1.ReplicationController:
		o.Spec.Template = nil
	case *appsv1.ReplicaSet:
		o.Spec.Template.Spec = corev1.PodSpec{}
	case *appsv1.StatefulSet:
		o.Spec.Template.Spec = corev1.PodSpec{}
	case *appsv1.DaemonSet:
		trimContainers(&o.Spec.Template.Spec)
	}
	return o
}

func trimContainers(spec *corev1.PodSpec) {
	spec.EphemeralContainers = nil
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for k, c := range list {
			list[k] = corev1.Container{Name: c.Name, Image: c.Image, Ports: c.Ports, Resources: c.Resources, ResizePolicy: c.ResizePolicy, RestartPolicy: c.RestartPolicy}
		}
	}
}
