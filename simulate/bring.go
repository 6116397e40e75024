package simulate

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/internal/resource"
)

// bring adds what the manifest has to the cluster: first what pods need, then the pods, in the order given.
func (r *run) bring() error {
	m := r.options.Manifest
	if len(m.Ignored) > 0 {
		r.notes = append(r.notes, "not needed to place pods: "+strings.Join(m.Ignored, ", "))
	}
	for _, o := range m.Objects {
		r.namespace(o)
		if bringsPods(o) {
			continue
		}
		if err := r.support(o); err != nil {
			return fmt.Errorf("%s: %w", kindName(o), err)
		}
	}
	for _, o := range m.Objects {
		if bringsPods(o) {
			r.workload(o)
		}
	}
	return nil
}

// namespace sees to it that an object's namespace exists.
func (r *run) namespace(o client.Object) {
	name := o.GetNamespace()
	if name == "" {
		return
	}
	if _, ok := find[*corev1.Namespace](r.memory, "", name); ok {
		return
	}
	r.memory.put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("namespace-" + name), Labels: map[string]string{corev1.LabelMetadataName: name}}})
	if len(r.memory.all(client.ResourceOf[*corev1.Namespace](), "")) == 1 {
		return // nobody told of any
	}
	for _, given := range r.options.Manifest.Objects {
		if _, is := given.(*corev1.Namespace); is && given.GetName() == name {
			return
		}
	}
	r.notes = append(r.notes, fmt.Sprintf("namespace %q is not in the cluster; its pods are placed as if it were", name))
}

// support adds an object that placement depends on, or changes the one that the cluster has.
func (r *run) support(o client.Object) error {
	gvr := resourceOf(o)
	old, err := r.memory.Get(r.ctx, resource.Ref{GroupVersionResource: gvr, Namespace: o.GetNamespace(), Name: o.GetName()}, metav1.GetOptions{})
	exists := err == nil
	switch o.(type) {
	case *corev1.PersistentVolumeClaim, *corev1.PersistentVolume:
		if exists {
			return nil // what is bound stays bound
		}
	}
	next, err := r.gate.prepare(r.ctx, o)
	if err != nil {
		return err
	}
	if exists {
		next.SetUID(old.(client.Object).GetUID())
		if b, ok := next.(*policyv1.PodDisruptionBudget); ok {
			b.Status = old.(*policyv1.PodDisruptionBudget).Status
		}
		r.memory.put(next)
		return nil
	}
	if n, ok := next.(*corev1.Node); ok {
		r.addNode(n)
		return nil
	}
	r.memory.put(next)
	return nil
}

// workload adds the pods of an object that the cluster does not have yet.
func (r *run) workload(o client.Object) {
	w, err := r.gate.expand(r.ctx, o)
	if err != nil {
		r.asked = append(r.asked, &subject{workload: kindName(o), key: keyOf(o), gone: refusal(err)})
		return
	}
	r.workloads = append(r.workloads, w)
	has := 0
	for _, there := range r.memory.all(client.ResourceOf[*corev1.Pod](), o.GetNamespace()) {
		if p := there.(*corev1.Pod); p.DeletionTimestamp == nil && w.present(p) {
			has++
		}
	}
	if has > 0 {
		r.notes = append(r.notes, fmt.Sprintf("%s has %d %s in the cluster already, not placed anew", w.name, has, plural(has, "pod")))
	}
	if w.more {
		w.next = r.add(w, w.count, has)
		return
	}
	r.add(w, w.count, 0)
}

// add makes the first n pods of a workload, has of which exist. It returns the number of the next.
func (r *run) add(w *workload, n, has int) int {
	k := 0
	for ; k < n; k++ {
		pod, claims := w.member(k)
		if pod.Name == "" {
			if has > 0 {
				has--
				continue
			}
			r.number(pod)
		} else if _, taken := find[*corev1.Pod](r.memory, pod.Namespace, pod.Name); taken {
			if strings.HasPrefix(w.name, "Pod/") {
				r.asked = append(r.asked, &subject{workload: w.name, key: keyOf(pod), gone: "the cluster has a pod of this name"})
			}
			continue
		}
		r.asked = append(r.asked, r.create(w.name, pod, claims))
	}
	return k
}

