package resource_test

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	ref "github.com/yare-project/yare/internal/resource"
	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/fake"
	"github.com/yare-project/yare/kinds/resource"
)

func asking(admin *bool) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
		Requests: []resourcev1.DeviceRequest{{Name: "one"}, {Name: "two", Exactly: &resourcev1.ExactDeviceRequest{AdminAccess: admin}}}}}}
}

func having(admin *bool) *resourcev1.ResourceClaim {
	c := asking(nil)
	c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{AdminAccess: admin}}}}
	return c
}

func TestAdminAccess(t *testing.T) {
	yes, no := ptr.To(true), ptr.To(false)
	template := &resourcev1.ResourceClaimTemplate{Spec: resourcev1.ResourceClaimTemplateSpec{Spec: asking(yes).Spec}}
	const forbidden = "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace"
	const asked, granted = "spec.devices.requests[1].adminAccess: Forbidden: ", "status.allocation.devices.results[0].adminAccess: Forbidden: "
	for name, c := range map[string]struct {
		label    string
		now, old kind.Object
		want     string
	}{
		"nothing asked":            {now: asking(nil)},
		"asked not to":             {now: asking(no)},
		"asked":                    {now: asking(yes), want: asked + forbidden},
		"the wrong label":          {label: "yes", now: asking(yes), want: asked + forbidden},
		"asked where it may be":    {label: "true", now: asking(yes)},
		"template":                 {now: template, want: asked + forbidden},
		"template where it may be": {label: "true", now: template},
		"template there already":   {now: template, old: template},
		"claim there already":      {now: asking(yes), old: asking(yes)},
		"given":                    {now: having(yes), old: having(nil), want: granted + forbidden},
		"given where it may be":    {label: "true", now: having(yes), old: having(nil)},
		"given before":             {now: having(yes), old: having(yes)},
		"no namespace":             {label: "gone", now: asking(yes), want: "could not retrieve namespace to verify admin access"},
		"another kind":             {now: &corev1.Pod{}},
	} {
		env := &fake.Env{}
		if c.label != "gone" {
			env.Put("", "namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", Labels: map[string]string{"resource.kubernetes.io/admin-access": c.label}}})
		}
		r := &kind.AdmissionRequest{Operation: admissionv1.Create, Kind: resource.Group.Kinds[0], Ref: ref.Ref{Namespace: "ns"}, Object: c.now}
		if c.old != nil {
			r.Operation, r.Old = admissionv1.Update, c.old
		}
		err := resource.AdminAccess{}.Validate(t.Context(), env, r)
		if c.want == "" && err != nil || c.want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
