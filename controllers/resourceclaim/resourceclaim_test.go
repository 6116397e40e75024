package resourceclaim_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	ct "github.com/yare-project/yare/controllers/controllertest"
	"github.com/yare-project/yare/controllers/resourceclaim"
)

func template() *resourcev1.ResourceClaimTemplate {
	t := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: ct.Namespace, Name: "gpu"}}
	t.Spec.Labels, t.Spec.Annotations = map[string]string{"team": "a"}, map[string]string{"note": "b"}
	t.Spec.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "c"}}}
	return t
}

func pod(name string, claims ...corev1.PodResourceClaim) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ct.Namespace, Name: name}, Spec: corev1.PodSpec{ResourceClaims: claims}}
}

func byTemplate(name string) corev1.PodResourceClaim {
	return corev1.PodResourceClaim{Name: name, ResourceClaimTemplateName: ptr.To("gpu")}
}

func claims(s *ct.Stage) []*resourcev1.ResourceClaim { return ct.All[*resourcev1.ResourceClaim](s) }

func get(s *ct.Stage, name string) *corev1.Pod {
	for _, p := range ct.All[*corev1.Pod](s) {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// taken is a claim with devices, for the pods.
func taken(name string, pods ...*corev1.Pod) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ct.Namespace, Name: name, Finalizers: []string{resourcev1.Finalizer}}}
	c.Status.Allocation = &resourcev1.AllocationResult{}
	for _, p := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: p.Name, UID: p.UID})
	}
	return c
}

func TestPodGetsAClaimForEachTemplate(t *testing.T) {
	s := ct.New(t, resourceclaim.Descriptor()).Go()
	s.Put(pod("web", byTemplate("one"), byTemplate("two")))
	s.Settled()
	if got := claims(s); len(got) != 0 {
		t.Fatalf("%d claims without a template", len(got))
	}
	s.Put(template())
	s.Until("both are told", func() bool { return len(get(s, "web").Status.ResourceClaimStatuses) == 2 }, func() any { return get(s, "web").Status })
	s.Settled()
	got := claims(s)
	if len(got) != 2 {
		t.Fatalf("%d claims, want 2", len(got))
	}
	p := get(s, "web")
	for i, c := range got {
		name := []string{"one", "two"}[i]
		if !strings.HasPrefix(c.Name, "web-"+name+"-") || c.Annotations[resourcev1.PodResourceClaimAnnotation] != name || c.Annotations["note"] != "b" || c.Labels["team"] != "a" || !metav1.IsControlledBy(c, p) {
			t.Errorf("claim %+v", c.ObjectMeta)
		}
		if st := p.Status.ResourceClaimStatuses[i]; st.Name != name || *st.ResourceClaimName != c.Name {
			t.Errorf("the pod was told %+v, the claim is %s", st, c.Name)
		}
	}
}

// A claim that was made before its name was written down is found again, not made twice.
func TestClaimIsMadeOnce(t *testing.T) {
	s := ct.New(t, resourceclaim.Descriptor())
	p := s.Put(pod("web", byTemplate("one"))).(*corev1.Pod)
	s.Put(template(), &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ct.Namespace, Name: "web-one-xyz", Annotations: map[string]string{resourcev1.PodResourceClaimAnnotation: "one"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID, Controller: ptr.To(true)}}}})
	s.Go()
	s.Until("told", func() bool { return len(get(s, "web").Status.ResourceClaimStatuses) == 1 }, func() any { return get(s, "web").Status })
	s.Settled()
	if got := claims(s); len(got) != 1 || *get(s, "web").Status.ResourceClaimStatuses[0].ResourceClaimName != "web-one-xyz" {
		t.Errorf("claims %v", got)
	}
}

func TestClaimIsFreedWhenItsPodsEnd(t *testing.T) {
	s := ct.New(t, resourceclaim.Descriptor())
	a, b := s.Put(pod("a", corev1.PodResourceClaim{Name: "x", ResourceClaimName: ptr.To("shared")})).(*corev1.Pod), s.Put(pod("b", corev1.PodResourceClaim{Name: "x", ResourceClaimName: ptr.To("shared")})).(*corev1.Pod)
	s.Put(taken("shared", a, b))
	s.Go()
	ct.Change(s, a, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	s.Until("a is off", func() bool { return len(claims(s)[0].Status.ReservedFor) == 1 }, func() any { return claims(s)[0].Status })
	if c := claims(s)[0]; c.Status.Allocation == nil || c.Status.ReservedFor[0].Name != "b" {
		t.Fatalf("with a user left: %+v", c.Status)
	}
	ct.Delete(s, b, metav1.DeleteOptions{})
	s.Until("free", func() bool { return claims(s)[0].Status.Allocation == nil && len(claims(s)[0].Finalizers) == 0 }, func() any { return claims(s)[0] })
}

func TestClaimOfAnEndedPodIsDeleted(t *testing.T) {
	s := ct.New(t, resourceclaim.Descriptor()).Go()
	s.Put(template(), pod("web", byTemplate("one")))
	s.Until("told", func() bool {
		p := get(s, "web")
		return p != nil && len(p.Status.ResourceClaimStatuses) == 1
	}, func() any { return get(s, "web") })
	ct.Change(s, get(s, "web"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	s.Until("deleted", func() bool { return len(claims(s)) == 0 }, func() any { return claims(s) })
}

func TestPodPlacedByHandIsPutDown(t *testing.T) {
	s := ct.New(t, resourceclaim.Descriptor()).Go()
	s.Put(taken("shared"))
	p := pod("hand", corev1.PodResourceClaim{Name: "x", ResourceClaimName: ptr.To("shared")})
	p.Spec.NodeName = "n"
	s.Put(p)
	s.Until("reserved", func() bool { return len(claims(s)[0].Status.ReservedFor) == 1 }, func() any { return claims(s)[0].Status })
}

func TestDeletedClaimGoesOnceItIsFree(t *testing.T) {
	s := ct.New(t, resourceclaim.Descriptor())
	a := s.Put(pod("a", corev1.PodResourceClaim{Name: "x", ResourceClaimName: ptr.To("shared")})).(*corev1.Pod)
	c := s.Put(taken("shared", a)).(*resourcev1.ResourceClaim)
	s.Go()
	ct.Delete(s, c, metav1.DeleteOptions{})
	s.Settled()
	if got := claims(s); len(got) != 1 || got[0].Status.Allocation == nil {
		t.Fatalf("a claim in use went: %v", got)
	}
	ct.Delete(s, a, metav1.DeleteOptions{})
	s.Until("gone", func() bool { return len(claims(s)) == 0 }, func() any { return claims(s) })
}
