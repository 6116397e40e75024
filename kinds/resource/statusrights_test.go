package resource_test

import (
	"context"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	ref "github.com/yare-project/yare/internal/resource"
	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/fake"
	"github.com/yare-project/yare/kinds/resource"
)

func TestStatusRights(t *testing.T) {
	allocated := func(change ...func(*resourcev1.ResourceClaimStatus)) *resourcev1.ResourceClaim {
		c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
		c.Status.Allocation = &resourcev1.AllocationResult{NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n1"}}}}}}}
		for _, f := range change {
			f(&c.Status)
		}
		return c
	}
	told := func(driver string) func(*resourcev1.ResourceClaimStatus) {
		return func(s *resourcev1.ResourceClaimStatus) {
			s.Devices = append(s.Devices, resourcev1.AllocatedDeviceStatus{Driver: driver, Pool: "p", Device: "d"})
		}
	}
	reserved := func(s *resourcev1.ResourceClaimStatus) {
		s.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "p", UID: "u"}}
	}
	empty := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
	onNode := &user.DefaultInfo{Name: "system:serviceaccount:kube-system:driver", Extra: map[string][]string{"authentication.kubernetes.io/node-name": {"n1"}}}
	for name, c := range map[string]struct {
		now, old *resourcev1.ResourceClaim
		who      user.Info
		may      string // verb resourceclaims/part name
		patch    bool
		part     string
		want     string
	}{
		"nothing changed":               {now: allocated(), old: allocated()},
		"allocated without the right":   {now: allocated(), old: empty, want: `status.allocation: Forbidden: changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="update" permission: User "eve" cannot update resource "resourceclaims/binding" in API group "resource.k8s.io" at the cluster scope`},
		"allocated with it":             {now: allocated(), old: empty, may: "update binding "},
		"reserved by another verb":      {now: allocated(reserved), old: allocated(), may: "update binding ", patch: true, want: `verb="patch"`},
		"reserved by a patch":           {now: allocated(reserved), old: allocated(), may: "patch binding ", patch: true},
		"devices without the right":     {now: allocated(told("d1")), old: allocated(), want: `status.devices: Forbidden: changing status.devices requires resource="resourceclaims/driver", verb="[arbitrary-node:update]"`},
		"devices on any node":           {now: allocated(told("d1")), old: allocated(), may: "arbitrary-node:update driver d1"},
		"devices of another driver":     {now: allocated(told("d1"), told("d2")), old: allocated(told("d1")), may: "arbitrary-node:update driver d1", want: "status.devices: Forbidden"},
		"devices on its own node":       {now: allocated(told("d1")), old: allocated(), who: onNode, may: "associated-node:update driver d1"},
		"devices on another's node":     {now: allocated(told("d1")), old: allocated(), may: "associated-node:update driver d1", want: "status.devices: Forbidden"},
		"devices no longer told of":     {now: allocated(), old: allocated(told("d1")), want: "status.devices: Forbidden"},
		"given back with what was told": {now: empty, old: allocated(told("d1")), may: "update binding "},
		"not the status":                {now: allocated(), old: empty, part: "none"},
	} {
		env := &fake.Env{}
		env.Authorizer = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			if a.GetResource() == "resourceclaims" && c.may == a.GetVerb()+" "+a.GetSubresource()+" "+a.GetName() {
				return authorizer.DecisionAllow, "", nil
			}
			return authorizer.DecisionNoOpinion, "", nil
		})
		if c.who == nil {
			c.who = &user.DefaultInfo{Name: "eve"}
		}
		if c.part == "" {
			c.part = "status"
		}
		var options runtime.Object = &metav1.UpdateOptions{}
		if c.patch {
			options = &metav1.PatchOptions{}
		}
		r := &kind.AdmissionRequest{Operation: admissionv1.Update, Kind: resource.Group.Kinds[0], Ref: ref.Ref{Namespace: "ns", Subresource: c.part}, User: c.who, Object: c.now, Old: c.old, Options: options}
		err := resource.StatusRights{}.Validate(t.Context(), env, r)
		if c.want == "" && err != nil || c.want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
