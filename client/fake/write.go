package fake

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/internal/resource"
)

// Create stores a new object or, at a subresource, calls its hook.
func (t *Transport) Create(_ context.Context, ref resource.Ref, obj runtime.Object, _ metav1.CreateOptions) (out runtime.Object, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i, err := t.begin("create", ref, obj)
	if err != nil {
		return nil, err
	}
	defer func() { t.end(i, err) }()
	if ref.Subresource != "" {
		return t.createSub(ref, obj)
	}
	o, ok := obj.(client.Object)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("a %T has no metadata", obj))
	}
	return t.create(ref.GroupVersionResource, ref.Namespace, o, false)
}

func (t *Transport) create(gvr schema.GroupVersionResource, namespace string, obj client.Object, asGiven bool) (client.Object, error) {
	o := obj.DeepCopyObject().(client.Object)
	o.SetNamespace(namespace)
	if o.GetName() == "" && o.GetGenerateName() != "" {
		o.SetName(fmt.Sprintf("%s%05x", o.GetGenerateName(), t.revision+1))
	}
	ref := resource.Ref{GroupVersionResource: gvr, Namespace: namespace, Name: o.GetName()}
	if o.GetName() == "" {
		return nil, apierrors.NewBadRequest("name or generateName is required")
	}
	if _, err := t.find(ref); err == nil {
		return nil, apierrors.NewAlreadyExists(gvr.GroupResource(), o.GetName())
	}
	if !asGiven || o.GetUID() == "" {
		o.SetUID(types.UID(fmt.Sprintf("uid-%d", t.revision+1)))
	}
	if !asGiven || o.GetCreationTimestamp().Time.IsZero() {
		o.SetCreationTimestamp(metav1.NewTime(t.clock.Now().UTC()))
	}
	if status := part(o, "Status"); !asGiven && status.IsValid() {
		status.SetZero()
	}
	if part(o, "Spec").IsValid() && o.GetGeneration() == 0 {
		o.SetGeneration(1)
	}
	fresh(o)
	return t.write(gvr, o, false), nil
}

// fresh sets what the kinds themselves set on create and loops wait for.
func fresh(o client.Object) {
	switch o := o.(type) {
	case *corev1.Namespace:
		if o.Status.Phase == "" {
			o.Spec.Finalizers, o.Status.Phase = []corev1.FinalizerName{corev1.FinalizerKubernetes}, corev1.NamespaceActive
		}
	case *corev1.Pod:
		if o.Status.Phase == "" {
			o.Status.Phase = corev1.PodPending
		}
	}
}

func (t *Transport) createSub(ref resource.Ref, body runtime.Object) (runtime.Object, error) {
	name := ref.Resource + "/" + ref.Subresource
	h, ok := t.hooks[name]
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the fake has no hook for create %s; set one with OnCreate", name))
	}
	if m, isObject := body.(metav1.Object); ref.Name == "" && isObject {
		ref.Name = m.GetName()
	}
	parent, err := t.find(ref)
	if err != nil {
		return nil, err
	}
	if h == nil && name == "pods/eviction" {
		_, err := t.remove(ref, parent, metav1.DeleteOptions{})
		return body, err
	}
	parent = parent.DeepCopyObject().(client.Object)
	answer, save, err := h(parent, body)
	if err == nil && save {
		t.write(ref.GroupVersionResource, parent, false)
	}
	return answer, err
}

func bind(parent client.Object, body runtime.Object) (runtime.Object, bool, error) {
	pod, binding := parent.(*corev1.Pod), body.(*corev1.Binding)
	if pod.Spec.NodeName != "" {
		return nil, false, apierrors.NewConflict(corev1.Resource("pods/binding"), pod.Name,
			fmt.Errorf("pod %s is already assigned to node %q", pod.Name, pod.Spec.NodeName))
	}
	pod.Spec.NodeName = binding.Target.Name
	pod.Status.Conditions = append(slices.DeleteFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled }),
		corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue})
	return &metav1.Status{Status: metav1.StatusSuccess}, true, nil
}

// Update replaces an object or the part of it that a subresource owns.
func (t *Transport) Update(_ context.Context, ref resource.Ref, obj runtime.Object, _ metav1.UpdateOptions) (out runtime.Object, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i, err := t.begin("update", ref, obj)
	if err != nil {
		return nil, err
	}
	defer func() { t.end(i, err) }()
	o, ok := obj.(client.Object)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("a %T has no metadata", obj))
	}
	old, err := t.find(ref)
	if err != nil {
		return nil, err
	}
	return t.update(ref, old, o.DeepCopyObject().(client.Object))
}

