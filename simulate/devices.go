package simulate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/scheduler/dra"
)

// devices makes the ResourceClaims that a new pod's templates describe, and has the pod's status name them. A template that is missing keeps the pod waiting, as it does in a cluster.
func (r *run) devices(p *corev1.Pod) error {
	for _, pc := range p.Spec.ResourceClaims {
		if pc.ResourceClaimTemplateName == nil {
			continue
		}
		t, ok := find[*resourcev1.ResourceClaimTemplate](r.memory, p.Namespace, *pc.ResourceClaimTemplateName)
		if !ok {
			continue
		}
		c := &resourcev1.ResourceClaim{ObjectMeta: *t.Spec.ObjectMeta.DeepCopy(), Spec: *t.Spec.Spec.DeepCopy()}
		c.Namespace, c.GenerateName = p.Namespace, p.Name+"-"+pc.Name+"-"
		c.OwnerReferences = append(c.OwnerReferences, *metav1.NewControllerRef(p, corev1.SchemeGroupVersion.WithKind("Pod")))
		if c.Annotations == nil {
			c.Annotations = map[string]string{}
		}
		c.Annotations[resourcev1.PodResourceClaimAnnotation] = pc.Name
		made, err := r.gate.create(r.ctx, c)
		if err != nil {
			return err
		}
		name := made.GetName()
		p.Status.ResourceClaimStatuses = append(p.Status.ResourceClaimStatuses, corev1.PodResourceClaimStatus{Name: pc.Name, ResourceClaimName: &name})
	}
	return nil
}

// unmet says what a pod's devices have to do before it is bound; empty if nothing.
func (r *run) unmet(p *corev1.Pod) string {
	var names []string
	for k := range p.Spec.ResourceClaims {
		if name, _, err := resourceclaim.Name(p, &p.Spec.ResourceClaims[k]); err == nil && name != nil {
			names = append(names, *name)
		}
	}
	if s := p.Status.ExtendedResourceClaimStatus; s != nil {
		names = append(names, s.ResourceClaimName)
	}
	var conditions []string
	for _, name := range names {
		if c, ok := find[*resourcev1.ResourceClaim](r.memory, p.Namespace, name); ok {
			conditions = append(conditions, dra.Unmet(c)...)
		}
	}
	if len(conditions) == 0 {
		return ""
	}
	return "its devices have to meet conditions before it is bound: " + strings.Join(conditions, ", ")
}

// free gives back the devices of a pod that is gone.
func (r *run) free(p *corev1.Pod) {
	claims := client.ResourceOf[*resourcev1.ResourceClaim]()
	for _, o := range r.memory.all(claims, p.Namespace) {
		c := o.(*resourcev1.ResourceClaim)
		if owner := metav1.GetControllerOfNoCopy(c); owner != nil && owner.UID == p.UID {
			r.memory.drop(claims, keyOf(c))
			continue
		}
		mine := func(ref resourcev1.ResourceClaimConsumerReference) bool { return ref.UID == p.UID }
		if !slices.ContainsFunc(c.Status.ReservedFor, mine) {
			continue
		}
		c = c.DeepCopy()
		if c.Status.ReservedFor = slices.DeleteFunc(c.Status.ReservedFor, mine); len(c.Status.ReservedFor) == 0 {
			c.Status.Allocation, c.Status.Devices = nil, nil
		}
		r.memory.put(c)
	}
}
