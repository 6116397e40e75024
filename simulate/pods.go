package simulate

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/internal/resource"
)

// bind gives a pod its node.
func (m *memory) bind(ref resource.Ref, body runtime.Object) (runtime.Object, error) {
	b, ok := body.(*corev1.Binding)
	if !ok || ref.Resource != "pods" || ref.Subresource != "binding" {
		return nil, apierrors.NewMethodNotSupported(ref.GroupResource(), "create")
	}
	m.mu.Lock()
	o, err := m.find(resource.Ref{GroupVersionResource: ref.GroupVersionResource, Namespace: b.Namespace, Name: b.Name})
	m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	old := o.(*corev1.Pod)
	if b.UID != "" && b.UID != old.UID || old.Spec.NodeName != "" {
		return nil, apierrors.NewConflict(ref.GroupResource(), b.Name, fmt.Errorf("pod %s is already assigned to node %q", b.Name, old.Spec.NodeName))
	}
	pod := shallow(old)
	pod.Spec.NodeName = b.Target.Name
	pod.Status.NominatedNodeName = ""
	m.put(pod)
	return &metav1.Status{Status: metav1.StatusSuccess}, nil
}

// shallow copies a pod so far that its own fields, but not what they point to, can be set.
func shallow(p *corev1.Pod) *corev1.Pod {
	c := *p
	return &c
}

func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// ending is a running pod that was told to end; nil for anything else.
func ending(o client.Object, now time.Time) client.Object {
	p, ok := o.(*corev1.Pod)
	if !ok || p.Spec.NodeName == "" || ended(p) {
		return nil
	}
	if p.DeletionTimestamp != nil {
		return p
	}
	p = shallow(p)
	at := metav1.NewTime(now)
	p.DeletionTimestamp = &at
	return p
}

// replaced tells whether somebody makes a pod anew that is gone: its controller. A static pod's is its node.
func replaced(p *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(p)
	return owner != nil && owner.Kind != "Node" && !ended(p)
}

// anew is the pod that takes p's place, before it has a node. It has p's name, whatever its controller would call it.
func anew(p *corev1.Pod) *corev1.Pod {
	c := p.DeepCopy()
	c.Spec.NodeName = ""
	c.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: p.Status.QOSClass}
	return c
}
