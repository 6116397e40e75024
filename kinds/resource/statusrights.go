package resource

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
)

// StatusRights is the validator that asks more of who writes a claim's status than the right to do so (KEP-4817, on since Kubernetes 1.36): allocation and reservedFor are for those
// with the right to resourceclaims/binding, and what is told of a driver's devices for those with the right to resourceclaims/driver of that driver's name, by a verb that says
// whether it is for claims on the writer's own node or on any.
type StatusRights struct{}

// Name names the validator.
func (StatusRights) Name() string { return "DRAResourceClaimGranularStatusAuthorization" }

// Validate refuses a change of a claim's status that its writer has no right to.
func (StatusRights) Validate(ctx context.Context, env kind.Env, r *kind.AdmissionRequest) error {
	now, is := r.Object.(*resourcev1.ResourceClaim)
	old, was := r.Old.(*resourcev1.ResourceClaim)
	if !is || !was || r.Ref.Subresource != "status" {
		return nil
	}
	verb := "update"
	if _, patches := r.Options.(*metav1.PatchOptions); patches {
		verb = "patch"
	}
	var errs field.ErrorList
	if !equality.Semantic.DeepEqual(now.Status.Allocation, old.Status.Allocation) || !equality.Semantic.DeepEqual(now.Status.ReservedFor, old.Status.ReservedFor) {
		if why := lacks(ctx, env, r.User, verb, resourcev1.SubresourceBinding, "", ""); why != "" {
			errs = append(errs, field.Forbidden(field.NewPath("status", "allocation"),
				fmt.Sprintf(`changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="%s" permission: %s`, verb, why)))
		}
	}
	if now.Status.Allocation != nil { // else what was told of devices goes by itself
		verbs := []string{resourcev1.VerbPrefixArbitraryNode + verb}
		if node := nodeOf(now.Status.Allocation); node != "" && runsOn(r.User, node) {
			verbs = append([]string{resourcev1.VerbPrefixAssociatedNode + verb}, verbs...)
		}
		for _, driver := range changedDrivers(now.Status.Devices, old.Status.Devices) {
			if why := lacksAll(ctx, env, r.User, verbs, r.Ref.Namespace, driver); why != "" {
				errs = append(errs, field.Forbidden(field.NewPath("status", "devices"),
					fmt.Sprintf(`changing status.devices requires resource="resourceclaims/driver", verb="%s" permission: %s`, verbs, why)))
			}
		}
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(r.Kind.Hub.GroupKind(), now.Name, errs)
	}
	return nil
}

// lacksAll says why a user has none of the rights, as of the first.
func lacksAll(ctx context.Context, env kind.Env, who user.Info, verbs []string, namespace, driver string) string {
	first := ""
	for _, verb := range verbs {
		why := lacks(ctx, env, who, verb, resourcev1.SubresourceDriver, namespace, driver)
		if why == "" {
			return ""
		}
		if first == "" {
			first = why
		}
	}
	return first
}

// lacks says why a user has not a right to part of claims' status; empty if it has.
func lacks(ctx context.Context, env kind.Env, who user.Info, verb, part, namespace, name string) string {
	decision, reason, err := env.Authorize(ctx, authorizer.AttributesRecord{User: who, Verb: verb, APIGroup: resourcev1.GroupName, APIVersion: "v1", Resource: "resourceclaims", Subresource: part,
		Namespace: namespace, Name: name, ResourceRequest: true})
	if decision == authorizer.DecisionAllow {
		return ""
	}
	where := "at the cluster scope"
	if namespace != "" {
		where = fmt.Sprintf("in the namespace %q", namespace)
	}
	text := fmt.Sprintf("User %q cannot %s resource %q in API group %q %s", who.GetName(), verb, "resourceclaims/"+part, resourcev1.GroupName, where)
	if err != nil {
		text += ": " + err.Error()
	}
	if reason != "" {
		text += ": " + reason
	}
	return text
}

// changedDrivers are those of whose devices anything is told anew, otherwise, or no longer.
func changedDrivers(now, old []resourcev1.AllocatedDeviceStatus) []string {
	key := func(d *resourcev1.AllocatedDeviceStatus) deviceID {
		return deviceID{d.Driver, d.Pool, d.Device, ptr.Deref(d.ShareID, "")}
	}
	before := map[deviceID]*resourcev1.AllocatedDeviceStatus{}
	for i := range old {
		before[key(&old[i])] = &old[i]
	}
	var out []string
	for i := range now {
		b := before[key(&now[i])]
		delete(before, key(&now[i]))
		if b == nil || !equality.Semantic.DeepEqual(b, &now[i]) {
			out = append(out, now[i].Driver)
		}
	}
	for k := range before {
		out = append(out, k.driver)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// nodeOf is the one node on which the devices of an allocation can be used; empty if there are several.
func nodeOf(a *resourcev1.AllocationResult) string {
	if a.NodeSelector == nil || len(a.NodeSelector.NodeSelectorTerms) != 1 {
		return ""
	}
	t := a.NodeSelector.NodeSelectorTerms[0]
	if len(t.MatchExpressions) != 0 || len(t.MatchFields) != 1 {
		return ""
	}
	if f := t.MatchFields[0]; f.Key == "metadata.name" && f.Operator == corev1.NodeSelectorOpIn && len(f.Values) == 1 {
		return f.Values[0]
	}
	return ""
}

// runsOn tells whether a user is the service account of a pod on a node.
func runsOn(who user.Info, node string) bool {
	if _, _, err := serviceaccount.SplitUsername(who.GetName()); err != nil {
		return false
	}
	names := who.GetExtra()[serviceaccount.NodeNameKey]
	return len(names) == 1 && names[0] == node
}