func (t *Transport) update(ref resource.Ref, old, o client.Object) (runtime.Object, error) {
	if rv := o.GetResourceVersion(); rv != "" && rv != old.GetResourceVersion() {
		return nil, apierrors.NewConflict(ref.GroupResource(), ref.Name,
			fmt.Errorf("the object has been modified; please apply your changes to the latest version and try again"))
	}
	if uid := o.GetUID(); uid != "" && uid != old.GetUID() {
		return nil, apierrors.NewConflict(ref.GroupResource(), ref.Name, fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", uid, old.GetUID()))
	}
	merged := merge(ref.Subresource, old, o)
	merged.SetUID(old.GetUID())
	merged.SetCreationTimestamp(old.GetCreationTimestamp())
	merged.SetDeletionTimestamp(old.GetDeletionTimestamp())
	merged.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	merged.SetGeneration(old.GetGeneration())
	if a, b := part(merged, "Spec"), part(old, "Spec"); a.IsValid() && !equality.Semantic.DeepEqual(a.Interface(), b.Interface()) {
		merged.SetGeneration(old.GetGeneration() + 1)
	}
	merged.SetResourceVersion(old.GetResourceVersion())
	if equality.Semantic.DeepEqual(merged, old) {
		return old, nil
	}
	return t.write(ref.GroupVersionResource, merged, finished(merged)), nil
}

// finished says that nothing holds a deleted object any longer.
func finished(o client.Object) bool {
	if ns, ok := o.(*corev1.Namespace); ok && len(ns.Spec.Finalizers) > 0 {
		return false
	}
	waits := o.GetDeletionGracePeriodSeconds()
	return o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0 && (waits == nil || *waits == 0)
}

// merge is what a request at sub leaves of old and o.
func merge(sub string, old, o client.Object) client.Object {
	switch {
	case sub == "":
		if status := part(o, "Status"); status.IsValid() {
			status.Set(part(old.DeepCopyObject().(client.Object), "Status"))
		}
		return o
	case sub == "status" && part(o, "Status").IsValid():
		out := old.DeepCopyObject().(client.Object)
		part(out, "Status").Set(part(o, "Status"))
		return out
	case sub == "finalize":
		out := old.DeepCopyObject().(*corev1.Namespace)
		out.Spec.Finalizers = o.(*corev1.Namespace).Spec.Finalizers
		return out
	}
	return o
}

// Patch applies a patch to the object or a subresource.
func (t *Transport) Patch(_ context.Context, ref resource.Ref, kind types.PatchType, body []byte, _ metav1.PatchOptions) (out runtime.Object, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i, err := t.begin("patch", ref, nil)
	if err != nil {
		return nil, err
	}
	defer func() { t.end(i, err) }()
	old, err := t.find(ref)
	if apierrors.IsNotFound(err) && kind == types.ApplyPatchType {
		return t.apply(ref, body)
	}
	if err != nil {
		return nil, err
	}
	before, err := json.Marshal(old)
	if err != nil {
		return nil, err
	}
	after, err := patched(kind, before, body, old)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	o, err := decode(old, after)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return t.update(ref, old, o)
}

func (t *Transport) apply(ref resource.Ref, body []byte) (runtime.Object, error) {
	var like client.Object = &unstructured.Unstructured{}
	if gvk, ok := client.KindFor(ref.GroupVersionResource); ok {
		typed, err := client.Scheme().New(gvk)
		if err != nil {
			return nil, err
		}
		like = typed.(client.Object)
	}
	o, err := decode(like, body)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	o.SetName(ref.Name)
	return t.create(ref.GroupVersionResource, ref.Namespace, o, false)
}

func patched(kind types.PatchType, before, body []byte, like client.Object) ([]byte, error) {
	switch kind {
	case types.JSONPatchType:
		p, err := jsonpatch.DecodePatch(body)
		if err != nil {
			return nil, err
		}
		return p.Apply(before)
	case types.MergePatchType:
		return jsonpatch.MergePatch(before, body)
	case types.StrategicMergePatchType:
		return strategicpatch.StrategicMergePatch(before, body, like)
	case types.ApplyPatchType:
		asJSON, err := yaml.YAMLToJSON(body)
		if err != nil {
			return nil, err
		}
		if _, dynamic := like.(*unstructured.Unstructured); dynamic {
			return jsonpatch.MergePatch(before, asJSON)
		}
		return strategicpatch.StrategicMergePatch(before, asJSON, like)
	}
	return nil, fmt.Errorf("unknown patch type %q", kind)
}

func decode(like client.Object, body []byte) (client.Object, error) {
	if _, dynamic := like.(*unstructured.Unstructured); dynamic {
		u := &unstructured.Unstructured{}
		return u, yaml.Unmarshal(body, &u.Object)
	}
	gvk, _ := client.KindOf(like)
	o, err := client.Scheme().New(gvk)
	if err != nil {
		return nil, err
	}
	return o.(client.Object), yaml.Unmarshal(body, o)
}

// Delete removes an object, or marks it deleted while finalizers or a pod's grace hold it.
func (t *Transport) Delete(_ context.Context, ref resource.Ref, opts metav1.DeleteOptions) (out runtime.Object, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i, err := t.begin("delete", ref, nil)
	if err != nil {
		return nil, err
	}
	defer func() { t.end(i, err) }()
	old, err := t.find(ref)
	if err != nil {
		return nil, err
	}
	return t.remove(ref, old, opts)
}

func (t *Transport) remove(ref resource.Ref, old client.Object, opts metav1.DeleteOptions) (runtime.Object, error) {
	if p := opts.Preconditions; p != nil {
		if p.UID != nil && *p.UID != old.GetUID() {
			return nil, apierrors.NewConflict(ref.GroupResource(), ref.Name, fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", *p.UID, old.GetUID()))
		}
		if p.ResourceVersion != nil && *p.ResourceVersion != old.GetResourceVersion() {
			return nil, apierrors.NewConflict(ref.GroupResource(), ref.Name, fmt.Errorf("Precondition failed: ResourceVersion in precondition: %v, ResourceVersion in object meta: %v", *p.ResourceVersion, old.GetResourceVersion()))
		}
	}
	o := old.DeepCopyObject().(client.Object)
	if p := opts.PropagationPolicy; p != nil {
		o.SetFinalizers(withPropagation(o.GetFinalizers(), *p))
	}
	grace := graceOf(o, opts)
	if o.GetDeletionTimestamp() == nil {
		at := metav1.NewTime(t.clock.Now().UTC())
		o.SetDeletionTimestamp(&at)
		if o.GetGeneration() > 0 {
			o.SetGeneration(o.GetGeneration() + 1)
		}
	} else if before := o.GetDeletionGracePeriodSeconds(); before != nil {
		grace = min(grace, *before)
	}
	o.SetDeletionGracePeriodSeconds(&grace)
	if ns, ok := o.(*corev1.Namespace); ok {
		ns.Status.Phase = corev1.NamespaceTerminating
	}
	if equality.Semantic.DeepEqual(o, old) {
		return old, nil
	}
	return t.write(ref.GroupVersionResource, o, finished(o)), nil
}

func withPropagation(finalizers []string, p metav1.DeletionPropagation) []string {
	out := slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool {
		return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
	})
	switch p {
	case metav1.DeletePropagationOrphan:
		out = append(out, metav1.FinalizerOrphanDependents)
	case metav1.DeletePropagationForeground:
		out = append(out, metav1.FinalizerDeleteDependents)
	}
	return out
}

func graceOf(o client.Object, opts metav1.DeleteOptions) int64 {
	pod, ok := o.(*corev1.Pod)
	if !ok || pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return 0
	}
	switch {
	case opts.GracePeriodSeconds != nil:
		return *opts.GracePeriodSeconds
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		return *pod.Spec.TerminationGracePeriodSeconds
	}
	return 30
}

// DeleteCollection deletes every object that the list options select.
func (t *Transport) DeleteCollection(_ context.Context, ref resource.Ref, opts metav1.DeleteOptions, list metav1.ListOptions) (err error) {
	match, err := matcher(ref, list)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	i, err := t.begin("deletecollection", ref, nil)
	if err != nil {
		return err
	}
	defer func() { t.end(i, err) }()
	for _, o := range t.selected(ref.GroupVersionResource, match) {
		one := ref
		one.Namespace, one.Name = o.GetNamespace(), o.GetName()
		if _, err := t.remove(one, o, opts); err != nil {
			return err
		}
	}
	return nil
}

// Resources lists the resources that hold objects.
func (t *Transport) Resources() []schema.GroupVersionResource {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := slices.Collect(maps.Keys(t.tables))
	slices.SortFunc(out, func(a, b schema.GroupVersionResource) int { return len(a.Resource) - len(b.Resource) })
	return out
}
