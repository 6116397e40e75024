package simulate

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/controllers/daemonset"
	"github.com/yare-project/yare/controllers/deployment"
	"github.com/yare-project/yare/controllers/job"
	"github.com/yare-project/yare/controllers/owned"
	"github.com/yare-project/yare/controllers/statefulset"
)

// bringsPods tells whether an object is a pod or makes pods.
func bringsPods(o client.Object) bool {
	switch o.(type) {
	case *corev1.Pod, *corev1.ReplicationController, *appsv1.Deployment, *appsv1.ReplicaSet, *appsv1.StatefulSet, *appsv1.DaemonSet, *batchv1.Job, *batchv1.CronJob:
		return true
	}
	return false
}

// workload makes pods that are alike, as their controller would.
type workload struct {
	name    string // kind/name
	count   int    // how many it wants
	next    int    // the number of the next that would be made
	more    bool   // it could have more
	present func(p *corev1.Pod) bool
	// member is the k-th pod, from 0, and the claims that come with it. A pod without a name is numbered.
	member func(k int) (*corev1.Pod, []*corev1.PersistentVolumeClaim)
}

// expand says which pods an object brings. Its owner, for the pods to refer to, is in the memory afterwards.
func (g *gate) expand(ctx context.Context, o client.Object) (*workload, error) {
	if p, ok := o.(*corev1.Pod); ok {
		return &workload{name: kindName(o), count: 1, more: true, present: func(*corev1.Pod) bool { return false }, member: func(k int) (*corev1.Pod, []*corev1.PersistentVolumeClaim) {
			c := p.DeepCopy()
			if k > 0 || c.Name == "" {
				c.Name, c.GenerateName = "", strings.TrimSuffix(p.GenerateName+p.Name, "-")+"-"
			}
			return c, nil
		}}, nil
	}
	o, err := g.prepare(ctx, o)
	if err != nil {
		return nil, err
	}
	w := &workload{name: kindName(o), more: true}
	switch o := o.(type) {
	case *appsv1.Deployment:
		set := deployment.NewSet(o)
		set.Spec.Replicas = o.Spec.Replicas
		set.UID = types.UID("simulated-set-of-" + string(o.UID))
		adopt(g, w, set)
		w.replicas(o.Spec.Replicas, &set.Spec.Template, set, o.Name)
	case *appsv1.ReplicaSet:
		adopt(g, w, o)
		w.replicas(o.Spec.Replicas, &o.Spec.Template, o, o.Name)
	case *corev1.ReplicationController:
		adopt(g, w, o)
		w.replicas(o.Spec.Replicas, o.Spec.Template, o, o.Name)
	case *appsv1.StatefulSet:
		adopt(g, w, o)
		w.count = wanted(o.Spec.Replicas)
		w.member = func(k int) (*corev1.Pod, []*corev1.PersistentVolumeClaim) {
			return statefulset.Member(o, "simulated", k)
		}
	case *appsv1.DaemonSet:
		adopt(g, w, o)
		w.daemons(g, o)
	case *batchv1.Job:
		w.tasks(o)
	case *batchv1.CronJob:
		one, err := g.prepare(ctx, &batchv1.Job{TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}, ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name,
			Labels: o.Spec.JobTemplate.Labels, Annotations: o.Spec.JobTemplate.Annotations}, Spec: *o.Spec.JobTemplate.Spec.DeepCopy()})
		if err != nil {
			return nil, fmt.Errorf("a Job of it: %w", err)
		}
		w.tasks(one.(*batchv1.Job))
	}
	if w.present == nil {
		w.present = func(*corev1.Pod) bool { return false }
	}
	return w, nil
}

// adopt puts the owner of pods into the memory. If the cluster has one of its name, its pods are among those that o wants, and new ones are its too.
func adopt[T client.Object](g *gate, w *workload, o T) {
	if there, ok := find[T](g.memory, o.GetNamespace(), o.GetName()); ok {
		o.SetUID(there.GetUID())
	} else {
		g.memory.put(o.DeepCopyObject().(client.Object))
	}
	uid := o.GetUID()
	w.present = func(p *corev1.Pod) bool {
		owner := metav1.GetControllerOfNoCopy(p)
		return owner != nil && owner.UID == uid
	}
}

func wanted(n *int32) int {
	if n == nil {
		return 1
	}
	return int(*n)
}

func (w *workload) replicas(n *int32, template *corev1.PodTemplateSpec, owner client.Object, prefix string) {
	gvk, _ := client.KindOf(owner)
	w.count = wanted(n)
	w.member = func(int) (*corev1.Pod, []*corev1.PersistentVolumeClaim) {
		return owned.NewPod(template, owner.GetNamespace(), prefix, ownerOf(owner, gvk)), nil
	}
}

func ownerOf(o client.Object, gvk schema.GroupVersionKind) *metav1.OwnerReference {
	return owned.Owner(o, gvk)
}

func (w *workload) daemons(g *gate, ds *appsv1.DaemonSet) {
	var pods []*corev1.Pod
	has := map[string]bool{}
	for _, o := range g.memory.all(client.ResourceOf[*corev1.Pod](), "") {
		if p := o.(*corev1.Pod); w.present(p) {
			has[p.Spec.NodeName] = true
		}
	}
	for _, o := range g.memory.all(client.ResourceOf[*corev1.Node](), "") {
		if p := daemonset.Member(ds, o.(*corev1.Node), "simulated"); p != nil && !has[o.GetName()] {
			p.Name = ds.Name + "-" + o.GetName()
			pods = append(pods, p)
		}
	}
	w.count, w.more = len(pods), false
	w.member = func(k int) (*corev1.Pod, []*corev1.PersistentVolumeClaim) { return pods[k].DeepCopy(), nil }
}

func (w *workload) tasks(j *batchv1.Job) {
	w.count = wanted(j.Spec.Parallelism)
	if j.Spec.Completions != nil {
		w.count = min(w.count, int(*j.Spec.Completions))
	}
	w.member = func(k int) (*corev1.Pod, []*corev1.PersistentVolumeClaim) { return job.Member(j, k), nil }
}