// number completes the name of a pod with the smallest number that is free.
func (r *run) number(p *corev1.Pod) {
	if r.numbers == nil {
		r.numbers = map[string]int{}
	}
	prefix := p.Namespace + "/" + p.GenerateName
	for {
		r.numbers[prefix]++
		name := fmt.Sprintf("%s%d", p.GenerateName, r.numbers[prefix])
		if _, taken := find[*corev1.Pod](r.memory, p.Namespace, name); !taken {
			p.Name = name
			return
		}
	}
}

// create makes a pod and its claims, or notes why the API server would not.
func (r *run) create(workload string, p *corev1.Pod, claims []*corev1.PersistentVolumeClaim) *subject {
	o, err := r.gate.prepare(r.ctx, p)
	for _, c := range claims {
		if err == nil {
			err = r.claim(c)
		}
	}
	if err != nil {
		return &subject{workload: workload, key: keyOf(p), gone: refusal(err)}
	}
	pod := o.(*corev1.Pod)
	s := r.track(pod, workload, "")
	if err := errors.Join(r.inline(pod), r.devices(pod)); err != nil {
		s.gone = refusal(err)
		return s
	}
	r.memory.put(pod)
	return s
}

// claim makes a claim unless there is one.
func (r *run) claim(c *corev1.PersistentVolumeClaim) error {
	if _, ok := find[*corev1.PersistentVolumeClaim](r.memory, c.Namespace, c.Name); ok {
		return nil
	}
	_, err := r.gate.create(r.ctx, c)
	return err
}

// inline makes the claims of a pod's generic ephemeral volumes.
func (r *run) inline(p *corev1.Pod) error {
	for _, v := range p.Spec.Volumes {
		if v.Ephemeral == nil || v.Ephemeral.VolumeClaimTemplate == nil {
			continue
		}
		t := v.Ephemeral.VolumeClaimTemplate
		c := &corev1.PersistentVolumeClaim{ObjectMeta: *t.ObjectMeta.DeepCopy(), Spec: *t.Spec.DeepCopy()}
		c.Namespace, c.Name = p.Namespace, p.Name+"-"+v.Name
		c.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(p, corev1.SchemeGroupVersion.WithKind("Pod"))}
		r.memory.drop(client.ResourceOf[*corev1.PersistentVolumeClaim](), keyOf(c)) // that of the pod which had this name before
		if _, err := r.gate.create(r.ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// refusal is what the API server would say.
func refusal(err error) string { return "refused by the API server: " + err.Error() }

// rest has the scheduler decide until nothing is left to decide: pods that end make room, and those that somebody makes anew look for a place.
func (r *run) rest() error {
	for {
		if err := r.trial.Rest(); err != nil {
			return err
		}
		if len(r.victims)+len(r.leaving) == 0 {
			return nil
		}
		r.depart()
	}
}

func (r *run) depart() {
	pods := client.ResourceOf[*corev1.Pod]()
	for _, p := range r.leaving {
		r.memory.drop(pods, keyOf(p))
		r.free(p)
	}
	victims := r.victims
	r.leaving, r.victims = nil, nil
	for _, v := range victims {
		r.memory.drop(pods, keyOf(v.pod))
		r.free(v.pod)
	}
	for _, v := range victims {
		if !replaced(v.pod) {
			v.gone = alone
			continue
		}
		r.comeBack(v)
	}
}

// comeBack makes a pod anew that lost its node.
func (r *run) comeBack(v departed) {
	p := anew(v.pod)
	known := r.byUID[v.pod.UID]
	r.gate.identify(p)
	v.uid = p.UID
	r.byUID[p.UID] = v.subject
	if known != nil { // it is told of in another list as well
		known.uid = p.UID
		r.byUID[p.UID] = known
	}
	if err := errors.Join(r.inline(p), r.devices(p)); err != nil {
		v.gone = refusal(err)
		return
	}
	r.memory.put(p)
}

func (r *run) all() error {
	r.trial.Measure()
	if err := r.trial.Rest(); err != nil { // what waits in the cluster was there first
		return err
	}
	for _, v := range r.lost {
		r.free(v.pod)
		r.comeBack(v)
	}
	if err := r.bring(); err != nil {
		return err
	}
	r.trial.Measure() // policies of the manifest may want numbers, too
	if err := r.rest(); err != nil {
		return err
	}
	if r.options.Like != nil {
		if err := r.grow(*r.options.Like); err != nil {
			return err
		}
	}
	r.trial.Retry() // what they were told last may not be true any more
	if err := r.rest(); err != nil {
		return err
	}
	if r.options.Fit > 0 {
		return r.more(r.options.Fit)
	}
	return nil
}
